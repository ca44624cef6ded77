"""`espalier sweep`: run the graph for every value of a grid, several at a time, and write one page with intervals.
docs/scaling.md"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

from flows.cli._before import check
from flows.cli._text import columns, count, dump
from flows.overrides import blamed, merged, overrides_of
from tasks.core.errors import UserError
from tasks.core.paths import inside


def add(commands: Any) -> None:
    p = commands.add_parser("sweep", help="run every value of a grid, several at a time, and compare them")
    p.add_argument(
        "grid", nargs="+", metavar="KEY=VALUES", help="rl.optimizer.lr=1e-3,3e-4 or seed=1..5: all combinations are run"
    )
    p.add_argument("--workers", type=count, default=2, metavar="N", help="how many at a time (default 2)")
    p.add_argument("--recipe", metavar="NAME", help="the recipe of all of them")
    p.add_argument(
        "--set", metavar="STAGE.KNOB=VALUE", action="append", default=[], help="a value that holds for all of them"
    )
    p.add_argument("--dry-run", action="store_true", help="list the values and which of them have run, and stop")
    p.add_argument("--no-watch", action="store_true", help="show no runs in Prefect, and start no server for them")
    p.add_argument("--json", action="store_true", help="print the numbers as JSON")
    p.set_defaults(run=sweep)


def sweep(args: argparse.Namespace) -> int:
    from tasks.planning import plan
    from tasks.planning.resolve import PARAMS
    from tasks.results import snapshots
    from tasks.results import sweep as task
    from tasks.runtime import termination
    from tasks.schedule import sweeps

    root = inside()
    if args.workers < 1:
        raise UserError("sweep: --workers must be 1 or more")
    commit = task.clean(root)
    base = overrides_of(root / "params.yaml", args.recipe, args.set)
    name, points = task.grid(args.grid, commit, base, frozenset(PARAMS))
    seen: set[tuple[str, str]] = set()
    plans: dict[str, Any] = {}
    planned: list[tuple[str, dict[str, Any]]] = []
    axes = dict(task.axis(word) for word in args.grid)
    for p in points:  # each value once, with the first seed
        new = {k for k in p.changes if (k, repr(p.changes[k])) not in seen and (k != "seed" or p is points[0])}
        if new or not seen:
            with blamed(p.changes, axes):
                plans = plan.plans(root, changed=lambda params, p=p: merged(params, dict(p.changes)))
            planned.append((p.name, plans))
            _check_places(axes, plans)
        seen |= {(k, repr(v)) for k, v in p.changes.items()}
    known = snapshots.experiments(root)
    if args.dry_run:
        print(columns([[p.name, *p.words, "there" if p.name in known else ""] for p in points]))
        return 0
    devices = _devices(plans, args.workers)
    check(root, [of for name, of in planned if name not in known], devices=1 if devices else None)
    say = lambda line: print(line, file=sys.stderr, flush=True)  # noqa: E731
    termination.on_sigterm("sweep")
    with task.alone(root):
        told = {"grid": args.grid, "workers": args.workers, "recipe": args.recipe, "set": args.set, "commit": commit}
        with nullcontext() if args.no_watch else sweeps.shown(root, name, told, say) as runs:
            failed = task.run(root, name, points, commit, workers=args.workers, say=say, devices=devices, runs=runs)
        there = [p for p in points if p.name in snapshots.experiments(root)]
        if there:
            page, results = task.report(root, name, points)
        if not failed:
            task.remove(root, name)
    if there and args.json:
        dump(results)
    elif there:
        print(_table(results))
        print(
            f"\nLook next:  {page.relative_to(root)}   espalier compare {there[0].name} {there[-1].name}   dvc exp list"
        )
    for experiment, why in failed.items():
        words = next(" ".join(p.words) for p in points if p.name == experiment)
        print(f"failed: {words}: {why}", file=sys.stderr)
    return 1 if failed else 0


def _check_places(axes: Mapping[str, Sequence[str]], plans: dict[str, Any]) -> None:
    """Raises UserError for several values of a knob that says where a stage runs."""
    places = plans["_run"].get("place", {})
    for key, values in axes.items():
        stage, _, knob = key.partition(".")
        if len(values) > 1 and knob in places.get(stage, {}):
            raise UserError(
                f"sweep {key}={','.join(values)}: {knob} says where {stage} runs, and no result depends on it: give one value with "
                f"--set {key}=..."
            )


def _devices(plans: dict[str, Any], workers: int) -> int:
    """The number of devices that the workers share; 0 if models are on the CPU. Raises UserError if there are too
    few."""
    wanted = {str(p["params"]["device"]) for p in plans.values() if "device" in p.get("params", {})} - {"cpu"}
    if not wanted:
        threads = max((p.get("threads", 1) for p in plans.values()), default=1)
        if workers * threads > (cores := os.cpu_count() or 1) and workers > 1:
            print(
                f"warning: {workers} workers of {threads} threads on {cores} cores slow each other down: "
                f"--workers {max(1, cores // threads)} is as fast",
                file=sys.stderr,
            )
        return 0
    import torch

    if (n := torch.cuda.device_count()) < workers:
        raise UserError(f"sweep: --workers is {workers}, and this machine has {n} devices: each worker needs one")
    return n


def _table(results: dict[str, Any]) -> str:
    rows: list[list[Any]] = []
    for run, metrics in results["scores"].items():
        for metric, by in metrics.items():
            for group, m in sorted(by.items(), key=lambda x: -x[1]["mean"]):
                low, high = m["low"], m["high"]
                interval = "one seed" if low is None else f"[{low:.3f}, {high:.3f}]"
                rows.append([group, run, metric, f"{m['mean']:.3f}", interval, len(m["values"])])
    return columns([["setting", "model", "metric", "mean", "95 % interval", "seeds"], *rows], indent="")
