"""A hundred values on two workers, some of which are killed: does every one become an experiment, with the right bytes?

`make bench-sweep` (--values N --kills K --runs R): N values of a graph of two scripts (tests/support/grid.py), of which K kill their whole
process group once, R times over in a fresh project. Asserted for every value: its experiment is there, its metrics are
those of its parameters, no worktree is left, and the project's files are as they were. Seconds are of the clock.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import random
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parents[1]
sys.path[:0] = [str(HERE), str(HERE / "tests" / "support")]

import numpy as np  # noqa: E402
import grid  # noqa: E402
import toy  # noqa: E402

from benchmarks.rows import result_row  # noqa: E402
from flows import cli  # noqa: E402
from tasks.results import snapshots  # noqa: E402

RESULT = HERE / "benchmarks" / "results" / "sweep.json"


def one(n: int, kills: int, workers: int, seed: int) -> dict[str, float]:
    """A sweep in a fresh project: what came of it."""
    with tempfile.TemporaryDirectory() as folder:
        root = grid.project(Path(folder) / "mine")
        os.chdir(root)
        os.environ.update({**toy.WHO, "MARKS": folder})
        half = n // 2
        for lr, s in random.Random(seed).sample([(lr, s) for lr in (0.25, 0.5) for s in range(half)], kills):
            (Path(folder) / f"kill-{lr}-{s}").touch()
        begin = time.monotonic()
        with contextlib.redirect_stdout(io.StringIO()):
            code = cli.main(["sweep", "rl.optimizer.lr=0.25,0.5", f"seed=0..{half - 1}", "--workers", str(workers)])
        seconds = time.monotonic() - begin
        known = snapshots.experiments(root)
        right = 0
        for name in known:
            state = snapshots.snapshot(root, name)
            plan, metrics = state.plans()["evaluate"], state.json("artifacts/evaluate/metrics.json")
            wanted = plan["params"]["rl"]["optimizer"]["lr"] + plan["seed"] / 100
            right += metrics == {"models": {"rl": {"pass@1": {"mean": wanted}}}}
        left = len(list(Path(folder).glob("kill-*"))) + len(list(root.glob(".espalier/sweep/*/worker-*")))
        clean = toy.git(root, "status", "--porcelain") == ""
        os.chdir(HERE)
        return {
            "code": code,
            "experiments": len(known),
            "right": right,
            "left": left,
            "clean": clean,
            "seconds": round(seconds),
        }


def main() -> None:
    p = argparse.ArgumentParser()
    p.add_argument("--values", type=int, default=100)
    p.add_argument("--kills", type=int, default=5)
    p.add_argument("--runs", type=int, default=1)
    p.add_argument("--workers", type=int, default=2)
    args = p.parse_args()
    runs = [one(args.values, args.kills, args.workers, seed) for seed in range(args.runs)]
    print(json.dumps(runs, indent=1))
    command = f"python -m benchmarks.sweep --values {args.values} --kills {args.kills} --runs {args.runs}"
    rows = [
        result_row(
            f"{args.values} values on {args.workers} workers, {args.kills} killed once",
            metric,
            float(np.median([r[key] for r in runs])),
            unit,
            command,
            len(runs),
            better=better,
            low=float(min(r[key] for r in runs)),
            high=float(max(r[key] for r in runs)),
            device=f"{os.cpu_count()} CPU cores",
        )
        for metric, key, unit, better in (
            ("experiments with the right bytes", "right", "experiments", "higher"),
            ("clock", "seconds", "s", "lower"),
        )
    ]
    RESULT.write_text(json.dumps(rows, indent=1) + "\n")
    good = {"code": 0, "experiments": args.values, "right": args.values, "left": 0, "clean": True}
    if bad := [r for r in runs if {k: r[k] for k in good} != good]:
        sys.exit(f"{len(bad)} of {len(runs)} sweeps lost something: {bad}")


if __name__ == "__main__":
    main()
