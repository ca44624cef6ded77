"""Rewards a generator with the classifier's loss on its text: the cross entropy of the true label.

Deng et al. 2025, "DuoGuard: A Two-Player RL-Driven Framework for Multilingual LLM Guardrails" (arXiv 2502.05163): the
generator's payoff is the loss of the classifier that learns against it.

    r <- -log(max(p, floor)),   p = the probability that the classifier gives the true label, a part of the score

If `filtered` is set and the part `keeps_label` of the score is 0 (a judge says that the text no longer has the label),
r is 0: a generator must not be rewarded for changing the truth. Shapes: one reward per rollout in and out; unscorable
stays NaN.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from training.rl.reward import part
from training.types import Group, Rewards

READS = ("{probability}",)


def surprise(
    groups: Sequence[Group],
    rewards: Rewards,
    state: dict,
    rng: np.random.Generator,
    *,
    probability: str = "probability",
    floor: float = 1e-4,
    filtered: bool = False,
) -> Rewards:
    out = []
    for group, r in zip(groups, rewards, strict=True):
        paid = -np.log(np.maximum(part(group, r, probability), floor))
        if filtered:
            paid = np.where(part(group, r, "keeps_label") > 0, paid, 0.0)
        out.append(np.where(np.isnan(r), np.nan, paid))
    return out
