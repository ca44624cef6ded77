"""Rules in order, each paid only where all before it hold: the form, an answer that can be read, the right answer.

Recon, Zhou et al. 2025, "Reasoning Like an Economist: Post-Training on Economic Problems Induces Strategic Generalization in LLMs"
(arXiv 2506.00577; read from the abstract).

    R = 0                                   where the last turn is not <think>...</think><answer>...</answer>
    R = form                                where it is, and the verifier cannot read the answer (part `parsed`)
    R = form + extract                      where it can, and the answer is wrong
    R = form + extract + correct * value    else

Shapes: one reward per rollout in (the value of the score) and out (replaced); unscorable stays NaN.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from training.rl.reward import part
from training.rl.reward.translation_quality import FORM
from training.rl.reward.typed_units import last_turn
from training.types import Group, Rewards


def rule_ladder(
    groups: Sequence[Group],
    rewards: Rewards,
    state: dict,
    rng: np.random.Generator,
    *,
    form: float = 0.5,
    extract: float = 0.5,
    correct: float = 2.0,
) -> Rewards:
    out = []
    for group, r in zip(groups, rewards, strict=True):
        formed = np.array([FORM.fullmatch(last_turn(x)) is not None for x in group.rollouts], dtype=bool)
        read = np.nan_to_num(part(group, r, "parsed")) > 0
        paid = np.where(formed, form + np.where(read, extract + correct * np.nan_to_num(r), 0.0), 0.0)
        out.append(np.where(np.isnan(r), np.nan, paid))
    return out
