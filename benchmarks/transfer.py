"""What transfers between domains: the recipe guru learns from the problems of one domain at a time, and from all, and is measured on
each.

PROTOCOL, committed before the first run. The task `domains` of tasks/lab/starts.py: a policy of two layers that knows sums, combined
numbers, units, circuits and sorting, each with slips. The recipe `guru`, 24 steps of 4 problems and 8 samples, learns from the training
problems of one domain, or from all five in equal shares. Measured on problems of the test split, 16 tries of each: the gain over the
start in points, by domain. Four seeds, whose mean and 95 % interval (Student's t) are given. `make bench-transfer` writes the result.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from benchmarks.rows import result_row
from synth.types import Problem, seed_for
from tasks.core.paths import CODE as ROOT
from tasks.lab import starts
from tasks.lab.behaviour import prepared, summary
from training.learner.loop import run

RESULT = ROOT / "benchmarks" / "results" / "transfer.json"
COMMAND = "make bench-transfer"
DOMAINS = tuple(make.__name__ for make in starts.DOMAINS)
SEEDS, STEPS = (1, 2, 3, 4), 24
KNOBS = {"prompts_per_step": 4, "samples_per_prompt": 8, "optimizer": {"lr": 1e-3}}


def solved(player: Any, problems: Sequence[Problem], seed: int) -> dict[str, float]:
    """The share of right answers of each domain, in points."""
    groups = player.play(problems, 16, seed_for(seed, "transfer", "measure"))
    of = {d: [x for g in groups if g.rollouts[0].problem.family == d for x in g.rewards] for d in DOMAINS}
    return {d: 100 * float(np.mean(x)) for d, x in of.items()}


def trained(domain: str, seed: int) -> dict[str, float]:
    """What is solved of each domain after training on one, on "all", or on none ("")."""
    composed, player = prepared(
        "domains", "guru", KNOBS, STEPS if domain else 0, seed, only=lambda p: domain in ("", "all", p.family)
    )
    for _ in run([composed.round], composed.roles):
        pass
    return solved(player, starts.start("domains").measured, seed)


def result(case: str, metric: str, gains: list[float]) -> dict[str, Any]:
    effect = summary(gains)
    low, high = effect["low"], effect["high"]
    return result_row(
        case, metric, effect["mean"], "points", COMMAND, len(gains), low=low, high=high, torch=torch.__version__
    )


def main() -> None:
    torch.set_num_threads(1)
    before = {s: trained("", s) for s in SEEDS}
    rows = []
    for domain in (*DOMAINS, "all"):
        after = {s: trained(domain, s) for s in SEEDS}
        rows += [result(f"learned {domain}", d, [after[s][d] - before[s][d] for s in SEEDS]) for d in DOMAINS]
        print(domain, {r["metric"]: round(r["value"], 1) for r in rows[-len(DOMAINS) :]}, flush=True)
    RESULT.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
