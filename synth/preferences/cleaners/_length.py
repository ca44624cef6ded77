"""Do labels follow length and style? Numbers for a report, and the features to which a model can be made blind.

    longer wins   share of pairs whose chosen side is the longer one, by decile of |difference|; 1/2 where length tells
                  nothing
    correlation   of sign(longer) and |difference|-rank with the label, as Somers' D: 2 * (share - 1/2)
    within        the same share inside bins of the difference, after `length_balance` near 1/2 in each

After "A Long Way to Go: Investigating Length Correlations in RLHF" (arXiv:2310.03716, 2023).
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from operator import sub
from typing import Any

import numpy as np

from synth.preferences.cleaners._noise import wilson

MARKS = {"list items": "\n- ", "headings": "\n#", "bold": "**", "exclamation marks": "!", "code": "```"}


def style(text: str) -> dict[str, int]:
    """Counts of marks that make an answer look better than it is."""
    return {name: text.count(mark) for name, mark in MARKS.items()}


def longer_wins(difference: np.ndarray, *, bins: int = 10) -> dict[str, Any]:
    """difference [n]: length of chosen minus that of rejected, in any unit. Pairs of equal length are not counted.

    {"n", "share", "low", "high", "by_size": [{"from", "to", "n", "share", "low", "high"}]}, with Wilson's interval;
    share None for n = 0.
    """
    unequal = difference[difference != 0]
    size = np.abs(unequal)
    edges = np.unique(np.quantile(size, np.linspace(0, 1, bins + 1))) if len(size) else np.zeros(1)
    index = np.clip(np.searchsorted(edges, size, side="left") - 1, 0, max(len(edges) - 2, 0))
    rows = [
        {"from": float(edges[k]), "to": float(edges[min(k + 1, len(edges) - 1)]), **_share(unequal[index == k] > 0)}
        for k in range(max(len(edges) - 1, 1 if len(size) else 0))
    ]
    return _share(unequal > 0) | {"by_size": [r for r in rows if r["n"]]}


def _share(wins: np.ndarray) -> dict[str, Any]:
    n, k = len(wins), int(wins.sum())
    low, high = wilson(k, n) if n else (None, None)
    return {"n": n, "share": k / n if n else None, "low": low, "high": high}


def report(sides: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """{"characters": longer_wins, "list items": ..., ...} of (chosen, rejected) answers as texts."""
    told = array("i")
    for chosen, rejected in sides:
        told.append(len(chosen) - len(rejected))
        told.extend(map(sub, style(chosen).values(), style(rejected).values()))
    table = np.frombuffer(told, np.int32).reshape(-1, 1 + len(MARKS))
    out = {"characters": longer_wins(table[:, 0])}
    for k, name in enumerate(MARKS, 1):
        share = longer_wins(table[:, k])
        out[name] = {k: share[k] for k in ("n", "share", "low", "high")}
    return out
