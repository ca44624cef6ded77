"""The share of wrong labels, with an interval, and whether it is identifiable.

With anchors (labels proven right or wrong) the rate among them, with Wilson's interval (1927): it holds for all labels
if the anchors were drawn at random. Without, the confident joint of the out-of-fold probabilities
(`confident_learning`), with a bootstrap interval over whole groups of siblings: that interval covers the sampling error
alone. Swapping all labels and the truth leaves every label-only estimate the same: without an anchor the rate is not
identifiable, and the estimate assumes that most labels are right.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from synth.preferences.cleaners._ranks import dense, ranks
from synth.preferences.cleaners.confident_learning import noise_rate_of_pairs

UNKNOWN = "no anchors: not identifiable; the estimate believes that most labels are right and sees only what the features can see"


def estimate(
    right: np.ndarray,
    groups: Sequence[str] | np.ndarray,
    anchors: np.ndarray,
    *,
    proven: int = 0,
    least: int = 10,
    seed: int = 0,
    draws: int = 200,
) -> dict[str, Any]:
    """{"rate", "low", "high", "method", "anchors", "identifiable", "note"} of n labels.

    right [n]: out-of-fold probability that the label is right; groups [n]: siblings, drawn together, by name or
    by the place of the name among all; anchors [n]: 1, -1
    or 0 (unknown). proven: how many labels are proven wrong in all, those included that a cleaner picked out, which are
    no anchors: the estimate of the confident joint is at least that.
    """
    n, wrong = int((anchors != 0).sum()), int((anchors < 0).sum())
    known: dict[str, Any] = {"anchors": n, "identifiable": n >= least}
    if n >= least:
        low, high = wilson(wrong, n)
        return known | {"rate": wrong / n, "low": low, "high": high, "method": "anchors", "note": ""}
    index = dense(groups) if isinstance(groups, np.ndarray) else ranks(groups)
    narrow = np.int32 if len(right) < 2**31 else np.int64  # half the memory of what is drawn below
    order = np.argsort(index, kind="stable").astype(narrow)
    size = np.bincount(index).astype(narrow)
    del index
    begin = np.cumsum(size, dtype=narrow) - size

    def members(drawn: np.ndarray) -> np.ndarray:
        """The rows of groups, one group after the other."""
        many = size[drawn]
        at = np.repeat(begin[drawn] - np.cumsum(many, dtype=narrow) + many, many)
        at += np.arange(len(at), dtype=narrow)
        return order[at]

    rng = np.random.default_rng(seed)
    rates = [noise_rate_of_pairs(right[members(rng.integers(0, len(size), len(size)))]) for _ in range(draws)]
    low, high = (float(np.quantile(rates, q)) for q in (0.025, 0.975))
    note = UNKNOWN if n == 0 else f"{n} anchors are fewer than {least}: {UNKNOWN.partition(': ')[2]}"
    rate, floor = noise_rate_of_pairs(right), proven / len(right)
    if floor > low:
        note = f"{proven} of {len(right)} labels are proven wrong, and the estimate is raised to that where it was lower; {note}"
    return known | {
        "rate": max(rate, floor),
        "low": max(low, floor),
        "high": max(high, floor),
        "method": "confident joint",
        "note": note,
    }


def wilson(k: int, n: int, z: float = 1.959964) -> tuple[float, float]:
    """The 95 % interval of a share k / n."""
    centre, spread = (k + z * z / 2) / (n + z * z), z / (n + z * z) * math.sqrt(k * (n - k) / n + z * z / 4)
    return max(0.0, centre - spread), min(1.0, centre + spread)
