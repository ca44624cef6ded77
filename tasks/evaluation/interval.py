"""The interval of a mean over seeds."""

from __future__ import annotations

import math

import numpy as np


def half_width(values: np.ndarray, level: float = 0.95) -> np.ndarray:
    """[seeds, ...], two seeds or more -> [...]: half of Student's two-sided interval of the mean."""
    from scipy.special import stdtrit

    n = len(values)
    return stdtrit(n - 1, (1 + level) / 2) * values.std(0, ddof=1) / math.sqrt(n)
