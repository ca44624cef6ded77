"""The return of a turn: the discounted rewards of turns from there on, and the outcome at the end.

Liu et al. 2025, "EPO: Explicit Policy Optimization for Strategic Reasoning in LLMs via Reinforcement Learning" (arXiv
2502.12486).

    G_it = process sum_{k >= t} gamma^(k - t) p_ik + outcome gamma^(T_i - t) r_i        A_it = (G_it - mean) / (std +
    eps) over all turns of the group

Shapes: one reward per rollout in, one advantage per token out, the same within a turn; p are the rewards of turns.
`length_norm` divides by the tokens of the turn, times their mean over the group, so that the weight of a turn does not
grow with its length. std is the population's. With equal rewards the advantages are nonzero if turns differ in position
or in their own rewards. With fewer than two scored rollouts the advantages are 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from training.rl.advantage import turns
from training.rl.standard import standard
from training.types import Advantages, Group, Rewards

READS = ("turn_reward",)

MIN_GROUP = 2


def discounted_turns(
    groups: Sequence[Group],
    rewards: Rewards,
    state: dict,
    rng: np.random.Generator,
    *,
    gamma: float = 0.9,
    process: float = 1.0,
    outcome: float = 1.0,
    length_norm: bool = True,
    eps: float = 1e-6,
) -> Advantages:
    advantages: list = []
    for group, r in zip(groups, rewards, strict=True):
        played = [turns(rollout) if not math.isnan(x) else [] for rollout, x in zip(group.rollouts, r, strict=True)]
        if sum(bool(p) for p in played) < 2:
            played = [[] for _ in played]
        returns = [_returns([y for _, y in p], x, gamma, process, outcome) for p, x in zip(played, r, strict=True)]
        lengths = [here.stop - here.start for p in played for here, _ in p]
        scaled = iter(standard(np.array([g for gs in returns for g in gs]), eps))
        advantages.append([np.zeros(rollout.n_model) for rollout in group.rollouts])
        for out, p in zip(advantages[-1], played, strict=True):
            for here, _ in p:
                n = here.stop - here.start
                out[here] = next(scaled) * (float(np.mean(lengths)) / n if length_norm and n else 1.0)
    return advantages


def _returns(p: Sequence[float], final: float, gamma: float, process: float, outcome: float) -> list[float]:
    """G of each turn; the outcome is added at the last turn."""
    out, later = [], outcome * final
    for t, x in enumerate(reversed(p)):
        later = process * x + (gamma * later if t else later)
        out.append(later)
    return out[::-1]
