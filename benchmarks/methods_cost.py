"""What a step of each RL recipe costs beside GRPO's: CPU seconds, the median of steps. `make bench-methods-cost`

Each recipe runs in the small world of its behavioural protocol (those without one in `mixed`) with what the protocol
sets, and GRPO in the same, right before it, with what it sets for both: conversations are compared with conversations.
Every recipe plays the same number of prompts and samples where its own settings do not say otherwise; tiny models
exaggerate what is not the model's work, so this orders methods by their extra passes, no more.
"""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Mapping
from statistics import median
from typing import Any

import torch

from tasks.core.paths import CODE
from tasks.core.errors import UserError
from tasks.lab.behaviour import prepared
from docs.generators.methods import kinds
from tasks.planning.resolve import overlaid, read_recipe
from training.learner.loop import run

STEPS, WORLD, PEER = 5, "mixed", "grpo"


def seconds(recipe: str, world: str, changes: Mapping[str, Any]) -> float:
    """Median CPU seconds of a step, the first left out."""
    composed, _ = prepared(world, recipe, overlaid(changes, {"critic": {"warmup": 0}}), STEPS + 1, 1)
    times, began = [], time.process_time()
    for _ in run([composed.round], composed.roles):
        times.append(time.process_time() - began)
        began = time.process_time()
    return median(times[1:])


def main() -> None:
    torch.set_num_threads(1)
    results = []
    for name in kinds()["rl"]:
        protocol = read_recipe(name).get("behaviour") or {}
        world, both, own = (protocol.get(key) or other for key, other in (("task", WORLD), ("both", {}), ("set", {})))
        try:
            peer = seconds(PEER, world, both)
            value = seconds(name, world, both | own) / peer
        except (UserError, ValueError, LookupError) as e:
            print(f"{name}: not measured in {world}: {e}", flush=True)
            continue
        print(f"{name} in {world}: {value:.2f}", flush=True)
        results.append(
            {
                "case": name,
                "metric": "CPU time of a step, GRPO's being 1",
                "value": round(value, 3),
                "unit": "times GRPO",
                "better": "lower",
                "low": None,
                "high": None,
                "n": STEPS,
                "peers": {},
                "ratio_to_best_peer": None,
                "device": f"{platform.machine()}, one core",
                "versions": {"torch": torch.__version__},
                "command": "make bench-methods-cost",
            }
        )
    (CODE / "benchmarks" / "results" / "methods-cost.json").write_text(
        json.dumps(results, indent=1) + "\n", encoding="utf-8"
    )


if __name__ == "__main__":
    main()
