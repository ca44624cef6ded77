"""Plain PPO of ours on CartPole-v1, five seeds, beside the published behaviour of CleanRL's ppo.py.

PROTOCOL, committed before the first run. The recipe `control-ppo` as it ships (60 updates of 8 whole episodes), seeds 1 to 5; the return of
each update's episodes over the steps of the world that were played so far; then 50 episodes of seeds that were never played, with actions
drawn at temperature 1. CleanRL publishes for `ppo.py` on CartPole-v1, which plays 500,000 steps, an average episodic return of
488.75 +- 18.40, and of 497.54 +- 4.02 for the PPO of openai/baselines (docs/rl-algorithms/ppo.md of its repository at 04d2c47); the limit of the world is
500. Ours matches it if its mean over the seeds at the end lies within two of the deviations of CleanRL's below it, or above. `make bench-control-ppo` writes results and plot.

SECOND LOOK, committed before its first run: the same, with LONG updates in the place of 60, about as many steps as CleanRL plays (60 updates play 150,000),
since the first look had played less than a third of them. Nothing else is changed; the learning rate decays over all updates. Seeds 1 to 5, and the same
measure and bound. `python -m benchmarks.control_ppo long` runs it alone; a seed takes about three CPU minutes.
"""

from __future__ import annotations

import csv
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.rows import result_row
from synth.types import Sampling, Scored, seed_for
from tasks.core.paths import CODE as ROOT
from tasks.lab.worlds import Room, plans, quiet, run_stage
from tasks.models.control import actor
from tasks.planning.pieces import bind_all
from training.model.control import load_policy
from training.rollout.control import seeds

RESULTS, COMMAND = ROOT / "benchmarks" / "results", "make bench-control-ppo"
SEEDS, STEPS, EPISODES = range(1, 6), 60, 50
LONG = 150
CASE, SECOND = "CartPole-v1", "CartPole-v1, 500,000 steps"
PUBLISHED = (488.75, 18.40)  # mean and deviation, after 500,000 steps


def learned(seed: int, updates: int = STEPS) -> dict[str, Any]:
    """steps played and mean return of each update, and the return of new episodes at the end."""
    plan = plans("control-ppo", {}, updates)["rl"]
    with tempfile.TemporaryDirectory() as folder, quiet():
        room = Room(Path(folder), seed, "control-ppo")
        run_stage(room, "rl", plan)
        with (room.root / "artifacts/rl/curve.csv").open(encoding="utf-8") as f:
            rows = list(csv.DictReader(f))
        world = bind_all(plan.pieces, plan.params, plan.settings)["control"]()
        model = load_policy(room.root / "artifacts/rl/model")
        _, player = actor(world, seed=seed, sampling=Sampling(temperature=1.0), max_steps=1000, model=model)
        groups = player.play(seeds(EPISODES, seed=seed_for(seed, "new"), family="measure"), 1, seed)
    ends = [r.score.value for g in groups for r in g.rollouts if isinstance(r.score, Scored)]
    played = np.cumsum([float(r["tokens"]) for r in rows])
    return {"steps": played.tolist(), "returns": [float(r["reward"]) for r in rows], "end": float(np.mean(ends))}


def result(metric: str, values: list[float], unit: str, better: str = "higher", case: str = CASE) -> dict[str, Any]:
    mean, low, high = float(np.mean(values)), min(values), max(values)
    return result_row(
        case, metric, mean, unit, COMMAND, len(values), better=better, low=low, high=high, torch=torch.__version__
    )


def main(which: Sequence[str]) -> None:
    """which: "long" for the second look alone; none: both."""
    path = RESULTS / "control-ppo.json"
    results = json.loads(path.read_text(encoding="utf-8")) if which else first()
    results = [r for r in results if r["case"] != SECOND]
    runs = [learned(seed, LONG) for seed in SEEDS]
    ends, played = [r["end"] for r in runs], [r["steps"][-1] for r in runs]
    results += [
        result("return of new episodes", ends, "steps", case=SECOND),
        result("steps played", played, "steps", "lower", SECOND),
    ]
    path.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


def first() -> list[dict[str, Any]]:
    """The results of the first look, and its plot."""
    runs = [learned(seed) for seed in SEEDS]
    plot(runs, ROOT / "docs" / "images" / "control-ppo.svg")
    return [
        result("return of new episodes", [r["end"] for r in runs], "steps"),
        result("steps played", [r["steps"][-1] for r in runs], "steps", "lower"),
        *(
            result(f"return at update {k}", [r["returns"][k - 1] for r in runs], "steps")
            for k in (1, 10, 20, 30, 40, 50, 60)
        ),
    ]


def plot(runs: list[dict[str, Any]], path: Path) -> None:
    """The return of each update over the steps played, a line per seed, and the published band."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "espalier"
    import matplotlib.pyplot as plt

    figure, panel = plt.subplots(figsize=(6, 3.4))
    for k, run in enumerate(runs):
        label = "control-ppo, seeds 1 to 5" if k == 0 else None
        panel.plot(
            np.array(run["steps"]) / 1000, run["returns"], color="#3b73c4", alpha=0.7, linewidth=1.2, label=label
        )
    mean, far = PUBLISHED
    panel.axhspan(mean - far, min(mean + far, 500), color="#b8791f", alpha=0.25, linewidth=0)
    panel.axhline(mean, color="#b8791f", linewidth=1, label="CleanRL ppo.py after 500,000 steps, published")
    panel.set_xlabel("steps of CartPole-v1 played, thousands")
    panel.set_ylabel("return of the episodes of an update")
    panel.grid(alpha=0.25)
    panel.legend(fontsize=9, frameon=False, loc="lower right")
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    main(sys.argv[1:])
