"""Orders of items as arrays of their places."""

from __future__ import annotations

import numpy as np


def inverse(order: np.ndarray, dtype: type = np.int64) -> np.ndarray:
    """[n] dtype, the place of each number in `order`, which holds 0 to n - 1: the rank of each item that was sorted."""
    place = np.empty(len(order), dtype)
    place[order] = np.arange(len(order), dtype=dtype)
    return place
