"""Filters of groups, one file each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from training.types import Group, Rewards


class FilterPiece(Protocol):
    """Decides which groups are trained on; dropped groups are replaced.

    Args:
        groups: the groups of one step, in order
        rewards: per group float64 [n], one per rollout; NaN where a rollout could not be scored
        state: a mapping of plain values and arrays that persists from step to step and is saved in checkpoints
        rng: the only source of randomness

    Returns:
        per group None (keep), or the reason why it is dropped as a code in lower case with underscores

    Check gives:
        rewards: per group a list of rewards; .nan is a rollout that could not be scored
        state: the piece's state before (empty)
        **rollouts: per group or rollout, the arguments of `groups` in tasks/lab/toy.py: lengths, entropies, parts,
            turns, steps, ...

    Check expects:
        verdicts: per group null (kept) or the reason
        state: the piece's state afterwards
    """

    def __call__(
        self, groups: Sequence[Group], rewards: Rewards, state: dict, rng: np.random.Generator
    ) -> list[str | None]: ...
