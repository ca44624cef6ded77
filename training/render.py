"""Chat messages to token ids and back, by the tokenizer's own template, in pieces that never re-tokenise what was sampled.

A conversation is: prompt ids, then turn by turn the sampled ids (ending in the end-of-turn token) and the ids of what the
environment says next. The template must be *prefix stable*: what it writes between two turns may not depend on the text
before. `Renderer` checks that once, at start, on token ids, and refuses a template that fails.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from synth.types import Message

_MARK = "Zmarkerz"


class Renderer:
    def __init__(self, tokenizer) -> None:
        self.tokenizer = tokenizer
        self.end_id: int = tokenizer.eos_token_id
        a = self._text([Message(role="user", content="u"), Message(role="assistant", content=_MARK)], False)
        b = self._text([Message(role="user", content="u"), Message(role="assistant", content=_MARK), Message(role="tool", content="t")], True)
        end = tokenizer.decode([self.end_id])
        if not a.split(_MARK)[1].startswith(end) or not b.startswith(a.split(_MARK)[0] + _MARK + end):
            raise ValueError(f"the chat template of {tokenizer.name_or_path!r} rewrites earlier turns or does not end a turn with {end!r}: "
                             "multi-turn training needs a prefix-stable template; set the tokenizer's chat_template to a ChatML one")  # fmt: skip

    def _text(self, messages: Sequence[Message], generate: bool) -> str:
        return self.tokenizer.apply_chat_template([{"role": m.role, "content": m.content} for m in messages], tokenize=False, add_generation_prompt=generate)

    def encode(self, text: str) -> np.ndarray:
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
        head = [Message(role="user", content="u"), Message(role="assistant", content=_MARK)]
        tail = self._text([*head, *messages], True).split(_MARK)[1]
        return self.encode(tail[len(self.tokenizer.decode([self.end_id])) :])

    def turn(self, text: str) -> np.ndarray:
        """Ids of an assistant turn that a demonstration holds, with its end-of-turn token."""
        return np.append(self.encode(text), self.end_id)

    def demonstration(self, messages: Sequence[Message]) -> tuple[np.ndarray, np.ndarray]:
        """A whole conversation -> ids [n], trainable [n] (True on assistant turns and their end tokens), cut exactly as rollouts are."""
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
