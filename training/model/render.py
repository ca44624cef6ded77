"""Chat messages to token ids and back, by the tokenizer's own template, in pieces that never re-tokenise what was
sampled.

A conversation is: prompt ids, then turn by turn the sampled ids (ending in the end-of-turn token) and the ids of what
the environment says next. So what the template writes *between* two turns may not depend on the text before: `Renderer`
checks that once, at start, and refuses a template that fails. How it would write earlier turns again (Qwen3 drops their
empty `<think>` block) does not matter, because they are never written again. A template that knows `enable_thinking` is
told no: turns are short here.

Text never becomes structure: special tokens in a message are spelled apart, and in what a tool says also the markup
that the tokenizer has as tokens of its own (`<think>`, `</tool_response>`) and the lines that the template itself
writes between two turns.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import numpy as np
from jinja2.exceptions import TemplateError
from transformers import PreTrainedTokenizerBase

from synth.types import Message

_MARK = "Zmarkerz"
_REMEDY = "set the tokenizer's chat_template to a ChatML one"
_ASKED = (Message(role="user", content="u"),)


def _any(texts: Iterable[str]) -> re.Pattern[str]:
    return re.compile("|".join(map(re.escape, sorted(texts, key=len, reverse=True))))


class Renderer:
    """Raises ValueError for a tokenizer without an end-of-turn token and for a template that cannot be cut into
    turns."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self.tokenizer = tokenizer
        if tokenizer.eos_token_id is None:
            raise ValueError(
                f"the tokenizer of {tokenizer.name_or_path!r} has no eos_token: name the token that ends a turn in tokenizer_config.json"
            )
        self.end_id: int = tokenizer.eos_token_id
        self.end: str = tokenizer.decode([self.end_id])
        special = {self.end, *(t.content for t in tokenizer.added_tokens_decoder.values() if t.special)}
        self._special = _any(special)
        self._markup = self._special
        longer = [*_ASKED, Message(role="assistant", content="a"), Message(role="tool", content="b")]
        try:
            first, later = (self._between(before, [Message(role="tool", content="t")]) for before in (_ASKED, longer))
        except TemplateError as e:
            raise ValueError(
                f"the chat template of {tokenizer.name_or_path!r} cannot write a tool's message ({e}): {_REMEDY}"
            ) from e
        if first != later or not first.startswith(self.end):
            raise ValueError(
                f"the chat template of {tokenizer.name_or_path!r} makes what follows a turn depend on what came before it, or does not end "
                f"a turn with {self.end!r}: {_REMEDY}"
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

    def _plain(self, text: str, role: str = "") -> str:
        """Text whose special tokens are spelled apart: a passage or an answer that quotes `<|im_end|>` must not end a
        turn. Of a tool, all markup is."""
        return (self._markup if role == "tool" else self._special).sub(
            lambda found: f"{found[0][:1]} {found[0][1:]}", text
        )

    def _text(self, messages: Sequence[Message], generate: bool) -> str:
        said = [{"role": m.role, "content": self._plain(m.content, m.role)} for m in messages]
        return self.tokenizer.apply_chat_template(
            said, tokenize=False, add_generation_prompt=generate, enable_thinking=False
        )

    def _between(self, before: Sequence[Message], messages: Sequence[Message]) -> str:
        """What the template writes after the text of an assistant turn: the end of the turn, the messages, the next
        header."""
        return self._text([*before, Message(role="assistant", content=_MARK), *messages], True).partition(_MARK)[2]

    def encode(self, text: str) -> np.ndarray:
        """Ids [n] int64 of a text as it stands, special tokens included."""
        return np.asarray(self.tokenizer(text, add_special_tokens=False)["input_ids"], dtype=np.int64)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of a turn without its end-of-turn token."""
        ids = [int(i) for i in ids]
        return self.tokenizer.decode(ids[:-1] if ids and ids[-1] == self.end_id else ids)

    def prompt(self, messages: Sequence[Message]) -> np.ndarray:
        """Ids up to where the model starts to write."""
        return self.encode(self._text(messages, True))

    def observation(self, messages: Sequence[Message]) -> np.ndarray:
        """Ids between the model's end-of-turn token and where it writes again: the messages and the next header."""
        return self.encode(self._between(_ASKED, messages)[len(self.end) :])

    def turn(self, text: str) -> np.ndarray:
        """Ids of an assistant turn that a demonstration holds, with its end-of-turn token."""
        return np.append(self.encode(self._plain(text)), self.end_id)

    def demonstration(self, messages: Sequence[Message]) -> tuple[np.ndarray, np.ndarray]:
        """A whole conversation -> ids [n], trainable [n] (True on assistant turns and their end tokens), cut exactly as
        rollouts are."""
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
