"""Standardised numbers, for advantages and rewards."""

import numpy as np


def standard(x: np.ndarray, eps: float = 1e-6, ddof: int = 0) -> np.ndarray:
    """[n] minus the mean, divided by the standard deviation, the population's (ddof 0) or the sample's (1); exactly 0
    if all are equal, or for a single value."""
    return np.zeros(len(x)) if len(x) < 2 or x.min() == x.max() else (x - x.mean()) / (x.std(ddof=ddof) + eps)
