"""A bonus for each action, paid only where the final answer is right, so that actions are not farmed.

"FrameThinker: Learning to Think with Long Videos via Multi-Turn Frame Spotlighting" 2025 (arXiv 2509.24304), read from the
abstract, and "FrameMind" 2025 (arXiv 2509.24008); the constants are our reading.

    R = accuracy + format * x_format + bonus * min(x_action, cap) * [accuracy > 0]        R = 0 where the part `gate` is 0

Shapes: one reward per rollout in (the accuracy) and out; unscorable stays NaN. x_format and x_action are parts of the scores.
With `conditional` off the bonus is paid for any answer, which the paper found to be farmed. An empty `gate` closes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from training.rl.reward import part
from training.types import Group, Rewards

READS = ("{action}", "{form}", "{gate}")


def conditional_bonus(
    groups: Sequence[Group],
    rewards: Rewards,
    state: dict,
    rng: np.random.Generator,
    *,
    action: str = "calls",
    bonus: float = 0.1,
    cap: float = 3.0,
    form: str = "answered",
    format: float = 0.1,
    gate: str = "sound",
    conditional: bool = True,
) -> Rewards:
    out = []
    for group, r in zip(groups, rewards, strict=True):
        paid = bonus * np.minimum(part(group, r, action), cap)
        if conditional:
            paid = np.where(r > 0, paid, 0.0)
        total = r + paid + (format * part(group, r, form) if form else 0.0)
        out.append(np.where(np.isnan(r), np.nan, np.where(part(group, r, gate) > 0, total, 0.0) if gate else total))
    return out
