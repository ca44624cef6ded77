"""The conversations that `sft` learns from as tokens on disk, in shards: what is in memory is 34 bytes a conversation.

A shard is a file of numbers 2 x id + (1 if the token is learned), one conversation after the other: of 4 bytes, or of 8 in a
conversation that shows pictures, whose ids are up to 2^62. Beside it are each conversation's length, the bytes of its numbers, its
weight and a number by which a fraction of a weight is drawn. One that is longer than `max_length` has a length and no tokens. A
row is read from its file when a step asks for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from synth.types import Demonstration
from tasks.rows.read import Origins, chance
from tasks.storage.shards import Shards
from training.learner.pack import Row
from training.learner.rows import demonstration_tokens, lesson_row
from training.model.render import Renderer

ROWS = 20_000  # conversations of a shard


class TokenRows:
    """Rows of conversations, those that are not too long, in order: `rows[i]`, `len(rows)`.

    lengths [n] int64: tokens of every conversation, the long ones too; kept [rows]: places of the rows among them;
    learned [rows]: tokens with the loss weight 1 if context has another; weight, drawn [rows] float64: as `shares` takes them.
    """

    def __init__(
        self,
        folder: Path,
        demonstrations: Iterable[Demonstration],
        renderer: Renderer,
        *,
        origins: Origins,
        seed: int,
        context_weight: float,
        max_length: int,
        imap: Callable[..., Iterator[Any]] = map,
    ) -> None:
        """folder: where shards lie, of this renderer and `max_length`; those that are there are not made again. imap: makes several at a
        time (`Parts.each`)."""
        self.context_weight, self.folders = context_weight, list[Path]()
        stream, parts = iter(demonstrations), list[dict[str, np.ndarray]]()

        def jobs() -> Iterator[tuple[list[Demonstration], np.ndarray, np.ndarray]]:
            while part := list(islice(stream, ROWS)):
                weight, last = origins.of([d.id for d in part])
                drawn = np.zeros(len(part)) if origins.even else np.array([chance(seed, d.id) for d in part])
                yield part, last, np.stack([weight, drawn])

        for at in Shards(folder, ROWS).each(jobs(), partial(_write, renderer, max_length), imap):
            self.folders.append(at)
            parts.append(dict(np.load(at / "rows.npz")))

        def whole(name: str) -> np.ndarray:
            return np.concatenate([p[name] for p in parts]) if parts else np.zeros(0, np.int64)

        self.lengths = whole("length")
        fits = self.lengths <= max_length
        self.kept = np.flatnonzero(fits)
        self.learned, self.weight, self.drawn = (whole(name)[fits] for name in ("learned", "weight", "drawn"))
        self._shard = np.concatenate([np.full(len(p["length"]), k) for k, p in enumerate(parts)] or [[]])[fits].astype(
            np.int32
        )
        self._width = whole("width")[fits]
        inside = [np.cumsum(n := np.where(p["length"] <= max_length, p["length"] * p["width"], 0)) - n for p in parts]
        self._start = np.concatenate(inside)[fits] if parts else np.zeros(0, np.int64)

    def __len__(self) -> int:
        return len(self.kept)

    def __getitem__(self, i: int) -> Row:
        if not 0 <= i < len(self):
            raise IndexError(i)
        path, n = self.folders[self._shard[i]] / "tokens.bin", int(self.lengths[self.kept[i]])
        both = np.fromfile(path, f"<i{self._width[i]}", n, offset=int(self._start[i])).astype(np.int64)
        return lesson_row(both >> 1, (both & 1).astype(bool), self.context_weight)

    def __iter__(self) -> Iterator[Row]:
        return (self[i] for i in range(len(self)))

    @property
    def taught(self) -> np.ndarray:
        """[rows] the tokens of each row that have the loss weight 1."""
        return self.lengths[self.kept] if self.context_weight == 1 else self.learned


def _write(
    renderer: Renderer, max_length: int, at: Path, job: tuple[list[Demonstration], np.ndarray, np.ndarray]
) -> None:
    """job: conversations, whether the last turn of each is learned alone, and [2, n] weights and what decides about their fractions."""
    part, last, (weight, drawn) = job
    length, learned, width = (
        np.zeros(len(part), np.int64),
        np.zeros(len(part), np.int32),
        np.full(len(part), 4, np.int8),
    )
    with (at / "tokens.bin").open("wb") as file:
        for i, d in enumerate(part):
            ids, taught = demonstration_tokens(renderer, d.messages, last=bool(last[i]))
            length[i], learned[i] = len(ids), int(taught.sum())
            if len(ids) <= max_length:
                both = 2 * ids + taught
                width[i] = 4 if np.array_equal(both, both.astype(np.int32)) else 8
                file.write(both.astype(f"<i{width[i]}").tobytes())
    np.savez(at / "rows.npz", length=length, width=width, learned=learned, weight=weight, drawn=drawn)
