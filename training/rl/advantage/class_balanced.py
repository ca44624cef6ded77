"""Group-relative advantage of a judge, with both classes of what it judges at the same weight, at one step in `every`.

"RL Tango: Reinforcing Generator and Verifier Together for Language Reasoning", 2025 (arXiv 2505.15034), the verifier's side:
most solutions are of one class (wrong ones early, right ones late), and a judge who always names that class is paid well.

    A_i = w_c(i) (r_i - mean(r)) / (std(r) + eps),     w_c = N / (2 N_c)

Shapes: one reward per rollout in, one advantage per rollout out. c is whether the part `label` of the score is above 0.5; N
and N_c count the scorable rollouts of the step, and w is 1 where one class has none. At steps other than the first of `every`
all advantages are 0, so that a policy whose objective is the policy loss alone is not updated: the judge learns at one step
while the judged learns at all. The weights and the interval are our reading.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from training.rl.advantage import relative
from training.rl.reward import part
from training.rl.standard import standard
from training.types import Advantages, Group, Rewards

READS = ("{label}",)

MIN_GROUP = 2


def class_balanced(
    groups: Sequence[Group],
    rewards: Rewards,
    state: dict,
    rng: np.random.Generator,
    *,
    label: str = "task",
    every: int = 1,
    eps: float = 1e-6,
) -> Advantages:
    """Raises ValueError for `every` below 1."""
    if every < 1:
        raise ValueError(f"class_balanced: every is {every}: it counts steps, so name 1 or more")
    step = state.get("step", 0)
    state["step"] = step + 1
    if step % every:
        return [np.zeros(len(r)) for r in rewards]
    classes = [part(g, r, label) > 0.5 for g, r in zip(groups, rewards, strict=True)]
    counted = np.concatenate([c[~np.isnan(r)] for c, r in zip(classes, rewards, strict=True)] or [np.zeros(0, bool)])
    n, positive = len(counted), int(counted.sum())
    weights = (n / (2 * (n - positive)), n / (2 * positive)) if 0 < positive < n else (1.0, 1.0)
    plain = relative(rewards, lambda r: standard(r, eps, ddof=1))
    return [a * np.where(c, weights[1], weights[0]) for a, c in zip(plain, classes, strict=True)]
