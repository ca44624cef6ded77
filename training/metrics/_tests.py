"""Tests of a difference on the same problems, and the correction for multiple tests.

sign_flip   share of all ways to flip the signs of n differences whose mean is at least as far from 0 as the one seen
            (Fisher 1935; Pitman 1937), exact up to n = 12, else of `draws` random ones, the one seen counted among them
holm        p_(i) adjusted = max over j <= i of min(1, (m - j + 1) p_(j)) in rising order (Holm 1979): the probability
            of any false claim among m stays below the level, under any dependence
wilson      interval of a share k / n; it stays within 0 and 1 without collapsing there (Wilson 1927)
exact       Clopper and Pearson 1934, for the two extremes that occur in practice: none of n, and all of n
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from statistics import NormalDist

import numpy as np


def sign_flip(differences: Sequence[float], *, draws: int = 9999, seed: int = 0) -> float:
    """Two-sided p-value of the mean of `differences` (NaN left out); 1 if there are none, or all are 0."""
    d = np.asarray(differences, dtype=np.float64)
    d = d[~np.isnan(d)]
    d = d[d != 0]
    if not len(d):
        return 1.0
    seen = abs(d.sum()) * (1 - 1e-12)
    if len(d) <= 12:
        signs = np.array(list(product((-1.0, 1.0), repeat=len(d))))
        return float((np.abs(signs @ d) >= seen).mean())
    rng = np.random.default_rng(seed)
    far = sum(int((np.abs(rng.choice((-1.0, 1.0), (part, len(d))) @ d) >= seen).sum()) for part in _parts(draws, 1000))
    return (far + 1) / (draws + 1)


def _parts(n: int, size: int) -> list[int]:
    return [min(size, n - lo) for lo in range(0, n, size)]


def holm(p: Sequence[float]) -> list[float]:
    """Adjusted p-values, in the order given."""
    out, worst = [0.0] * len(p), 0.0
    for rank, i in enumerate(sorted(range(len(p)), key=lambda i: p[i])):
        worst = max(worst, min(1.0, (len(p) - rank) * p[i]))
        out[i] = worst
    return out


def wilson(k: int, n: int, *, level: float = 0.95) -> tuple[float, float]:
    """(low, high) of the share k / n; (0, 1) where n is 0."""
    if not n:
        return 0.0, 1.0
    z, p = NormalDist().inv_cdf((1 + level) / 2), k / n
    centre, half = p + z * z / (2 * n), z * (p * (1 - p) / n + z * z / (4 * n * n)) ** 0.5
    below = 1 + z * z / n
    return (0.0 if k == 0 else (centre - half) / below), (1.0 if k == n else (centre + half) / below)


def exact(n: int, *, all_right: bool, level: float = 0.95) -> tuple[float, float]:
    """(low, high) of a share when none, or all, of n were observed: (0, 1 - ((1 - level) / 2)^(1/n)) or its mirror
    image."""
    edge = ((1 - level) / 2) ** (1 / n)
    return (edge, 1.0) if all_right else (0.0, 1 - edge)
