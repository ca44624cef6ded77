"""A row of benchmarks/results, as the tables of the documents read it."""

from __future__ import annotations

import argparse
import os
import platform
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from training.metrics import half_width


def result_row(
    case: str,
    metric: str,
    value: float,
    unit: str,
    command: str,
    n: int,
    *,
    better: str = "higher",
    low: float | None = None,
    high: float | None = None,
    one_core: bool = False,
    peers: Mapping[str, float] | None = None,
    ratio: float | None = None,
    device: str = "",
    **versions: str,
) -> dict[str, Any]:
    """A measured value. n: measurements behind it; low, high: its interval; one_core: one core of the machine was used; peers: the
    same of others, by name; ratio: how many times as good as the best of them; device: in place of the cores and processor of
    this machine; versions: of the packages that matter, beside Python's."""
    return {
        "case": case,
        "metric": metric,
        "value": value,
        "unit": unit,
        "better": better,
        "low": low,
        "high": high,
        "n": n,
        "peers": dict(peers or {}),
        "ratio_to_best_peer": ratio,
        "device": device or f"{os.cpu_count()} cores, {platform.machine()}{'; one core used' if one_core else ''}",
        "versions": {"python": platform.python_version(), **versions},
        "command": command,
    }


def row_of_seeds(
    case: str, metric: str, values: Sequence[float] | np.ndarray, unit: str, command: str, **versions: str
) -> dict[str, Any]:
    """The mean of a value per seed, measured on one thread, with its 95 % interval; of a single seed without one."""
    of = np.asarray(values, dtype=float)
    mean, half = float(of.mean()), float(half_width(of)) if len(of) > 1 else 0.0
    return result_row(
        case,
        metric,
        round(mean, 3),
        unit,
        command,
        len(of),
        low=round(mean - half, 3),
        high=round(mean + half, 3),
        device=f"1 thread, {platform.machine()}",
        **versions,
    )


def command(name: str, args: argparse.Namespace, **usual: float) -> str:
    """What makes the results of benchmarks/NAME.py: `make bench-NAME`, or the module with the options that differ from the
    usual ones."""
    other = "".join(f" --{key} {getattr(args, key):g}" for key, value in usual.items() if getattr(args, key) != value)
    return f"python -m benchmarks.{name}{other}" if other else f"make bench-{name}"


def with_intervals(rows: Sequence[Mapping[str, Any]]) -> tuple[list[float], list[list[float]]]:
    """The values of rows and how far their intervals reach below and above, as `errorbar` of matplotlib takes them."""
    values = [r["value"] for r in rows]
    return values, [[r["value"] - r["low"] for r in rows], [r["high"] - r["value"] for r in rows]]
