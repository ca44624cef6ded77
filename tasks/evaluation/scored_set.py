"""A test set whose items a model scores without a conversation, and the interface of that model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from training.model.model import longest_row
from training.model.render import Renderer

Row = dict[str, Any]  # item -> its id, set -> a name, and a number for each metric


@dataclass(frozen=True)
class Player:
    """A model with its tokenizer, as benchmarks use it."""

    model: Any
    renderer: Renderer

    @property
    def longest(self) -> int:
        return longest_row(self.model)


@dataclass(frozen=True)
class Benchmark:
    """`texts`: (id, text) of each item, for the contamination check. `score(player, items)` gives a row
    per item of `items` (ids) with its metrics."""

    name: str
    source: str
    texts: tuple[tuple[str, str], ...]
    score: Callable[[Player, Sequence[str]], list[Row]]
    quarantined: tuple[Any, ...] = ()
    summary: Callable[[str, Sequence[Row]], Mapping[str, float] | None] | None = None
