"""Pays a rating for being near the reference, and for the order in which it puts the step's other items.

"Unlocking the Essence of Beauty: Advanced Aesthetic Reasoning with Relative-Absolute Policy Optimization", 2025 (Aes-R1,
RAPO; arXiv 2509.21871), read from the abstract, so both forms are our reading; the order is paid by the fidelity of
Thurstone's model.

    absolute    exp(-(s - y)^2 / (2 sigma^2))
    relative    mean over the other items j of sqrt(p g) + sqrt((1 - p)(1 - g)),
                p = Phi((s - mean_j) / sqrt(var_i + var_j + eps)),   g = 1, 0.5, 0 as y is above, equal to, below y_j
    R           lambda_absolute absolute + lambda_relative relative + lambda_form, 0 for a turn without a number

s and y are the parts `rating` and `wanted` (the verifier `rating`), mean_j and var_j the mean and the variance of item
j's ratings, var_i those of its own. Items are the groups of a step; one alone has relative 0.5. Shapes: one reward per
rollout in (replaced) and out; unscorable stays NaN.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from training.rl.reward import part
from training.types import Group, Rewards

READS = ("rating", "wanted", "rated")
EPS = 1e-6


def relative_absolute(
    groups: Sequence[Group],
    rewards: Rewards,
    state: dict,
    rng: np.random.Generator,
    *,
    lambda_absolute: float = 1.0,
    lambda_relative: float = 1.0,
    lambda_form: float = 0.1,
    sigma: float = 0.5,
) -> Rewards:
    if sigma <= 0:
        raise ValueError(f"relative_absolute: sigma is {sigma}: it is a width, above 0")
    rated = [part(g, r, "rated") > 0 for g, r in zip(groups, rewards, strict=True)]
    ratings = [part(g, r, "rating") for g, r in zip(groups, rewards, strict=True)]
    wanted = [part(g, r, "wanted")[ok] for g, r, ok in zip(groups, rewards, rated, strict=True)]
    items = [
        (s[ok].mean(), s[ok].var(), y[0]) if ok.any() else None for s, ok, y in zip(ratings, rated, wanted, strict=True)
    ]
    out = []
    for i, (s, r, item) in enumerate(zip(ratings, rewards, items, strict=True)):
        if item is None:
            out.append(np.where(np.isnan(r), np.nan, 0.0))
            continue
        _, spread, y = item
        others = [other for j, other in enumerate(items) if j != i and other is not None]
        orders = [_fidelity(s, mean, spread + var, float(np.sign(y - theirs))) for mean, var, theirs in others]
        relative = np.mean(orders, axis=0) if orders else np.full(len(s), 0.5)
        absolute = np.exp(-((s - y) ** 2) / (2 * sigma**2))
        total = lambda_absolute * absolute + lambda_relative * relative + lambda_form
        out.append(np.where(np.isnan(r), np.nan, np.where(rated[i], total, 0.0)))
    return out


def _fidelity(s: np.ndarray, mean: float, spread: float, above: float) -> np.ndarray:
    z = (np.nan_to_num(s) - mean) / math.sqrt(spread + EPS)
    p, g = np.array([0.5 * (1 + math.erf(x / math.sqrt(2))) for x in z]), 0.5 * (1 + above)
    return np.sqrt(p * g) + np.sqrt((1 - p) * (1 - g))
