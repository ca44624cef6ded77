"""The picture of `benchmarks/learner.py` and `benchmarks/learner_profile.py`: heads by time and memory, whole steps,
and where a step's time goes. Drawn from their results, at the end of either: docs/images/learner.svg."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
PICTURE = ROOT / "docs" / "images" / "learner.svg"
OURS, THEIRS = "#14865a", "#8a93a3"
PARTS = {"rollout": "#3b73c4", "forward": "#14865a", "head": "#b8791f", "backward": "#7a4fb5", "optimizer": "#b3372f"}


def plot(folder: Path = RESULTS, path: Path = PICTURE) -> None:
    """Draws what has been measured."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "espalier"  # the same file from the same numbers
    import matplotlib.pyplot as plt

    steps, profile = (
        json.loads(f.read_text(encoding="utf-8")) if f.exists() else []
        for f in (folder / "learner.json", folder / "learner-profile.json")
    )
    figure, axes = plt.subplots(2, 2, figsize=(12, 8))
    shapes = list(dict.fromkeys(r["case"] for r in steps if r["case"].startswith("head")))[:2]
    for panel, case in zip(axes[0], shapes, strict=False):
        _head(panel, case, steps)
    _steps(axes[1, 0], steps)
    _profile(axes[1, 1], profile)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def _head(panel: Any, case: str, results: Sequence[Mapping[str, Any]]) -> None:
    """A point per provider: seconds against memory, both on a scale of factors; points that nearly meet share a
    label."""
    of = {r["metric"]: {"here": r["value"], **r["peers"]} for r in results if r["case"] == case}
    labels: list[tuple[float, float, list[str]]] = []
    for seconds, memory, name in sorted(
        (s, of["extra_mb"][n], n) for n, s in of["seconds"].items() if of["extra_mb"].get(n)
    ):
        panel.scatter(
            seconds, memory, color=OURS if name == "here" else THEIRS, s=60 if name == "here" else 36, zorder=3
        )
        beside = [names for s, m, names in labels if seconds / s < 1.3 and 1 / 1.3 < memory / m < 1.3]
        beside[0].append(name) if beside else labels.append((seconds, memory, [name]))
    for seconds, memory, names in labels:
        panel.annotate(", ".join(names), (seconds, memory), textcoords="offset points", xytext=(0, 8), fontsize=9)
    panel.set(
        xscale="log",
        yscale="log",
        title=case,
        xlabel="seconds, forward and backward",
        ylabel="memory beyond inputs and gradients, MB",
    )
    for axis in (panel.xaxis, panel.yaxis):
        axis.set_major_formatter("{x:g}")
    panel.xaxis.set_minor_formatter("{x:g}")
    panel.margins(0.2)
    panel.grid(alpha=0.25, which="both")


def _steps(panel: Any, results: Sequence[Mapping[str, Any]]) -> None:
    """A bar per case of the whole step: how many times as many steps a second as TRL's trainer."""
    rows = [r for r in results if r["metric"] == "steps_per_second" and r["ratio_to_best_peer"]][::-1]
    bars = panel.barh([r["case"] for r in rows], [r["ratio_to_best_peer"] for r in rows], color=OURS)
    panel.bar_label(bars, fmt="%.1f", padding=3, fontsize=9)
    panel.axvline(1, color="#555555", linewidth=1)
    panel.set(title="steps a second, times TRL's trainer")
    panel.margins(x=0.12)


def _profile(panel: Any, results: Sequence[Mapping[str, Any]]) -> None:
    """A bar per way of doing a GRPO step, made of its parts."""
    of = {
        r["case"].rsplit(": ", 1)[1]: {"here": r["value"], **r["peers"]}
        for r in results
        if r["metric"] == "milliseconds"
    }
    names = {"neither": "neither", "uncompiled": "prompts shared", "apart": "compiled code", "here": "both"}
    left = dict.fromkeys(names, 0.0)
    for part, colour in PARTS.items():
        if part in of:
            widths = [of[part][n] for n in names]
            panel.barh(list(names.values()), widths, left=list(left.values()), color=colour, label=part)
            left = {n: x + w for (n, x), w in zip(left.items(), widths, strict=True)}
    panel.set(title="a GRPO step at 512 ids, milliseconds")
    panel.invert_yaxis()
    panel.legend(fontsize=9, frameon=False)
