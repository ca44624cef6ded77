"""What every family of problems shares: item `index` is a function of (seed, split, index), and splits never share a normal form."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, TypeVar

from synth.types import Problem, Quarantined, Split, seed_for, split_of

T = TypeVar("T")
DRAWS = 1000


def sample(seed: int, family: str, split: Split, index: int, draw: Callable[[Random], tuple[str, T]]) -> tuple[str, T]:
    """The first drawn (root, spec) whose root belongs to `split`, drawn with a generator of this index alone.

    `root` is the family's name and the normal form of the problem, so that two wordings of one problem lie in one split.
    Raises ValueError after 1000 draws: the family is too small for this split.
    """
    rng = Random(seed_for(seed, "problems", family, split, index))
    for _ in range(DRAWS):
        root, spec = draw(rng)
        if split_of(root) == split:
            return root, spec
    raise ValueError(f"{family}: none of {DRAWS} drawn problems belongs to the split {split!r}: choose levels with more different problems")


def rung(ladder: Sequence[Mapping[str, Any]], levels: Sequence[int], rng: Random, family: str) -> tuple[int, Mapping[str, Any]]:
    """One of `levels` (1 is the first rung) and its knobs. Raises ValueError for a level that the ladder lacks."""
    if not levels or any(not 1 <= level <= len(ladder) for level in levels):
        raise ValueError(f"{family}: levels {list(levels)} must name at least one of 1 to {len(ladder)}")
    level = rng.choice(list(levels))
    return level, ladder[level - 1]


def finish(
    reason: str | None,
    *,
    seed: int,
    index: int,
    root: str,
    solution: str,
    family: str,
    split: Split,
    lineage: Mapping[str, Any],
    **rest: Any,
) -> Problem | Quarantined:
    """The certified problem, or, where its certificate says `reason`, the same row set aside."""
    if reason is not None:
        code, _, evidence = reason.partition(": ")
        return Quarantined(id=f"{family}/{split}/{index}", stage="problems", reason=code, evidence=f"{root}: {evidence}")
    line = {"root": root, "solution": solution, "seed": seed, "index": index, **lineage}
    return Problem.make(family=family, split=split, lineage=line, **rest)
