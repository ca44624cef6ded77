"""Recipes side by side on the same small tasks, with the same budget of samples and tokens and the same seeds: `make
leaderboard`

Tasks (tasks/lab/starts.py): `shortcut`, arithmetic whose scorer has a hole; `countdown`; `hops`, questions of two
searches; `requests`, a conversation of three calls. A run begins with the task's policy, the same for all recipes and
seeds, learns from the training problems until SAMPLES rollouts or TOKENS sampled tokens are used up (greedy answers,
refills and second tries count), and is measured on problems of the test split. Recipes run with their own pieces and
numbers but for what `COMMON` says. Beside them stand `start`, the policy as it was, and `sft continued`, which learned
from as many demonstrations of the training problems as the others drew samples.

Every run is one line of benchmarks/runs/leaderboard.jsonl: a run that is there is not done again, so the script may be
stopped, scheduled
(prefect.yaml) and started again at any time; each is spooled for MLflow too (`espalier sync`). Nothing is claimed from
fewer than five seeds: a case with fewer is left out of the table.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import torch

from tasks.core.paths import CODE as ROOT
from synth.types import digest, seed_for
from tasks.lab import starts
from tasks.lab.arena import measure
from tasks.lab.behaviour import prepared, summary
from tasks.lab.episodes import parts
from tasks.tracking import spool
from training.learner.loop import run

START, CONTINUED = "start", "sft continued"  # what recipes are compared with, beside each other
RESULTS = ROOT / "benchmarks" / "results"
RECIPES = (
    "grpo",
    "rloo",
    "dapo",
    "ppo",
    "gspo",
    "max-rl",
    "nsr-w-reinforce",
    "pass-at-k-training",
    "dr-grpo",
    "gigpo",
    "reinforce-plus-plus",
    "remax",
    "cispo",
    "kimi-k1.5",
)
TASKS = tuple(starts.TASKS)
SEEDS = (1, 2, 3, 4, 5)
SAMPLES = {"shortcut": 960, "countdown": 768, "hops": 640, "requests": 512}
TOKENS = {
    "shortcut": 17_000,
    "countdown": 25_000,
    "hops": 15_500,
    "requests": 23_500,
}  # a tenth more than right answers to all take
COMMON = {"prompts_per_step": 8, "samples_per_prompt": 8, "lr": 1e-3, "epochs": 1, "minibatches": 2}
TRIES = 8  # answers to each problem that a policy is measured on
METRICS = {
    "pass1": ("pass@1", "share", "higher"),
    "gain": ("pass@1 against grpo", "share", "higher"),
    "pass8": ("pass@8", "share", "higher"),
    "honest": ("honest", "share", "higher"),
    "entropy": ("entropy", "nats", "higher"),
    "length": ("length", "tokens", "lower"),
    "gradient": ("gradient norm", "", "lower"),
    "samples": ("samples", "", "lower"),
    "tokens": ("tokens", "", "lower"),
    "seconds": ("CPU seconds", "s", "lower"),
}
RUNS = ROOT / "benchmarks" / "runs" / "leaderboard.jsonl"
LEAST = 5  # seeds


def protocol(task: str) -> dict[str, Any]:
    """All that a run depends on besides recipe and seed."""
    return {
        "samples": SAMPLES[task],
        "tokens": TOKENS[task],
        "common": COMMON,
        "tries": TRIES,
        "start": asdict(starts.SIZES[task]),
    }


def key(recipe: str, task: str, seed: int) -> str:
    return f"{digest(protocol(task))[:8]}/{recipe}/{task}/{seed}"


def rows() -> list[dict[str, Any]]:
    return [json.loads(line) for line in RUNS.read_text(encoding="utf-8").splitlines()] if RUNS.exists() else []


def play(recipe: str, task: str, seed: int) -> dict[str, Any]:
    here = starts.start(task)  # made once: no part of any recipe's time
    began = time.process_time()
    size = starts.SIZES[task]
    spent, gradients = {"samples": 0, "tokens": 0}, []
    if recipe in (START, CONTINUED):
        player = here.player(max_turn_tokens=size.turn, max_tokens=size.length)
        if recipe == CONTINUED:
            seen = here.continued(
                player.sampler.model, SAMPLES[task], COMMON["lr"], seed_for(seed, "leaderboard", task)
            )
            spent, gradients = (
                {"samples": SAMPLES[task], "tokens": sum(m["tokens"] for m in seen)},
                [m["grad_norm"] for m in seen],
            )
    else:
        changes = {k: v for k, v in COMMON.items() if k != "lr"} | {
            "optimizer": {"lr": COMMON["lr"]},
            "sampling": {"max_turn_tokens": size.turn, "max_tokens": size.length},
        }
        steps = SAMPLES[task] // (COMMON["prompts_per_step"] * COMMON["samples_per_prompt"])
        composed, player = prepared(task, recipe, changes, steps, seed)
        for _, _, metrics in run([composed.round], composed.roles):
            gradients += [metrics["grad_norm"]] if "grad_norm" in metrics else []
            if player.spent["samples"] >= SAMPLES[task] or player.spent["tokens"] >= TOKENS[task]:
                break
        spent = dict(player.spent)
    seconds = time.process_time() - began
    groups = player.play(list(here.task.held), TRIES, seed_for(seed, "leaderboard", task, "measure"))
    measures = measure(groups) | {"honest": parts(groups).get("part.honest")}
    return {
        "key": key(recipe, task, seed),
        "recipe": recipe,
        "task": task,
        "seed": seed,
        "problems": digest([p.id for p in here.task.held])[:8],
        "metrics": {
            **{k: measures[k] for k in METRICS if measures.get(k) is not None},
            **spent,
            "seconds": round(seconds, 2),
            **({"gradient": float(np.mean(gradients))} if gradients else {}),
        },
    }


def shown_in_mlflow(row: Mapping[str, Any]) -> None:
    """One run of one recipe as a child of the leaderboard's execution, in the spool."""
    folder = spool.open_execution(ROOT, f"leaderboard-{digest({t: protocol(t) for t in TASKS})[:8]}")
    now = int(time.time() * 1000)
    begin = {
        "kind": "begin",
        "identity": row["key"],
        "recipe": row["recipe"],
        "flow_run": "",
        "params": {"recipe": row["recipe"], "task": row["task"], "seed": row["seed"], **COMMON},
    }
    events = [
        begin,
        {"kind": "metrics", "metrics": row["metrics"], "step": 1},
        {"kind": "end", "status": "FINISHED", "reason": ""},
    ]
    path = folder / f"{row['recipe'].replace(' ', '-')}-{row['task']}-{row['seed']}.jsonl"
    path.write_text("".join(json.dumps({"time": now, **e}) + "\n" for e in events), encoding="utf-8")


