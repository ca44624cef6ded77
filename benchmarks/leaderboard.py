"""Recipes side by side on the same small tasks, with the same number of rollouts and the same seeds: `make leaderboard`

Tasks (tasks/methods/arena.py): `hack`, answers with a planted shortcut; `mixed`, easy and hard questions; `dialogue`, three turns with a tool's
replies; `many`, questions with several right answers. The policy is a model of one layer, so this compares what methods do, not how large
models fare. Every run is one line of benchmarks/runs/leaderboard.jsonl: a run that is there is not done again, so the script may be
stopped, scheduled and started again at any time; each is spooled for MLflow too (`espalier sync`). Nothing is claimed from fewer than five
seeds: a case with fewer is left out of the table.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from benchmarks.tables import RESULTS, ROOT
from synth.types import digest
from tasks.methods.arena import arena
from tasks.methods.behaviour import SMALL, summary, train
from tasks.tracking import spool

RECIPES = ("grpo", "dr-grpo", "dapo", "rloo", "reinforce-plus-plus", "remax", "ppo", "gspo", "cispo", "gmpo", "max-rl", "nsr-w-reinforce",
           "pass-at-k-training", "rover", "kimi-k1.5", "gigpo")  # fmt: skip
WORLDS = ("mixed", "many", "hack", "dialogue")
SEEDS = (1, 2, 3, 4, 5)
STEPS = 30
SAME = {"epochs": 1, "minibatches": 1, "refill": 0, "rewards": []}  # one update per step, on the raw score
METRICS = {
    "pass1": ("pass@1", "share", "higher"), "pass8": ("pass@8", "share", "higher"), "honest": ("honest", "share", "higher"),
    "entropy": ("entropy", "nats", "higher"), "length": ("length", "tokens", "lower"), "spread": ("largest gradient norm", "", "lower"),
    "rollout_tokens": ("tokens per step", "", "lower"), "seconds": ("CPU seconds", "s", "lower"),
}  # fmt: skip
RUNS = ROOT / "benchmarks" / "runs" / "leaderboard.jsonl"
LEAST = 5  # seeds


def protocol() -> dict[str, Any]:
    """All that a run depends on besides recipe, world and seed."""
    return {"steps": STEPS, "small": {**SMALL, **SAME}}


def key(recipe: str, world: str, seed: int) -> str:
    return f"{digest(protocol())[:8]}/{recipe}/{world}/{seed}"


def rows() -> list[dict[str, Any]]:
    return [json.loads(line) for line in RUNS.read_text(encoding="utf-8").splitlines()] if RUNS.exists() else []


def play(recipe: str, world: str, seed: int) -> dict[str, Any]:
    arena(world)  # made once per process: no part of any recipe's time
    began = time.process_time()
    found = train(world, recipe, SAME, STEPS, seed)
    return {
        "key": key(recipe, world, seed), "recipe": recipe, "world": world, "seed": seed,
        "metrics": {**{k: found[k] for k in METRICS if k in found}, "seconds": round(time.process_time() - began, 2)},
    }  # fmt: skip


def shown_in_mlflow(row: Mapping[str, Any]) -> None:
    """One run of one recipe as a child of the leaderboard's execution, in the spool."""
    folder = spool.open_execution(ROOT, f"leaderboard-{digest(protocol())[:8]}")
    now = int(time.time() * 1000)
    metrics = {k: v for k, v in row["metrics"].items() if v == v}
    begin = {"kind": "begin", "identity": row["key"], "recipe": row["recipe"], "flow_run": "",
             "params": {"recipe": row["recipe"], "world": row["world"], "seed": row["seed"], "steps": STEPS}}  # fmt: skip
    events = [begin, {"kind": "metrics", "metrics": metrics, "step": STEPS}, {"kind": "end", "status": "FINISHED", "reason": ""}]
    path = folder / f"{row['recipe']}-{row['world']}-{row['seed']}.jsonl"
    path.write_text("".join(json.dumps({"time": now, **e}) + "\n" for e in events), encoding="utf-8")


def results(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The table: per recipe and world the mean and its interval over seeds, where there are enough."""
    out = []
    current = [r for r in found if r["key"] == key(r["recipe"], r["world"], r["seed"])]
    for world in WORLDS:
        for recipe in RECIPES:
            mine = [r["metrics"] for r in current if (r["recipe"], r["world"]) == (recipe, world)]
            if len(mine) < LEAST:
                continue
            for name, (metric, unit, better) in METRICS.items():
                if name == "honest" and world != "hack":
                    continue
                s = summary([m[name] for m in mine])
                out.append({
                    "case": f"{world}: {recipe}", "metric": metric, "value": s["mean"], "unit": unit, "better": better, "low": s["low"],
                    "high": s["high"], "n": s["n"], "peers": {}, "ratio_to_best_peer": None, "device": f"{platform.machine()}, one core",
                    "versions": {"torch": torch.__version__}, "command": "make leaderboard",
                })  # fmt: skip
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60.0, help="stop after this long; what is done is kept")
    parser.add_argument("--worlds", nargs="*", default=list(WORLDS), choices=WORLDS)
    args = parser.parse_args()
    torch.set_num_threads(1)
    done, end = {r["key"] for r in rows()}, time.monotonic() + 60 * args.minutes
    wanted = [(r, w, s) for w in args.worlds for s in SEEDS for r in RECIPES if key(r, w, s) not in done]
    for i, (recipe, world, seed) in enumerate(wanted):
        if time.monotonic() > end:
            print(f"{len(wanted) - i} of {len(wanted)} runs are left: start again to go on", file=sys.stderr)
            break
        row = play(recipe, world, seed)
        with RUNS.open("a", encoding="utf-8") as f:
            f.write(json.dumps(row, sort_keys=True) + "\n")
        shown_in_mlflow(row)
        print(f"{world} {recipe} seed {seed}: pass@1 {row['metrics']['pass1']:.3f}", flush=True)
    (Path(RESULTS) / "leaderboard.json").write_text(json.dumps(results(rows()), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
