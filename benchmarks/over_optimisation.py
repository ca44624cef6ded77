"""The over-optimisation curve of reward models, one for each head: what the best of n answers by the model is worth to
the verifier.

PROTOCOL, committed before the first run. The world `proxies` of tasks/lab/label_worlds.py: twenty pairs, a third of
the labels wrong; the stage `reward` as it is, 60 steps, with no head (the log-odds of a word) and with each head of
training/preference/reward_head; then 64 answers to each of six questions that no pair is about, of which the verifier
calls half right. Five seeds; mean, least and greatest. `lost` is how much of its own peak a model loses at n = 64:
above 0, more choice did harm. `make bench-over-optimisation` writes results, plot and table.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.rows import result_row
from tasks.core.paths import CODE as ROOT
from tasks.lab import label_worlds
from tasks.lab.worlds import Room, plans, quiet, run_stage

RESULTS = ROOT / "benchmarks" / "results"
COMMAND = "make bench-over-optimisation"
HEADS: dict[str, dict[str, Any] | None] = {
    "no head, a word": None,
    "scalar": {"piece": "scalar"},
    "ensemble": {"piece": "ensemble"},
    "gated": {"piece": "gated"},
}
SEEDS, STEPS, LARGEST = range(1, 6), 60, 64
COLOURS = {"no head, a word": "#3b73c4", "scalar": "#14865a", "ensemble": "#b8791f", "gated": "#7a4fb5"}


def curve(head: dict[str, Any] | None, seed: int) -> dict[str, Any]:
    """The card's `best_of` of one reward model, and its accuracy on clean pairs."""
    place = label_worlds.proxies()
    with tempfile.TemporaryDirectory() as folder, quiet():
        room = Room(Path(folder), seed, "")
        place.lay(room)
        run_stage(room, "reward", plans("", {"reward": {"head": head, "best_of_n": LARGEST}}, STEPS)["reward"])
    return room.cards["reward"]["best_of"] | {"accuracy": room.cards["reward"]["valid_accuracy"]}


def result(case: str, metric: str, values: list[float], unit: str, better: str = "higher") -> dict[str, Any]:
    mean, low, high = float(np.mean(values)), min(values), max(values)
    return result_row(
        case, metric, mean, unit, COMMAND, len(values), better=better, low=low, high=high, torch=torch.__version__
    )


def main() -> None:
    curves = {name: [curve(head, seed) for seed in SEEDS] for name, head in HEADS.items()}
    results = []
    for name, runs in curves.items():
        for i, point in enumerate(runs[0]["curve"]):
            if point["n"] in (1, 2, 4, 8, 16, 32, 64):
                results.append(result(name, f"best of {point['n']}", [100 * r["curve"][i]["gold"] for r in runs], "%"))
        results.append(result(name, "lost", [100 * r["lost_beyond_the_peak"] for r in runs], "points", "lower"))
        results.append(result(name, "pairs in order", [100 * r["accuracy"] for r in runs], "%"))
    (RESULTS / "over-optimisation.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    plot(curves, ROOT / "docs" / "images" / "over-optimisation.svg")


def plot(curves: dict[str, list[dict[str, Any]]], path: Path) -> None:
    """What the chosen answer is worth over the KL that n stands for; the range of the seeds shaded."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "espalier"
    import matplotlib.pyplot as plt

    figure, panel = plt.subplots(figsize=(6, 3.6))
    for name, runs in curves.items():
        x, gold = [p["kl"] for p in runs[0]["curve"]], np.array([[100 * p["gold"] for p in r["curve"]] for r in runs])
        panel.plot(x, gold.mean(0), "o-", color=COLOURS[name], label=name, linewidth=1.6, markersize=3)
        panel.fill_between(x, gold.min(0), gold.max(0), color=COLOURS[name], alpha=0.12, linewidth=0)
    most = np.array([[100 * p["most"] for p in r["curve"]] for runs in curves.values() for r in runs]).mean(0)
    panel.plot(x, most, ":", color="#555555", label="the best possible")
    panel.set_xlabel("KL of the best of n, log n - (n - 1) / n nats (n = 1 to 64)")
    panel.set_ylabel("right by the verifier, %")
    panel.grid(alpha=0.25)
    panel.legend(fontsize=9, frameon=False)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    main()
