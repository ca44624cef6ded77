"""Two adapters against one shared policy, at equal samples. `make bench-several-policies`

Small worlds of conversations with two roles (tasks/lab/episodes.py), whose base policy is learned once; from it each arm
learns STEPS steps of GRPO with the same seeds, as many rollouts, and adapters on the frozen base:

    two              a policy for each role
    two, exchanging  the same, and they exchange their roles (the recipe `cory`; in the world where either may begin)
    shared           one policy, with adapters as large as one of the two
    shared, twice    one policy, with adapters as large as both

Measured on TRIES fresh rollouts of every problem: the score of the team, the mean over training (auc), and in the world
`looks`, where the pioneer answers alone, how often each policy is right as a pioneer. The protocol, with seeds and what is
expected, was committed before the first run: benchmarks/runs/several-policies/protocol.json. `--seed S` prints one seed
and records nothing.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.selfplay import result
from synth.types import Scored, seed_for
from tasks.lab import behaviour
from tasks.planning.resolve import overlaid

ROOT = Path(__file__).resolve().parents[1]
PROTOCOL = ROOT / "benchmarks" / "runs" / "several-policies" / "protocol.json"
RESULTS = ROOT / "benchmarks" / "results" / "several-policies.json"
COMMAND = "make bench-several-policies"
ROLES = {"looks": ("pioneer", "observer"), "partners": ("first", "second")}
ENVS = {"looks": {"piece": "second_look", "weight": 0.5}, "partners": {"piece": "halves", "turns": 2}}


def knobs(world: str, arm: str, rank: int) -> dict[str, Any]:
    """Changes of the stage `rl` that make an arm."""
    a, b = ROLES[world]
    two = {"one": {"roles": [a]}, "other": {"roles": [b]}}
    shared = {"both": {"roles": [a, b]}}
    return {
        "envs": [ENVS[world]],
        "policies": two if arm.startswith("two") else shared,
        "exchange": 5 if arm == "two, exchanging" else 0,
        "lora": {"rank": 2 * rank if arm == "shared, twice" else rank},
    }


def run(world: str, arm: str, protocol: dict[str, Any], seed: int) -> dict[str, float]:
    """The numbers of one arm with one seed."""
    changes = overlaid({"sampling": protocol["sampling"]}, knobs(world, arm, protocol["rank"]))
    composed, player = behaviour.prepared(world, "grpo", changes, protocol["steps"], seed)
    rows, _ = behaviour._steps(composed)
    here = behaviour.world(world)

    def measured(plays: dict[str, str]) -> list[Any]:
        groups = replace(player, plays=plays).play(
            here.measured, protocol["tries"], seed_for(seed, "several", world, "measure")
        )
        return [r.score for g in groups for r in g.rollouts if isinstance(r.score, Scored)]

    scores = measured(dict(player.plays))
    out = {
        "team": float(np.mean([s.value for s in scores])),
        "auc": float(np.mean([r["reward"] for r in rows])),
        "samples": float(sum(r["rollouts"] for r in rows)),
    }
    if world == "looks":
        pioneers = lambda known: float(np.mean([s.parts.get("pioneer", s.value) for s in known]))  # noqa: E731
        out["as pioneer: who begins"] = pioneers(scores)
        one, other = (player.plays[r] for r in ROLES[world])
        out["as pioneer: the other"] = pioneers(measured({"pioneer": other, "observer": one}))
    return out


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, help="try one seed and record nothing")
    args = parser.parse_args()
    torch.set_num_threads(1)
    protocol = json.loads(PROTOCOL.read_text(encoding="utf-8"))
    seeds = [args.seed] if args.seed is not None else protocol["seeds"]
    runs: dict[tuple[str, str], list[dict[str, float]]] = {}
    for world, arms in protocol["worlds"].items():
        for arm in arms:
            for seed in seeds:
                began = resource.getrusage(resource.RUSAGE_SELF).ru_utime
                runs.setdefault((world, arm), []).append(run(world, arm, protocol, seed))
                spent = resource.getrusage(resource.RUSAGE_SELF).ru_utime - began
                told = "  ".join(f"{k} {v:.3f}" for k, v in runs[world, arm][-1].items())
                print(f"{world}, {arm}, seed {seed}: {told}  ({spent:.0f} CPU s)", flush=True)
    if args.seed is not None:
        return 0
    results = [row for key, values in runs.items() for row in rows_of(*key, values)]
    for world, arms in protocol["worlds"].items():
        for arm in arms[1:]:
            both = zip(runs[world, arms[0]], runs[world, arm], strict=True)
            pairs = [{k: a[k] - b[k] for k in ("team", "auc")} for a, b in both]
            results += rows_of(world, f"{arms[0]}, less {arm}", pairs)
    RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    return 0


def rows_of(world: str, arm: str, values: list[dict[str, float]]) -> list[dict[str, Any]]:
    """A row of the results for each number."""
    return [
        result(
            f"{world}: {arm}",
            metric,
            np.array([v[metric] for v in values]),
            "rollouts" if metric == "samples" else "",
            COMMAND,
        )
        for metric in values[0]
    ]


if __name__ == "__main__":
    sys.exit(main())
