"""`espalier preview STAGE`: twenty rows of a stage with their proofs, before it runs at full size."""

from __future__ import annotations

import argparse
from typing import Any

from flows.cli._text import count, dump, plain
from flows.overrides import blamed, merged, overrides_of
from tasks.core.paths import project


def add(commands: Any) -> None:
    p = commands.add_parser(
        "preview", help="twenty rows of a stage with their proofs, and how long the whole will take, before it is run"
    )
    p.add_argument("stage", metavar="STAGE", help="kb, questions, problems, demonstrations, preferences or clean")
    p.add_argument("-n", type=count, default=20, metavar="ROWS", help="rows to show (default: 20)")
    p.add_argument("--recipe", metavar="NAME", help="the recipe to run, in place of the one of params.yaml")
    p.add_argument("--set", metavar="STAGE.KNOB=VALUE", action="append", default=[], help="as of `espalier run`")
    p.add_argument("--json", action="store_true", help="print them as JSON")
    p.set_defaults(run=preview)


def preview(args: argparse.Namespace) -> int:
    """Returns exit code 1 if a proof fails."""
    from tasks.results import preview as task

    root = project()
    changes = overrides_of(root / "params.yaml", args.recipe, args.set)
    with blamed(changes):
        shown = task.preview(root, args.stage, args.n, changed=lambda params: merged(params, changes))
    failed = sum(proof.holds is False for _, proof in shown.rows)
    if args.json:
        rows = [{"row": list(lines), "holds": proof.holds, "proof": list(proof.lines)} for lines, proof in shown.rows]
        dump(
            {
                "stage": shown.stage,
                "rows": rows,
                "made": shown.made,
                "quarantined": shown.quarantined,
                "seconds": shown.seconds,
                "whole": shown.whole,
            }
        )
        return 1 if failed else 0
    for i, (lines, proof) in enumerate(shown.rows, 1):
        head, *rest = lines
        print(f"{i:>3}  {plain(head)}")
        print("\n".join(f"     {plain(line)}" for line in rest))
        mark = {True: "proof", False: "FAILS", None: "note "}[proof.holds]
        print("\n".join(f"     {mark}: {plain(line)}" for line in proof.lines) + "\n")
    quarantined = sum(shown.quarantined.values())
    proved = sum(proof.holds is True for _, proof in shown.rows)
    print(
        f"{len(shown.rows)} of {shown.made:,} rows made, {proved} proved again, {failed} failed; {quarantined:,} quarantined",
        end="",
    )
    print(": " + ", ".join(f"{n} {r}" for r, n in shown.quarantined.items()) if quarantined else "")
    for example in shown.examples:
        print(f"  for example {plain(example)}")
    print(f"It took {shown.seconds:.1f} s", end="")
    print(
        "" if shown.whole is None else f"; the stage at full size takes about {shown.whole:.0f} s at this rate", end=""
    )
    print(f" (seed {shown.seed}{', read from artifacts: ' + ', '.join(shown.reused) if shown.reused else ''}).")
    print(f"Look next:  params.yaml to change it, `dvc repro {shown.stage}` to run it whole")
    return 1 if failed else 0
