"""What a step of each RL recipe costs beside GRPO's, in a small world: CPU seconds, the median of steps. `make bench-methods-cost`

Every recipe plays the same number of rollouts where its own settings do not say otherwise; tiny models exaggerate what is not the model's
work, so this orders methods by their extra passes, no more.
"""

from __future__ import annotations

import json
import platform
import time
from statistics import median

import torch

from benchmarks.tables import RESULTS
from tasks.methods.behaviour import prepared
from tasks.methods.page import kinds
from tasks.planning.resolve import read_recipe
from training.rounds import run

STEPS, WORLD = 5, "mixed"


def seconds(recipe: str) -> float:
    """Median CPU seconds of a step, the first left out."""
    world = (read_recipe(recipe).get("behaviour") or {}).get("task", WORLD)
    made, _ = prepared(WORLD if world != "dialogue" else world, recipe, {"critic_warmup": 0}, STEPS + 1, 1)
    times, began = [], time.process_time()
    for _ in run([made.round], made.roles):
        times.append(time.process_time() - began)
        began = time.process_time()
    return median(times[1:])


def main() -> None:
    torch.set_num_threads(1)
    base = {False: seconds("grpo")}
    found = []
    for name in kinds()["rl"]:
        if (read_recipe(name).get("behaviour") or {}).get("task") == "dialogue":
            continue  # another world, other lengths
        try:
            value = seconds(name) / base[False]
        except (ValueError, LookupError) as e:
            print(f"{name}: not measured: {e}")
            continue
        print(f"{name}: {value:.2f}", flush=True)
        found.append({
            "case": name, "metric": "CPU time of a step, GRPO's being 1", "value": round(value, 3), "unit": "times GRPO", "better": "lower",
            "low": None, "high": None, "n": STEPS, "peers": {}, "ratio_to_best_peer": None, "device": f"{platform.machine()}, one core",
            "versions": {"torch": torch.__version__}, "command": "make bench-methods-cost",
        })  # fmt: skip
    (RESULTS / "methods-cost.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