def results(measured: Sequence[Mapping[str, Any]], task: str) -> list[dict[str, Any]]:
    """The table of a task: per recipe the mean and its interval over seeds, where there are enough; `gain` is over the
    seeds of both."""
    out = []
    mine = {(r["recipe"], r["seed"]): r["metrics"] for r in measured if r["key"] == key(r["recipe"], task, r["seed"])}
    for recipe in (START, CONTINUED, *RECIPES):
        seeds = [s for s in SEEDS if (recipe, s) in mine]
        if len(seeds) < LEAST:
            continue
        for name, (metric, unit, better) in METRICS.items():
            if name == "gain":
                both = [s for s in seeds if ("grpo", s) in mine and recipe != "grpo"]
                values = [mine[recipe, s]["pass1"] - mine["grpo", s]["pass1"] for s in both]
            else:
                values = [mine[recipe, s][name] for s in seeds if name in mine[recipe, s]]
            if len(values) < LEAST:
                continue
            s = summary(values)
            out.append(
                {
                    "case": recipe,
                    "metric": metric,
                    "value": s["mean"],
                    "unit": unit,
                    "better": better,
                    "low": s["low"],
                    "high": s["high"],
                    "n": s["n"],
                    "peers": {},
                    "ratio_to_best_peer": None,
                    "device": f"{platform.machine()}, one core",
                    "versions": {"torch": torch.__version__},
                    "command": "make leaderboard",
                }
            )
    return out


def write() -> None:
    for task in TASKS:
        text = json.dumps(results(rows(), task), indent=1) + "\n"
        (RESULTS / f"leaderboard-{task}.json").write_text(text, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60.0, help="stop after this long; what is done is kept")
    parser.add_argument("--tasks", nargs="*", default=list(TASKS), choices=TASKS)
    parser.add_argument("--recipes", nargs="*", default=list(RECIPES), choices=RECIPES)
    args = parser.parse_args()
    torch.set_num_threads(1)
    done, end = {r["key"] for r in rows()}, time.monotonic() + 60 * args.minutes
    wanted = [
        (r, t, s)
        for r in (START, CONTINUED, *args.recipes)
        for t in args.tasks
        for s in SEEDS
        if key(r, t, s) not in done
    ]
    for i, (recipe, task, seed) in enumerate(wanted):
        if time.monotonic() > end:
            print(f"{len(wanted) - i} of {len(wanted)} runs are left: start again to go on", file=sys.stderr)
            break
        row = play(recipe, task, seed)
        with RUNS.open("a", encoding="utf-8") as f:
            f.write(json.dumps(row, sort_keys=True) + "\n")
        shown_in_mlflow(row)
        print(
            f"{task} {recipe} seed {seed}: pass@1 {row['metrics']['pass1']:.3f}, {row['metrics']['seconds']} s",
            flush=True,
        )
    write()


if __name__ == "__main__":
    main()
