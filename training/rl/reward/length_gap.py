"""A right answer scores less the more its length differs from the reference's; a missing answer is penalised.

Ma et al. 2025, "General-Reasoner: Advancing LLM Reasoning Across All Domains" (arXiv 2505.14652).

    R = missing                                          where there is no answer (part "answered" is 0)
    R = r - coef min(cap, | |answer| - |reference| |)     if r > 1/2, else r

Shapes: one reward per rollout in and out; unscorable stays NaN. Lengths are words of the answer and of the problem's
reference; the paper counts tokens. (Long padded answers fool a model-based verifier.)
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from synth.verify import extract_answer
from training.rl.reward import part
from training.types import Group, Rewards

READS = ("answered",)


def length_gap(
    groups: Sequence[Group],
    rewards: Rewards,
    state: dict,
    rng: np.random.Generator,
    *,
    missing: float = -0.5,
    coef: float = 0.05,
    cap: int = 10,
) -> Rewards:
    out = []
    for group, r in zip(groups, rewards, strict=True):
        words = np.array(
            [len((extract_answer(x.text) or "").split()) - len(x.problem.answer.split()) for x in group.rollouts]
        )
        right = np.nan_to_num(r) > 0.5
        shaped = np.where(right, r - coef * np.minimum(cap, np.abs(words)), r)
        out.append(np.where(np.isnan(r), np.nan, np.where(part(group, r, "answered") > 0, shaped, missing)))
    return out
