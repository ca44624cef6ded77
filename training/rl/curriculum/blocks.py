"""From easy to hard in blocks; each block is sorted by the scores known when it begins.

"Learning Like Humans: Advancing LLM Reasoning Capabilities via Adaptive Difficulty Curriculum Learning and
Expert-Guided Self-Reformulation", 2025 (ADCL, arXiv 2505.08364).

    difficulty = 1 - mean of a problem's past scores (1/2 where never seen); the order is cut into `count` blocks
    when a block is used up, the remaining problems are sorted again and the next block is their easiest part

Returns n indices; `state` holds the order of the block, the cursor, and the rest of the epoch. Every problem comes
once per epoch, in random order within equal difficulty. Leaves out extra rollouts that estimate the difficulty of the
next block.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from synth.types import Problem


def blocks(
    problems: Sequence[Problem], state: dict, rng: np.random.Generator, n: int, *, count: int = 4, window: int = 4
) -> list[int]:
    if not problems:
        raise ValueError(
            "the curriculum was given no problem to choose from: check the split and the filters of the stage before"
        )
    if count < 1:
        raise ValueError(f"blocks: count is {count}; the problems are cut into that many blocks, at least 1")
    chosen: list[int] = []
    while len(chosen) < n:
        if not state.get("block") or state.get("problems") != len(problems):
            if not state.get("left") or state.get("problems") != len(problems):
                state["left"] = [int(i) for i in rng.permutation(len(problems))]
            state["problems"] = len(problems)
            hard = np.array([1 - _mean(state, p.id, window) for p in problems])
            order = [state["left"][j] for j in np.argsort(hard[state["left"]], kind="stable")]
            size = -(-len(problems) // count)
            state["block"], state["left"] = order[:size], order[size:]
        taken = state["block"][: n - len(chosen)]
        state["block"] = state["block"][len(taken) :]
        chosen += taken
    return chosen


def _mean(state: dict, name: str, window: int) -> float:
    scores = [s for s in state.get("scores", {}).get(name, ())[-window:] if not math.isnan(s)]
    return sum(scores) / len(scores) if scores else 0.5
