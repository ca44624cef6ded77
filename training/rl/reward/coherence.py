"""Combines correctness and the influence of the reasoning on the answer by a power mean.

"Causally-Enhanced Reinforcement Policy Optimization", 2025 (CE-PO, arXiv 2509.23095); read from the abstract.

    c = zx + xy - zy,    C = (c - min c) / (max c - min c) within the group (1/2 if all are equal)
    R = ( w a^p + (1 - w) C^p )^(1/p),   a = the score within [0, 1];     p 1: the mean, p -> -inf: the smaller, p 0:
    a^w C^(1-w)

Shapes: one reward per rollout in and out; unscorable stays NaN. zx, xy, zy are parts "influence_zx" (of the prompt on
the rationale), "influence_xy" (of the rationale on the answer), "influence_zy" (of the prompt directly on the answer:
the shortcut), which the group transform `influences` measures; absent parts are 0. `eps` keeps powers below 0 finite: a
and C are at least eps.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from training.rl.reward import part
from training.types import Group, Rewards

READS = ("influence_zx", "influence_xy", "influence_zy")


def coherence(
    groups: Sequence[Group],
    rewards: Rewards,
    state: dict,
    rng: np.random.Generator,
    *,
    p: float = 1.0,
    w: float = 0.5,
    eps: float = 1e-3,
) -> Rewards:
    if not 0 <= w <= 1:
        raise ValueError(f"coherence: w is {w}; it is the weight of being right, between 0 and 1")
    out = []
    for group, r in zip(groups, rewards, strict=True):
        zx, xy, zy = (part(group, r, f"influence_{name}") for name in ("zx", "xy", "zy"))
        c, ok = zx + xy - zy, ~np.isnan(r)
        spread = np.ptp(c[ok]) if ok.any() else 0.0
        held = np.clip((c - c[ok].min()) / spread, 0.0, 1.0) if spread > 0 else np.full(len(r), 0.5)
        out.append(
            np.where(ok, power_mean(np.clip(np.nan_to_num(r), 0.0, 1.0), np.nan_to_num(held), p, w, eps), np.nan)
        )
    return out


def power_mean(a: np.ndarray, c: np.ndarray, p: float, w: float, eps: float) -> np.ndarray:
    """The weighted power mean [n] of a and c within [0, 1]."""
    if p > 0:
        return (w * a**p + (1 - w) * c**p) ** (1 / p)
    a, c = np.maximum(a, eps), np.maximum(c, eps)
    if p == 0:
        return a**w * c ** (1 - w)
    if np.isinf(p):
        return np.minimum(a, c)
    least = np.minimum(a, c)  # powers of small numbers overflow, so divide by the smaller one
    return least * (w * (a / least) ** p + (1 - w) * (c / least) ** p) ** (1 / p)
