"""A small cost per token: of two right answers that the policy sampled, the shorter one is better.

Dong et al. 2024, "RLHF Workflow: From Reward Modeling to Online RLHF" (arXiv 2405.07863).

    worth = score - per_token * (tokens that the model wrote)

Applies to pairs that are sampled while the policy learns (`rounds: [{pairs: sampled}]`), not the cleaned ones.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from synth.types import Problem
from training.preference.update_rule import UpdateRule, Worth
from training.rollout.play import Player
from training.types import Rollout


class length_penalty(UpdateRule):
    def __init__(self, *, per_token: float = 0.001) -> None:
        self.per_token = per_token

    def asked(
        self, problems: Sequence[Problem], rng: np.random.Generator, player: Player
    ) -> list[tuple[Problem, Worth]]:
        return [(p, self._worth) for p in problems]

    def _worth(self, value: float, rollout: Rollout) -> float:
        return value - self.per_token * rollout.n_model
