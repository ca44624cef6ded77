"""Chat messages to token ids and back, by the tokenizer's own template, in pieces, so that sampled tokens are never
re-tokenised.

A conversation is: prompt ids, then turn by turn the sampled ids (ending in the end-of-turn token) and the ids of what
the environment says next. So the text that the template writes *between* two turns must not depend on the text before:
`Renderer` checks that once, at start, and refuses a template that fails. How the template would render earlier turns
again (Qwen3 drops their empty `<think>` block) does not matter, because they are never rendered again. A template with
`enable_thinking` gets false: turns are short here. A template that writes the date always gets the same day, so the
same messages give the same ids.

No text may be lost: marked text of every role must appear in the template's output. If a template has no system or tool
messages, their text is sent as a user's (`Renderer.as_user`); if text is lost even then, the template is refused.

A message may show pictures (`Message.media`): each `<image>` of its text becomes the tokens of one of them
(training/types.py), if the tokenizer's model reads pictures. `<image>` in a message without media is text.

Text never becomes structure: special tokens in a message are broken up by spaces. In tool output, so is markup for
which the tokenizer has special tokens (`<think>`, `</tool_response>`), and the lines that the template itself writes
between two turns.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

import numpy as np
from jinja2.exceptions import TemplateError
from transformers import PreTrainedTokenizerBase

from synth.pictures import picture_key
from synth.types import Message
from training.model.vision import KNOWN, Grids
from training.types import picture_ids

PICTURE = "<image>"  # a picture's place in the text of a message
_MARK = "Zmarkerz"
_REMEDY = "set the tokenizer's chat_template to a ChatML one"
_ASKED = (Message(role="user", content="u"),)
DAY = datetime(2025, 1, 1, tzinfo=UTC)  # the date of every conversation: some templates write it
# What a template raises for messages that it does not support: its own errors, and Python's if it reads a field that no
# message has.
_UNWRITTEN = (TemplateError, TypeError, ValueError, KeyError, AttributeError)
# For templates without tools, in the wording of Hermes and Qwen.
_TOOLS = """# Tools

You may call one or more functions to assist with the user query.

You are provided with function signatures within <tools></tools> XML tags:
<tools>
{cards}
</tools>

