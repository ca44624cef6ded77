"""Curricula choose which problems come next, one file each.

Problems may lie on disk (tasks/storage/problems.py). One that looks at all of them goes through them, `for p in problems`, and asks
for id, family and difficulty, which are in memory; `problems[i]` reads one from the file.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from synth.types import Problem


class CurriculumPiece(Protocol):
    """Chooses the problems of the next step.

    Args:
        problems: all problems of the training split
        state: persists from step to step; `state["scores"]` maps a problem's id to its past mean scores (NaN: none
            could be scored)
        rng: the only source of randomness
        n: how many problems are wanted

    Returns:
        n indices into `problems`, without repetition as long as there are enough. Raises ValueError if there is no
            problem

    Check gives:
        families: the family of each problem
        difficulty: per problem its axes of difficulty, {axis: value} (none)
        scores: per problem its past mean scores (none)
        state: the rest of the piece's state before (empty)
        n: problems of each draw
        draws: how many draws (1)

    Check expects:
        shares: the share of each family among the drawn problems
        state: the piece's state afterwards
    """

    def __call__(self, problems: Sequence[Problem], state: dict, rng: np.random.Generator, n: int) -> list[int]: ...
