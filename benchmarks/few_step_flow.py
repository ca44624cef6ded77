"""What `seedance-rlhf` does to a flow on eight clusters: the composite reward of samples drawn in ten steps and in one, and how many
clusters they cover; without the reward, the same distillation alone. `make bench-few-step-flow`

A cluster is covered where at least one sample in 40, a fifth of its share, is within five of its deviations. `python -m
benchmarks.few_step_flow N` takes N seeds.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.rows import row_of_seeds
from synth.types import Sampling, seed_for
from tasks.lab.worlds import Room, plans, quiet, run_stage
from tasks.models.control import actor, kind
from tasks.planning.pieces import bind_all
from training.env.control.modes import CENTRES, DEVIATION
from training.model.control import load_policy
from training.rollout.control import seeds

RESULTS = Path(__file__).parent / "results" / "few-step-flow.json"
COMMAND = "make bench-few-step-flow"
STEPS, SAMPLES = 150, 400  # of the recipe's protocol; drawn for each number
SHIPPED = {"lr": 1.0e-3, "warmup": 0, "decay": "linear", "max_grad_norm": 1.0}  # the lab's own rates are others
ALONE = [{"piece": "few_steps", "coef": 1.0}]
ARMS: dict[str, dict[str, Any]] = {
    "before learning": {},
    "as the recipe ships": {"optimizer": SHIPPED},
    "without the reward": {"optimizer": SHIPPED, "regularisers": ALONE},
    "without it, at a fifth of the rate": {"optimizer": {**SHIPPED, "lr": 2.0e-4}, "regularisers": ALONE},
}


def covered(samples: np.ndarray) -> int:
    """How many of the eight clusters samples [n, 2] cover."""
    near = np.linalg.norm(samples[:, None] - CENTRES, axis=-1) <= 5 * DEVIATION
    return int((near.mean(0) >= 1 / 40).sum())


def drawn(stage: Any, model: Any, steps: int, seed: int) -> tuple[float, int]:
    """(mean reward, clusters covered) of samples drawn in so many steps, without noise."""
    control = {**stage.params["control"], "steps": steps, "noise": 0.0}
    alone = replace(stage, params={**stage.params, "control": control})
    world = bind_all(alone.pieces, alone.params, alone.settings)["control"]()
    _, player = actor(world, seed=seed, sampling=Sampling(temperature=1.0), max_steps=steps, model=model)
    groups = player.play(seeds(SAMPLES, seed=seed_for(seed, "few-step-flow"), family="measure"), 1, seed)
    rollouts: list[Any] = [r for g in groups for r in g.rollouts]
    return float(np.mean([r.score.value for r in rollouts])), covered(np.array([r.info["sample"] for r in rollouts]))


def learned(changes: Mapping[str, Any], steps: int, seed: int) -> dict[str, float]:
    """What one seed of the recipe, so changed, draws after so many steps of learning."""
    with tempfile.TemporaryDirectory() as folder, quiet():
        room = Room(Path(folder), seed, "seedance-rlhf")
        stage = plans("seedance-rlhf", {"rl": changes}, max(steps, 1))["rl"]
        world = bind_all(stage.pieces, stage.params, stage.settings)["control"]()
        model = None
        if steps:
            run_stage(room, "rl", stage)
            model = load_policy(room.root / "artifacts" / "rl" / "model", kind(world))
        out: dict[str, float] = {}
        for many, name in ((10, "ten steps"), (1, "one step")):
            reward, clusters = drawn(stage, model, many, seed)
            out |= {f"reward, {name}": reward, f"clusters, {name}": clusters}
        return out


def main(n: int = 3) -> None:
    results = []
    for arm, changes in ARMS.items():
        each = [learned(changes, 0 if arm == "before learning" else STEPS, seed) for seed in range(1, n + 1)]
        for metric in each[0]:
            values = np.array([x[metric] for x in each])
            unit = "of 8" if metric.startswith("clusters") else "reward"
            results.append(row_of_seeds(arm, metric, values, unit, COMMAND, torch=torch.__version__))
            print(arm, metric, values.round(3).tolist(), flush=True)
    RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
