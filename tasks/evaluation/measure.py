"""From rows of samples to the numbers of metrics.json, both in training and offline.

A metric is a piece of training/metrics. The names of its positional arguments say which columns it reads besides the
scores; this module splits those columns by problem and passes them. Metrics that read only scores are computed for
every group of problems (hops, families, sets), the others for each model on the questions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pandas as pd

from tasks.core.errors import UserError, nearest
from training.metrics import columns
from training.metrics._tests import holm, sign_flip
from training.metrics.calibration import reliability
from training.metrics.mean import mean
from training.metrics.paired import paired

COLUMNS = {  # name of a column for metrics -> its column in the table of scores
    "answers": "said",
    "references": "reference",
    "texts": "text",
    "confidences": "confidence",
    "calls": "calls",
    "tokens": "tokens",
    "outcomes": "outcome",
    "rewards": "reward",
    "features": "features",
}
OUTCOMES = ("right", "wrong", "malformed", "out_of_calls", "truncated", "unscorable")


def needed(metrics: Sequence[Callable]) -> set[str]:
    """The columns that the metrics read. Raises UserError for a metric that reads a column that is not recorded."""
    out: set[str] = set()
    for metric in metrics:
        for name in columns(metric):
            if name not in COLUMNS:
                raise UserError(
                    f"evaluate: the metric {_called(metric)} reads {name!r}, which no row holds: {nearest(name, COLUMNS)}"
                )
            out.add(name)
    return out


def by_problem(frame: pd.DataFrame, column: str = "score") -> list[list[Any]]:
    """Per problem, in the order of their ids, the values of its samples."""
    return [list(values) for _, values in frame.groupby("problem", sort=True)[column]]


def over(metrics: Sequence[Callable], rows: pd.DataFrame, *, whole: bool = False) -> dict[str, Any]:
    """The metrics of one group of rows; `whole`: also those that read more than scores."""
    scored = by_problem(rows)
    out: dict[str, Any] = {}
    for metric in metrics:
        if whole or not columns(metric):
            out |= metric(scored, *(by_problem(rows, COLUMNS[c]) for c in columns(metric)))
    return out


def difference(rows: pd.DataFrame, against: pd.DataFrame) -> dict[str, Any]:
    """Mean difference of scores on the same problems: {"mean", "low", "high", "n", "p"}, p of a sign-flip test."""
    new, old = by_problem(rows), by_problem(against)
    means = [
        [sum(known) / len(known) if (known := [x for x in s if not math.isnan(x)]) else math.nan for s in side]
        for side in (new, old)
    ]
    return {**paired(new, old)["difference"], "p": sign_flip([a - b for a, b in zip(*means, strict=True)])}


def measure(
    frame: pd.DataFrame, models: Sequence[str], against: str, metrics: Sequence[Callable], sets: Sequence[str] = ()
) -> dict[str, Any]:
    """All numbers of metrics.json: per model over the questions, per number of hops, per family, per user's test set;
    paired differences with Holm's correction for their number; the blanked search; the points of the reliability
    diagram."""
    scored: dict[Any, pd.DataFrame] = (
        {run: rows for run, rows in frame.groupby("run", sort=False)} if len(frame) else {}
    )
    parts = ("models", "hops", "families", "sets", "difference", "blanked", "outcomes", "reliability")
    out: dict[str, Any] = {part: {} for part in parts}
    for name in models if scored else ():
        rows = scored[name]
        whole = over(metrics, rows, whole=True)
        out["models"][name] = (
            whole | mean(by_problem(rows, "calls"), name="calls") | mean(by_problem(rows, "tokens"), name="tokens")
        )
        out["hops"][name] = {str(h): over(metrics, part) for h, part in rows.groupby("hops")}
        out["families"][name] = {
            f: over(metrics, part) for f, part in scored.get(f"{name}, families", rows).groupby("family")
        }
        ended = list(rows["outcome"])
        out["outcomes"][name] = {o: ended.count(o) for o in OUTCOMES}
        if "confidence" in rows and bool(rows["confidence"].notna().any()):
            known = rows[rows["confidence"].notna() & rows["score"].notna()]
            out["reliability"][name] = reliability(list(known["confidence"]), list(known["score"]))
        if name != against and against in models:
            out["difference"][f"{name} - {against}"] = difference(rows, scored[against])
        for s in sets:
            out["sets"].setdefault(s, {})[name] = over(metrics, scored[f"{name}, {s}"])
            if name != against and against in models:
                out["difference"][f"{name} - {against}, {s}"] = difference(
                    scored[f"{name}, {s}"], scored[f"{against}, {s}"]
                )
    last = models[-1]
    blank = scored.get(f"{last}, search blanked")
    if blank is not None:
        out["blanked"] = {last: over(metrics, blank)}
        out["difference"][f"{last}, search blanked - {last}"] = difference(blank, scored[last])
    correct(out["difference"])
    return plain({k: v for k, v in out.items() if v or k not in ("sets", "reliability")})


def correct(differences: Mapping[str, dict[str, Any]]) -> None:
    """Each difference gets `p_holm`, its p corrected by Holm for the number of all of them."""
    for gap, p in zip(differences.values(), holm([d["p"] for d in differences.values()]), strict=True):
        gap["p_holm"] = p


def plain(value: Any) -> Any:
    """NaN as null: JSON has no NaN."""
    if isinstance(value, Mapping):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, list):
        return [plain(v) for v in value]
    return None if isinstance(value, float) and math.isnan(value) else value


def _called(metric: Callable) -> str:
    return getattr(metric, "piece", getattr(metric, "__name__", "metric"))
