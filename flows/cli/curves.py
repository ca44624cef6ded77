"""`espalier curves STATE...`: learning curves over seeds, with intervals, in the terminal, as a page and in MLflow."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from flows.cli._text import columns, dump
from tasks.core.errors import UserError
from tasks.core.paths import project


def add(commands: Any) -> None:
    p = commands.add_parser(
        "curves",
        help="learning curves and scores over seeds: states that differ in the seed alone are one curve with its interval",
    )
    p.add_argument(
        "states",
        metavar="STATE",
        nargs="*",
        help="states, as in `espalier compare` (default: the workspace and every experiment)",
    )
    p.add_argument(
        "--page", metavar="FILE", type=Path, help="where to write the page (default: .espalier/compare/curves.html)"
    )
    p.add_argument("--json", action="store_true", help="print everything as JSON and write no page")
    p.add_argument(
        "--log", action="store_true", help="put each setting's mean and interval, and the page, into MLflow as a run"
    )
    p.set_defaults(run=curves)


def curves(args: argparse.Namespace) -> int:
    from tasks.results import curves as task
    from tasks.results.snapshots import WORKSPACE, experiments, snapshot

    if args.json and args.log:
        raise UserError("--json writes no page, and --log puts it into MLflow: one of them at a time")
    root = project()
    result = task.curves([snapshot(root, s) for s in args.states or [*experiments(root), WORKSPACE]])
    if args.json:
        dump(result)
        return 0
    print("\n".join(said(result)))
    from tasks.results import curves_page as pages

    path = args.page or root / ".espalier" / "compare" / "curves.html"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(pages.page(result), encoding="utf-8")
    print(f"\nThe page: {path}")
    if args.log:
        from tasks.tracking import observe

        for line in observe.curves(root, result, path):
            print(line)
    return 0


def said(curves: dict[str, Any]) -> Iterator[str]:
    """The settings, and the scores of each model over seeds, as text."""
    for g in curves["groups"]:
        n = len(g["seeds"])
        yield f"{g['name']}: {n} seed{'s' if n > 1 else ''} ({', '.join(map(str, g['seeds']))}), from {', '.join(g['states'])}"
    rows = [["setting", "model", "metric", "mean", "95 % interval over seeds", "each seed"]]
    for run, metrics in curves["scores"].items():
        for metric, by in metrics.items():
            for name, m in by.items():
                interval = "one seed has none" if m["low"] is None else f"{100 * m['low']:.1f} to {100 * m['high']:.1f}"
                rows.append(
                    [name, run, metric, f"{m['mean']:.1%}", interval, " ".join(f"{v:.1%}" for v in m["values"])]
                )
    if len(rows) > 1:
        yield "\n" + columns(rows)
    for copy in curves["copies"]:
        yield f"left out, so that no seed counts twice: {copy}"
    if curves["missing"]:
        yield "\nNot shown, because it is neither on disk nor in DVC's cache (`dvc fetch`):\n" + columns(
            [[m] for m in curves["missing"]]
        )
