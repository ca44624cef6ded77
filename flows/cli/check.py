"""`espalier check NAME` and `espalier check --all`: do the recipes' pieces still give the numbers that their papers and our hands say?"""

from __future__ import annotations

import argparse
from typing import Any


def add(commands: Any) -> None:
    p = commands.add_parser("check", help="run the numeric checks of a recipe")
    p.add_argument("recipe", metavar="RECIPE", nargs="?", default="")
    p.add_argument("--all", action="store_true", help="of every recipe")
    p.add_argument("--numeric", action="store_true", help="the hand-computed numbers beside the recipe (the default)")
    p.set_defaults(run=check)


def check(args: argparse.Namespace) -> int:
    from tasks.errors import UserError
    from tasks.planning.resolve import yaml_files

    if bool(args.recipe) == args.all:
        raise UserError("name one recipe to check, or give --all (`espalier recipes` lists them)")
    from tasks.planning.checks import load, run_checks

    results = [r for name in (sorted(yaml_files("flows.recipes")) if args.all else [args.recipe]) for r in run_checks(load(name))]
    if not results:
        raise UserError(f"the recipe {args.recipe!r} has no checks: write some under its key `checks` (tasks/planning/checks.py says how)")
    width = max(len(r.recipe) for r in results)
    for r in results:
        print(f"{'ok    ' if r.passed else 'FAILED'}  {r.recipe:<{width}}  {r.name}  ({r.piece})")
        for difference in r.differences:
            print(f"        {difference}")
    failed = sum(not r.passed for r in results)
    print(f"{len(results) - failed} of {len(results)} checks passed")
    return 1 if failed else 0
