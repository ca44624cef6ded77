"""Learning curves of several states: states that differ only in the seed form one curve with an interval.

    mean_t +- t(0.975, n - 1) s_t / sqrt(n)      at every step t, over the n seeds (Student 1908)

The interval is pointwise: it covers the mean of one step, not the whole curve. Everything that depends on the seed
varies (worlds, questions, weights, samples), so the interval is that of repeating the whole run. One seed has no
interval.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tasks.core.errors import UserError
from training.metrics import half_width
from tasks.planning.plan import changes
from tasks.results.compare import code, parameters
from tasks.results.snapshots import Snapshot

STAGES = ("sft", "reward", "prefer", "rl")  # those that write a curve.csv
MOST = 6  # most groups on one page: it has no more colours


def curves(states: Sequence[Snapshot], most: int = MOST) -> dict[str, Any]:
    """{"groups": [{"name", "recipe", "seeds", "states"}], "curves": {stage: {column: {group: {"step", "values"
    [seeds][steps], "mean", "low", "high"}}}}, "scores": {run: {metric: {group: {"values", "mean", "low", "high"}}}},
    "copies", "missing"}; "low" and "high" are None for one seed. `copies` are states left out because another of the
    same group has their seed.

    Raises UserError where a state has no plan that can be had, and where there are more than `most` groups.
    """
    groups, copies = grouped(states, most)
    missing: list[str] = []
    drawn: dict[str, dict[str, dict[str, Any]]] = {}
    scores: dict[str, dict[str, dict[str, Any]]] = {}
    for group in groups:
        members = group.pop("members")
        for stage in STAGES:
            tables = [_curve(s, stage, missing) for s in members]
            known = [t for t in tables if t]
            for column in (c for c in (known[0] if known else {}) if all(c in t for t in known)):
                steps = sorted(set.intersection(*(set(t[column]) for t in known)))
                values = [[t[column][i] for i in steps] for t in known]
                drawn.setdefault(stage, {}).setdefault(column, {})[group["name"]] = {
                    "step": steps,
                    "values": values,
                } | over(values)
        per_run = [_scores(s, missing) for s in members]
        for run, metric in dict.fromkeys(key for t in per_run for key in t):
            values = [t[run, metric] for t in per_run if (run, metric) in t]
            bounds = {k: v and v[0] for k, v in over([[v] for v in values]).items()}
            scores.setdefault(run, {}).setdefault(metric, {})[group["name"]] = {"values": values} | bounds
    return {"groups": groups, "curves": drawn, "scores": scores, "copies": copies, "missing": missing}


def over(values: Sequence[Sequence[float]] | Sequence[np.ndarray]) -> dict[str, list[float] | None]:
    """{"mean", "low", "high"} over the seeds of [seeds, points], per point."""
    v = np.asarray(values, dtype=np.float64)
    mean = v.mean(0)
    if len(v) < 2:
        return {"mean": mean.tolist(), "low": None, "high": None}
    half = half_width(v)
    return {"mean": mean.tolist(), "low": (mean - half).tolist(), "high": (mean + half).tolist()}


def grouped(states: Sequence[Snapshot], most: int = MOST) -> tuple[list[dict[str, Any]], list[str]]:
    """Groups of states whose plans differ only in the seed, each seed once; and the states left out as copies."""
    groups: dict[str, dict[str, Any]] = {}
    copies = []
    for s in states:
        plans = s.plans()
        if not plans:
            raise UserError(f"{s.name} ({s.about}) has no plan that can be had: run it, or `dvc fetch`")
        same = json.dumps(
            {stage: {k: v for k, v in plan.items() if k != "seed"} for stage, plan in plans.items()}, sort_keys=True
        )
        recipe, seed = (plans.get("_run", {}).get(k, d) for k, d in (("recipe", ""), ("seed", 0)))
        group = groups.setdefault(same, {"recipe": recipe, "seeds": [], "states": [], "members": [], "plans": plans})
        if seed in group["seeds"]:
            copies.append(
                f"{s.name}: {group['states'][group['seeds'].index(seed)]} has its seed {seed} and every setting"
            )
            continue
        for key, value in (("seeds", seed), ("states", s.name), ("members", s)):
            group[key].append(value)
    if len(groups) > most:
        raise UserError(
            f"{len(groups)} settings are more than the {most} that one page can tell apart: name fewer states"
        )
    out = list(groups.values())
    _named(out)
    return out, copies


def _named(groups: list[dict[str, Any]]) -> None:
    """Names each group by its recipe and, if another group has the same recipe, by what differs from the first."""
    first: dict[str, Mapping[str, Any]] = {}
    for group in groups:
        plans, name = group.pop("plans"), group["recipe"] or "the defaults"
        if name in first:
            knobs = [f"{r['knob']}={json.dumps(r['b'])}" for r in parameters(first[name], plans) if r["knob"] != "seed"]
            files = [r["file"] for r in code(first[name], plans)]
            about = [
                *knobs[:3],
                *([f"{len(knobs) - 3} more knobs"] if len(knobs) > 3 else []),
                *([f"other {files[0]}"] if files else []),
            ]
            about = about or [at for at, _, _ in changes(first[name], plans) if at.rpartition(".")[2] != "seed"][:1]
            group["name"] = ", ".join([name, *about])
        else:
            first[name] = plans
            group["name"] = name
    taken: dict[str, int] = {}
    for group in groups:  # cut to three knobs, two names may be equal
        taken[group["name"]] = n = taken.get(group["name"], 0) + 1
        group["name"] += f" ({n})" if n > 1 else ""


def _curve(s: Snapshot, stage: str, missing: list[str]) -> dict[str, dict[int, float]]:
    """Column -> step -> value of a stage's curve; {} if the state has none; if it should have one, `missing` records
    it."""
    path = s.path(f"artifacts/{stage}/curve.csv")
    if path is None:
        if stage in s.lock:
            missing.append(f"{s.name}: artifacts/{stage}/curve.csv")
        return {}
    out: dict[str, dict[int, float]] = {}
    with path.open(encoding="utf-8", newline="") as lines:
        for i, row in enumerate(csv.DictReader(lines)):
            step = int(row.pop("step", i))
            for column, text in row.items():
                value = _number(text)
                if value is not None:
                    out.setdefault(column, {})[step] = value
    return out


def _number(text: str | None) -> float | None:
    try:
        value = float(text or "nan")
    except ValueError:  # a column with the name of a round
        return None
    return value if math.isfinite(value) else None


def _scores(s: Snapshot, missing: list[str]) -> dict[tuple[str, str], float]:
    """(model, metric) -> mean, for every pass@k of the state's evaluation."""
    metrics = s.json("artifacts/evaluate/metrics.json")
    if metrics is None:
        if "evaluate" in s.lock:
            missing.append(f"{s.name}: artifacts/evaluate/metrics.json")
        return {}
    return {
        (run, k): m["mean"]
        for run, metrics in metrics["models"].items()
        for k, m in metrics.items()
        if k.startswith("pass@")
    }
