"""`espalier transfer BASE A B ...`: the matrix of how training on each domain changes all domains."""

from __future__ import annotations

import argparse
import math
from typing import Any

from flows.cli._text import columns, dump
from tasks.core.paths import project


def add(commands: Any) -> None:
    p = commands.add_parser(
        "transfer", help="train domain × test domain: what models trained on one thing each gain on all"
    )
    p.add_argument(
        "base",
        metavar="BASE",
        help="the state before, whose scores are subtracted (a commit, an experiment, workspace, champion)",
    )
    p.add_argument(
        "states",
        metavar="STATE",
        nargs="+",
        help="states named after what they were trained on, e.g. experiments called countdown and sudoku",
    )
    p.add_argument("--model", default="rl", help="which model of each state (default: rl)")
    p.add_argument("--json", action="store_true", help="print it as JSON, with intervals")
    p.set_defaults(run=transfer)


def transfer(args: argparse.Namespace) -> int:
    from tasks.results import transfer as task
    from tasks.results.snapshots import snapshot

    root = project()
    scores = task.transfer(snapshot(root, args.base), [snapshot(root, s) for s in args.states], args.model)
    if args.json:
        dump(scores)
        return 0
    rows = [["trained on", *scores["domains"]]]
    for name in scores["trained"]:
        cells = [scores["cells"].get(f"{name}->{d}") for d in scores["domains"]]
        rows.append(
            [
                name,
                *(
                    "" if c is None else f"{100 * c['mean']:+.1f} [{100 * c['low']:+.1f}, {100 * c['high']:+.1f}]"
                    for c in cells
                ),
            ]
        )
    print(f"Gain of {args.model} over {args.base}, points of mean score, 95 % intervals\n" + columns(rows))
    for key, label in (("own", "where it was trained"), ("others", "elsewhere")):
        m = scores[key]
        if not math.isnan(m["mean"]):
            print(f"{label}: {100 * m['mean']:+.1f} [{100 * m['low']:+.1f}, {100 * m['high']:+.1f}]")
    ratio = scores["ratio"]
    if not math.isnan(ratio["mean"]):
        print(f"elsewhere / there: {ratio['mean']:.2f} [{ratio['low']:.2f}, {ratio['high']:.2f}]")
    return 0
