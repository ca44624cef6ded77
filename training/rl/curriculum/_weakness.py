"""Finds weak skills: never mastered, and not improving (SwS, Liang et al. 2025, arXiv 2506.08989)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np


def weak(
    history: Sequence[float], *, ceiling: float = 0.5, slope: float = 0.0, windows: int = 3, errors: float = 0.0
) -> bool:
    """Whether the largest of a skill's mean scores is below `ceiling` and the least-squares slope over windows is at
    most `slope`.

    errors: how many standard errors the slope may lie above it (0 is the paper's rule, which calls a flat skill weak
    half of the time). A skill with fewer than `windows` scores is not called weak.
    """
    y = np.asarray([h for h in history if not math.isnan(h)], dtype=np.float64)
    if len(y) < windows or y.max() >= ceiling:
        return False
    x = np.arange(len(y)) - (len(y) - 1) / 2
    fitted = float(x @ y / (x @ x))
    rest = y - y.mean() - fitted * x
    error = float(np.sqrt(rest @ rest / max(1, len(y) - 2) / (x @ x)))
    return fitted <= slope + errors * error + 1e-12
