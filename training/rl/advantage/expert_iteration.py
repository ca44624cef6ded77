"""Imitate proved answers, but only those within a band of perplexity: neither known already nor lucky.

Xin et al. 2025, "Scaling up Multi-Turn Off-Policy RL and Multi-Agent Tree Search for LLM Step-Provers" (BFS-Prover-V2,
arXiv 2509.06493); expert iteration after Anthony et al. 2017 (arXiv 1705.08439).

    n_i = mean over the sampled tokens of -log pi,   over all rollouts of the step with r >= right
    A_i = 1 where quantile(n, low) <= n_i <= quantile(n, high), else 0

With the policy loss policy_gradient this is supervised fine-tuning on the kept rollouts. Shapes: one reward per rollout
in, one advantage per rollout out. The low tail is known already, the high tail is noise or brute force. There is no
baseline, so equal rewards keep their advantages.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from training.types import Advantages, Group, Rewards


def expert_iteration(
    groups: Sequence[Group],
    rewards: Rewards,
    state: dict,
    rng: np.random.Generator,
    *,
    right: float = 1.0,
    low: float = 0.2,
    high: float = 0.95,
) -> Advantages:
    if not 0 <= low < high <= 1:
        raise ValueError(f"expert_iteration: the band from {low} to {high} must lie within 0 and 1")
    costs = [
        [_cost(rollout) if x >= right else np.nan for rollout, x in zip(g.rollouts, r, strict=True)]
        for g, r in zip(groups, rewards, strict=True)
    ]
    proved = np.array([c for group in costs for c in group if not math.isnan(c)])
    if not len(proved):
        return [np.zeros(len(r)) for r in rewards]
    bounds = np.quantile(proved, [low, high])
    return [
        np.array([float(not math.isnan(c) and bounds[0] - 1e-12 <= c <= bounds[1] + 1e-12) for c in group])
        for group in costs
    ]


def _cost(rollout) -> float:
    """Mean negative log-prob of the tokens that the model wrote, in nats."""
    logp = np.concatenate([s.logp for s in rollout.segments if s.logp is not None])
    return float(-logp.mean()) if len(logp) else 0.0
