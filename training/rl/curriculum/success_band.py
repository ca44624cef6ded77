"""Favours problems that are solved about half of the time.

Foster et al. 2025, "Learning to Reason at the Frontier of Learnability" (arXiv 2502.12272); Rutherford et al. 2024, "No
Regrets: Investigating and Improving Regret Approximations for Curriculum Discovery" (arXiv 2408.15099).

    p = (1 + sum of the last `window` mean scores) / (2 + their number)        (a problem never seen has p = 1/2)
    probability of a problem ~ floor + p (1 - p)

p(1 - p) is the variance of a right/wrong score, and so measures how much a group of rollouts can teach. `floor` gives
every problem a chance, so that a forgotten one is noticed. Returns n distinct indices (repeated only when n exceeds the
number of problems). Reads state["scores"][problem id], a list of past mean scores; writes nothing. Assumes scores in
[0, 1].
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from synth.types import Problem


def success_band(
    problems: Sequence[Problem], state: dict, rng: np.random.Generator, n: int, *, floor: float = 0.02, window: int = 4
) -> list[int]:
    if not problems:
        raise ValueError(
            "the curriculum was given no problem to choose from: check the split and the filters of the stage before"
        )
    weights = np.empty(len(problems))
    for i, problem in enumerate(problems):
        scores = [s for s in state.get("scores", {}).get(problem.id, ())[-window:] if not math.isnan(s)]
        p = (1 + sum(scores)) / (2 + len(scores))
        weights[i] = floor + p * (1 - p)
    return [int(i) for i in rng.choice(len(problems), size=n, replace=n > len(problems), p=weights / weights.sum())]
