"""How much the best policy changes when the reward changes a little: the policy cliff, and how entropy softens it.

"The Policy Cliff: A Theoretical Analysis of Reward-Policy Maps in Large Language Models" (2025).

    greedy(r)  uniform over the actions with the largest reward
    softmax(r) softmax(r)_i = exp(r_i / tau) / sum_j exp(r_j / tau)
    tv         mean over problems of max over actions i of TV(softmax(r), softmax(r + eps e_i)),   TV = 1/2 sum |p - q|
    tv_greedy  the same for greedy: it jumps if two actions tie, however small eps is
    ties       share of problems whose two best actions lie within `tolerance`

Input: per problem the rewards of its different answers (the scores). softmax is Lipschitz: tv <= eps / (2 tau) whatever
the rewards are, and eps / (4 tau) for two tied actions to first order. Leaves out joint perturbations of several
rewards, and retraining a model: this solves the one-step policy exactly.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from training.metrics import Metric, interval, scorable


def reward_stability(
    scored: Sequence[Sequence[float]],
    *,
    tau: float = 1.0,
    eps: float = 0.01,
    tolerance: float = 0.001,
    level: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> dict[str, Metric]:
    rewards = [x for x in map(scorable, scored) if len(x)]
    more = {"level": level, "resamples": resamples, "seed": seed, "shares": True}
    best = [np.sort(r)[::-1] for r in rewards]
    return {
        "tv": interval([_moved(r, eps, lambda x: _softmax(x / tau)) for r in rewards], **more),
        "tv_greedy": interval([_moved(r, eps, _greedy) for r in rewards], **more),
        "ties": interval([float(len(b) > 1 and b[0] - b[1] <= tolerance) for b in best], **more),
    }


def _moved(rewards: np.ndarray, eps: float, policy) -> float:
    before = policy(rewards)
    return max(0.5 * float(np.abs(policy(rewards + eps * step) - before).sum()) for step in np.eye(len(rewards)))


def _softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max())
    return e / e.sum()


def _greedy(x: np.ndarray) -> np.ndarray:
    top = x == x.max()
    return top / top.sum()
