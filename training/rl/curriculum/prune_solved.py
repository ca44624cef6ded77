"""Prompts that are solved leave the pool until the others have been seen once more.

"Fathom-DeepResearch: Unlocking Long Horizon Information Retrieval and Synthesis for SLMs", 2025 (RAPO, arXiv
2509.24107).

    a problem is pruned for the epoch when its last mean score is at least `solved`
    an epoch ends when every problem was drawn or pruned; then all are back

Returns n distinct indices (repeated only when n exceeds the number of problems), those not yet drawn in the epoch
first. Reads state["scores"]; keeps state["drawn"], the ids of the epoch. If fewer than n are left, pruned ones fill the
batch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from synth.types import Problem


def prune_solved(
    problems: Sequence[Problem], state: dict, rng: np.random.Generator, n: int, *, solved: float = 0.9
) -> list[int]:
    if not problems:
        raise ValueError(
            "the curriculum was given no problem to choose from: check the split and the filters of the stage before"
        )
    names = [p.id for p in problems]
    drawn = set(state.get("drawn", ()))
    chosen: list[int] = []
    while len(chosen) < n:
        order = [int(i) for i in rng.permutation(len(problems))]
        order = [i for i in order if i not in set(chosen)] or order
        fresh = [i for i in order if names[i] not in drawn and not _is_solved(names[i], state, solved)]
        if not fresh:  # the epoch is over: all problems are back, unsolved ones first
            drawn = set()
            fresh = [i for i in order if not _is_solved(names[i], state, solved)] or order
        taken = fresh[: n - len(chosen)]
        chosen += taken
        drawn |= {names[i] for i in taken}
    state["drawn"] = sorted(drawn)
    return chosen


def _is_solved(name: str, state: dict, solved: float) -> bool:
    scores = [s for s in state.get("scores", {}).get(name, ()) if not math.isnan(s)]
    return bool(scores) and scores[-1] >= solved
