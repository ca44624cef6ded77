"""Two modes of answering, with or without reasoning: the advantage of the choice compares the modes' means, that of the
answer compares it within its mode.

"HiPO: Hybrid Policy Optimization for Dynamic Reasoning in LLMs", 2025 (arXiv 2509.23967); the advantages are our
reading.

    m_on, m_off = mean rewards of each mode;      if 0 <= m_on - m_off <= omega m_on, then m_off counts as m_on
    choice tokens   (m of its mode - mean of all) / std of all + gamma (r_i - m of its mode)
    answer tokens   (r_i - mean of its mode) / std of its mode

Shapes: one reward per rollout in; per token out: the first `choice_tokens` are the choice. A rollout reasons if the
part `think` of its score is 1. omega prevents the longer mode from winning by a tiny margin. Deviations are the
population's, plus 1e-6.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from training.rl.reward import part
from training.rl.standard import standard
from training.types import Advantages, Group, Rewards

READS = ("{mode}",)

MIN_GROUP = 2


def hybrid_mode(
    groups: Sequence[Group],
    rewards: Rewards,
    state: dict,
    rng: np.random.Generator,
    *,
    omega: float = 0.1,
    gamma: float = 0.3,
    choice_tokens: int = 1,
    mode: str = "think",
) -> Advantages:
    advantages: list = []
    for group, r in zip(groups, rewards, strict=True):
        ok = ~np.isnan(r)
        on = part(group, r, mode) > 0.5
        answer, choice = np.zeros(len(r)), np.zeros(len(r))
        if ok.sum() > 1 and r[ok].min() < r[ok].max():
            means = {}
            for way in (True, False):
                here = ok & (on == way)
                if here.any():
                    answer[here], means[way] = standard(r[here]), r[here].mean()
            if len(means) == 2 and 0 <= means[True] - means[False] <= omega * means[True]:
                means[False] = means[True]
            of_way = np.array([means.get(bool(way), 0.0) for way in on])
            choice[ok] = ((of_way - r[ok].mean()) / (r[ok].std() + 1e-6) + gamma * (r - of_way))[ok]
        advantages.append([])
        for rollout, a, c in zip(group.rollouts, answer, choice, strict=True):
            out = np.full(rollout.n_model, a)
            out[:choice_tokens] = c
            advantages[-1].append(out)
    return advantages