For each function call, return a json object with function name and arguments within <tool_call></tool_call> XML tags:
<tool_call>
{{"name": <function-name>, "arguments": <args-json-object>}}
</tool_call>"""


def _any(texts: Iterable[str]) -> re.Pattern[str]:
    return re.compile("|".join(map(re.escape, sorted(texts, key=len, reverse=True))))


_SHOWN = re.compile("\ue000([0-9a-f]{64})\ue001")  # a picture's place in rendered text


def marked(text: str, media: Sequence[str]) -> str:
    """A message's text with the name of each of its pictures in the place of an `<image>`. Raises ValueError where there
    are more or fewer of these than pictures."""
    text = text.replace("\ue000", "")  # only a picture is marked
    if not media:
        return text
    parts = text.split(PICTURE)
    if len(parts) != len(media) + 1:
        raise ValueError(
            f"a message shows {len(media)} pictures and has {len(parts) - 1} places for them ({PICTURE}): write one for each"
        )
    return parts[0] + "".join(f"\ue000{name}\ue001{rest}" for name, rest in zip(media, parts[1:], strict=True))


def merged(messages: Iterable[Message], as_user: frozenset[str] = frozenset()) -> list[Message]:
    """The messages, with those roles turned into the user's. Consecutive system messages are merged, and so are
    consecutive user messages if one of them had another role, because some templates allow neither."""
    out: list[Message] = []
    moved: list[bool] = []
    for m in messages:
        here = m.role in as_user
        role = "user" if here else m.role
        if out and out[-1].role == role and (role == "system" or (role == "user" and (here or moved[-1]))):
            out[-1] = Message(role=role, content=f"{out[-1].content}\n\n{m.content}")
            moved[-1] = moved[-1] or here
        else:
            out.append(Message(role=role, content=m.content))
            moved.append(here)
    return out


class Renderer:
    """Raises ValueError for a tokenizer without an end-of-turn token, for a template that cannot be cut into turns, and
    for one that loses text.

    end_id   the token that ends a turn: the one that the template writes after a turn, which need not be the
             tokenizer's eos_token
    as_user  roles whose text is sent as a user's, because the template has no messages for them
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self.tokenizer = tokenizer
        self.name = tokenizer.name_or_path
        self.picture_tokens: int | Grids = getattr(tokenizer, "picture_tokens", 0)  # of each picture, or by its size
        eos: Any = tokenizer.eos_token_id
        if eos is None:
            raise ValueError(
                f"the tokenizer of {self.name!r} has no eos_token: name the token that ends a turn in tokenizer_config.json"
            )
        special = {
            str(tokenizer.decode([eos])),
            *(t.content for t in tokenizer.added_tokens_decoder.values() if t.special),
        }
        self._special = self._markup = _any(special)
        self.as_user: frozenset[str] = frozenset()
        self._parts = False
        if self._lost("user"):  # templates of vision-language models want a message as a list of parts
            self._parts = True
            self._parts = not self._lost("user")
        self.as_user = frozenset(role for role in ("system", "tool") if self._lost(role))
        for role in ("user", "assistant", "system", "tool"):
            if why := self._lost(role):
                raise ValueError(
                    f"the chat template of {self.name!r} {why}: {_REMEDY}, a chat_template.jinja beside tokenizer.json"
                )
        self.end = self._end(special)
        end_id = tokenizer.convert_tokens_to_ids(self.end)
        assert isinstance(end_id, int)  # of one token
        self.end_id = end_id
        if not self._constant() and "tool" not in self.as_user:
            self.as_user |= {"tool"}  # DeepSeek's template words the first result of a conversation differently
        if not self._constant():
            raise ValueError(
                f"the chat template of {self.name!r} makes what follows a turn depend on what came before it: {_REMEDY}"
            )
        headers = {
            line.strip()
            for line in re.split(
                r"Zt|\n", self._between(_ASKED, [Message(role=r, content="Zt") for r in ("tool", "user")])
            )
        }
        own = {t.content for t in tokenizer.added_tokens_decoder.values()}
        self._markup = _any(
            special
            | {x for x in headers | own if len(x) > 2 and re.search(r"[^\w\s]", x) and not re.search(r"^\s|\s$", x)}
        )

    def _constant(self) -> bool:
        """Whether the text after a turn is the same whatever came before the turn."""
        longer = [*_ASKED, Message(role="assistant", content="a"), Message(role="tool", content="b")]
        first, later = (self._between(before, [Message(role="tool", content="t")]) for before in (_ASKED, longer))
        return first == later and first.startswith(self.end)

    def _lost(self, role: str) -> str:
        """Why text of this role does not reach the model; "" if it does. Every marked text of a conversation must
        appear in the template's output."""
        question, called, told = (f"{_MARK}{x}" for x in ("asked", "called", "told"))
        call = Message(role="assistant", content=f"<search>{called}</search>")
        conversations = {
            "user": [[Message(role="user", content=question)], [*_ASKED, call, Message(role="user", content=question)]],
            "assistant": [[*_ASKED, call, *_ASKED]],
            "system": [[Message(role="system", content=told), Message(role="user", content=question)]],
            "tool": [
                [*_ASKED, call, Message(role="tool", content=told)],
                [*_ASKED, call, Message(role="tool", content=question), Message(role="tool", content=told)],
            ],
        }[role]
        for conversation in conversations:
            try:
                text = self._text(conversation, True)
            except _UNWRITTEN as e:
                return f"cannot write a message of the role {role} ({str(e).strip().splitlines()[0] if str(e) else type(e).__name__})"
            for mark in (question, called, told):
                if any(m.role == role and mark in m.content for m in conversation) and mark not in text:
                    return f"loses the text of a message of the role {role}"
        return ""

    def _end(self, special: Iterable[str]) -> str:
        """The token after an assistant's turn: it must be the same whatever follows, and if nothing follows. Raises
        ValueError."""
        told = [self._between(_ASKED, [Message(role=role, content="t")]) for role in ("tool", "user")]
        told.append(self._text([*_ASKED, Message(role="assistant", content=_MARK)], False).partition(_MARK)[2])
        ends = [max((s for s in special if s and t.startswith(s)), key=len, default="") for t in told]
        if not ends[0] or len(set(ends)) > 1:
            raise ValueError(
                f"the chat template of {self.name!r} does not end a turn with a token of its own, the same whatever follows "
                f"(it writes {', '.join(repr(t[:24]) for t in dict.fromkeys(told))}): {_REMEDY}"
            )
        return ends[0]

    def _plain(self, text: str, role: str = "") -> str:
        """Text with its special tokens broken up: a passage or an answer that quotes `<|im_end|>` must not end a turn.
        In tool output all markup is broken up."""
        return (self._markup if role == "tool" else self._special).sub(
            lambda match: f"{match[0][:1]} {match[0][1:]}", text
        )

    @cached_property
    def writes_tools(self) -> bool:
        """Whether the template itself lists the tools for the model."""
        card = {"type": "function", "function": {"name": _MARK, "description": _MARK, "parameters": {"type": "object"}}}
        try:
            return _MARK in self._text(_ASKED, True, [card])
        except _UNWRITTEN:
            return False

    def _text(self, messages: Sequence[Message], generate: bool, tools: Sequence[Mapping[str, Any]] = ()) -> str:
        plain = [Message(role=m.role, content=marked(self._plain(m.content, m.role), m.media)) for m in messages]
        plain_messages = [
            {"role": m.role, "content": [{"type": "text", "text": m.content}] if self._parts else m.content}
            for m in merged(plain, self.as_user)
        ]
        text = self.tokenizer.apply_chat_template(
            plain_messages,
            tools=[dict(t) for t in tools] or None,
            tokenize=False,
            add_generation_prompt=generate,
            enable_thinking=False,
            strftime_now=DAY.strftime,
        )
        assert isinstance(text, str)  # tokenize=False
        return text

    def _between(self, before: Sequence[Message], messages: Sequence[Message]) -> str:
        """The template's output after the text of an assistant turn: the end of the turn, the messages, the next
        header."""
        return self._text([*before, Message(role="assistant", content=_MARK), *messages], True).partition(_MARK)[2]

    def encode(self, text: str) -> np.ndarray:
        """Ids [n] int64 of a text, with special tokens recognised, and of the pictures in it. Raises ValueError for a
        picture where the tokenizer's model reads text alone."""
        parts = _SHOWN.split(text)  # text and names in turn
        if len(parts) == 1:
            return self._words(text)
        if not self.picture_tokens:
            raise ValueError(
                f"a message shows a picture, and the model of {self.name!r} reads text alone: choose a vision-language model "
                f"({KNOWN})"
            )
        before, after = self._frame
        ids: list[np.ndarray] = []
        for i, part in enumerate(parts):
            ids += [before, picture_ids(part, self._tokens(part)), after] if i % 2 else [self._words(part)]
        return np.concatenate(ids)

    def _tokens(self, name: str) -> int:
        """How many tokens a picture has."""
        n = self.picture_tokens
        return n if isinstance(n, int) else math.prod(n.held(picture_key(name)))

    @cached_property
    def _frame(self) -> tuple[np.ndarray, np.ndarray]:
        """Ids before and after a picture that is shown whole, as the processors of SmolVLM and Idefics3, and the templates
        of Qwen, write them; none where the tokenizer has no such tokens."""
        known = self.tokenizer.get_vocab()
        if isinstance(self.picture_tokens, Grids):
            begin, end = (
                np.array([known[t]] if t in known else [], dtype=np.int64)
                for t in ("<|vision_start|>", "<|vision_end|>")
            )
            return begin, end
        edge, whole = ([known[t]] if t in known else [] for t in ("<fake_token_around_image>", "<global-img>"))
        return np.array([*edge, *whole], dtype=np.int64), np.array(edge, dtype=np.int64)

    def _words(self, text: str) -> np.ndarray:
        return np.asarray(self.tokenizer(text, add_special_tokens=False)["input_ids"], dtype=np.int64)

    def decode(self, ids: Sequence[int] | np.ndarray) -> str:
        """The text of a turn without its end-of-turn token (a turn of fixed length is filled up with several)."""
        ids = np.asarray(ids, dtype=np.int64)
        ids = ids[ids >= 0]  # a picture has no text
        n = len(ids)
        while n and ids[n - 1] == self.end_id:
            n -= 1
        text = self.tokenizer.decode(ids[:n])  # an array: transformers looks at each item of a list
        assert isinstance(text, str)  # of one turn
        return text

    def prompt(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = ()) -> np.ndarray:
        """Ids up to where the model starts to write. tools: those that it may call, as JSON ({"type": "function",
        "function": {"name", "description", "parameters"}}): listed by the template, or, if it has no tools, by a system
        message in the wording of Hermes and Qwen."""
        if tools:
            cards = json.loads(self._plain(json.dumps(list(tools), ensure_ascii=False), "tool"))
            if self.writes_tools:
                return self.encode(self._text(messages, True, cards))
            lines = "\n".join(json.dumps(card, ensure_ascii=False) for card in cards)
            first = next((i for i, m in enumerate(messages) if m.role != "system"), len(messages))
            told = Message(role="system", content=_TOOLS.format(cards=lines))
            messages = [*messages[:first], told, *messages[first:]]
        return self.encode(self._text(messages, True))

    def observation(self, messages: Sequence[Message]) -> np.ndarray:
        """Ids between the model's end-of-turn token and where it writes again: the messages and the next header."""
        return self.encode(self._between(_ASKED, messages)[len(self.end) :])

    def turn(self, text: str) -> np.ndarray:
        """Ids of an assistant turn of a demonstration, with its end-of-turn token."""
        return np.append(self.encode(self._plain(text)), self.end_id)

    def demonstration(self, messages: Sequence[Message]) -> tuple[np.ndarray, np.ndarray]:
        """A whole conversation -> ids [n], trainable [n] (True on assistant turns and their end tokens), tokenised
        exactly as rollouts are."""
        first = next((i for i, m in enumerate(messages) if m.role == "assistant"), len(messages))
        ids, mask, waiting = [self.prompt(messages[:first])], [False], []
        for m in messages[first:]:
            if m.role == "assistant":
                if waiting:
                    ids.append(self.observation(waiting))
                    mask.append(False)
                    waiting = []
                ids.append(self.turn(m.content))
                mask.append(True)
            else:
                waiting.append(m)
        return np.concatenate(ids), np.concatenate([np.full(len(x), f) for x, f in zip(ids, mask, strict=True)])
