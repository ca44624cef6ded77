"""A right answer is worth more the better what was said before it is supported and the more it explains the answer.

"ReWatch-R1: Boosting Complex Video Reasoning in Large Vision-Language Models through Agentic Data Synthesis" 2025 (arXiv
2509.23652), read from the abstract: the product and its weights are our reading.

    R = accuracy * (1 + observation * x_supported + reasoning * x_sufficient) + format * x_answered

Shapes: one reward per rollout in (the accuracy) and out; unscorable stays NaN. x are parts of the scores, as the environment
rewatch gives them. A wrong answer earns its form alone, however true what was seen; a right one with a statement that the
clip does not show earns less than one whose statements all hold.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from training.rl.reward import part
from training.types import Group, Rewards

READS = ("supported", "sufficient", "answered")


def supported(
    groups: Sequence[Group],
    rewards: Rewards,
    state: dict,
    rng: np.random.Generator,
    *,
    observation: float = 0.3,
    reasoning: float = 0.3,
    format: float = 0.1,
) -> Rewards:
    """observation, reasoning, format: weights of the three."""
    out = []
    for group, r in zip(groups, rewards, strict=True):
        more = observation * part(group, r, "supported") + reasoning * part(group, r, "sufficient")
        out.append(np.where(np.isnan(r), np.nan, r * (1 + more) + format * part(group, r, "answered")))
    return out
