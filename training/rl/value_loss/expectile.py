"""Expectile regression of the critic's values: above 1/2 they lean towards the better outcomes.

Kostrikov et al. 2021, "Offline Reinforcement Learning with Implicit Q-Learning" (arXiv 2110.06169); for dialogues Hong
et al. 2023, "Zero-Shot Goal-Directed Dialogue via RL on Imagined Conversations" (arXiv 2311.05584).

    value_t = |tau - [R_t < V_t]| (V_t - R_t)^2

Shapes: value and columns["returns"] [T] in, values [T] out, exactly 0 where not trainable or not finite. tau 1/2 is
half the squared error; towards 1 the value of a state approaches that of its best continuation in the data, and no
action outside the data is ever evaluated. R_t is the observed (Monte Carlo) return, where ILQL uses a Q head with a
slow target.
"""

from __future__ import annotations

import torch
from torch import Tensor

from training.learner.reduction import Aggregate, live, weigh
from training.types import Batch, Terms


def expectile(
    value: Tensor, batch: Batch, *, tau: float = 0.7, aggregate: Aggregate = "tokens", max_length: int = 128
) -> Terms:
    if not 0 < tau < 1:
        raise ValueError(f"the expectile of a critic is {tau}: it must lie between 0 and 1 (0.5 is the mean)")
    missed = value - batch.columns["returns"]
    loss = torch.where(missed > 0, 1 - tau, tau) * missed.square()
    values, denominator = weigh(live(loss, batch), batch, aggregate, max_length)
    return Terms(values=values, denominator=denominator)
