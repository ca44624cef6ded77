"""Separate advantages for thoughts and answers: several answers are drawn for each thought, and the value of a thought
is the mean of its answers.

"GRPO-MA: Multi-Answer Generation in GRPO for Stable and Efficient Chain-of-Thought Training", 2025 (arXiv 2509.24494).

    V_i = mean_j r_ij                  A(thought i) = (V_i - mean V) / (std V + eps)          A(answer ij) = (r_ij -
    mean r) / (std r + eps)

Shapes: one reward per rollout in; per token out: thought tokens have A(thought), answer tokens A(answer). The group
transform `branches` makes the groups: info["branch"] names the thought, info["thought_tokens"] says how many tokens at
the start of a rollout belong to the thought (0 in rollouts that continue one). Without it each rollout is a separate
thought and all its tokens are answer. std is the population's.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from training.rl.standard import standard
from training.types import Advantages, Group, Rewards

MIN_GROUP = 2


def multi_answer(
    groups: Sequence[Group], rewards: Rewards, state: dict, rng: np.random.Generator, *, eps: float = 1e-6
) -> Advantages:
    advantages: list = []
    for group, r in zip(groups, rewards, strict=True):
        ok = ~np.isnan(r)
        thought = np.array([rollout.info.get("branch", i) for i, rollout in enumerate(group.rollouts)])
        answers = np.zeros(len(r))
        answers[ok] = standard(r[ok], eps)
        names = [b for b in dict.fromkeys(thought.tolist()) if ok[thought == b].any()]
        of_thought = dict(
            zip(names, standard(np.array([r[ok & (thought == b)].mean() for b in names]), eps), strict=True)
        )
        advantages.append([])
        for i, rollout in enumerate(group.rollouts):
            out = np.full(rollout.n_model, answers[i])
            if ok[i]:
                out[: rollout.info.get("thought_tokens", 0)] = of_thought[int(thought[i])]
            advantages[-1].append(out)
    return advantages
