"""`espalier check NAME` and `espalier check --all`: checks that the recipes' pieces give the numbers of papers and hand
calculations, that policies trained with them behave as the recipe claims, and that a whole recipe, as it is run, is its
method."""

from __future__ import annotations

import argparse
from typing import Any


def add(commands: Any) -> None:
    p = commands.add_parser(
        "check",
        help="run the checks of recipes: hand-computed numbers; with --behaviour what a policy does in a small world",
    )
    p.add_argument("recipe", metavar="RECIPE", nargs="*", default=[])
    p.add_argument("--all", action="store_true", help="every recipe")
    kind = p.add_mutually_exclusive_group()
    kind.add_argument(
        "--numeric",
        action="store_true",
        help="the hand-computed numbers (the default)",
    )
    kind.add_argument("--behaviour", action="store_true", help="the behavioural protocols: seconds to minutes each")
    kind.add_argument(
        "--run",
        dest="whole",  # `run` is what the command calls
        action="store_true",
        help="a dry step of the whole recipe: its stages on small data; does each piece act, and nothing that it did not ask for? "
        "a second each",
    )
    kind.add_argument(
        "--evidence",
        action="store_true",
        help="what the recorded protocols showed, and whether the recipe's pieces are still those that ran; runs nothing",
    )
    p.add_argument(
        "--on-task", action="store_true", help="with --behaviour: only the protocols on the project's own tasks"
    )
    p.add_argument("--record", action="store_true", help="with --behaviour: write the result to flows/recipes/evidence")
    p.set_defaults(run=check)


def check(args: argparse.Namespace) -> int:
    from tasks.core.errors import UserError
    from tasks.planning.resolve import read_recipe, yaml_files

    if bool(args.recipe) == args.all:
        raise UserError("name recipes to check, or give --all (`espalier recipes` lists them)")
    if (args.on_task or args.record) and not args.behaviour:
        raise UserError(f"{'--on-task' if args.on_task else '--record'} is for protocols: add --behaviour")
    names = sorted(yaml_files("recipes")) if args.all else args.recipe
    if args.whole:
        return 1 if _run(names) else 0
    if args.evidence:
        _evidence(names)
        return 0
    if not args.behaviour:
        return 1 if _numeric(names) else 0
    keys = ("on_task",) if args.on_task else ("behaviour", "on_task")
    if not (with_protocol := [n for n in names if any(read_recipe(n).get(key) for key in keys)]):
        raise UserError(
            f"no protocol in {', '.join(names)}: write one under the key `{keys[0]}` (docs/recipes.md says how)"
        )
    return 1 if _behaviour(with_protocol, args.record, keys) else 0


def _run(names: list[str]) -> int:
    """Prints a table of a dry step of each recipe; returns the number of recipes with a finding."""
    import torch

    from tasks.lab.dry import table

    torch.set_num_threads(1)
    head = ("recipe", "stage", "piece", "called", "changes", "weights")
    widths = (28, 14, 34, 6, 22, 7)
    line = lambda cells: "  ".join(f"{c:<{w}}" for c, w in zip(cells, widths, strict=True)).rstrip()  # noqa: E731
    print(line(head))
    wrong = []
    for name in names:
        lines = table(name)
        for one in lines:
            called = "" if one.called is None else str(one.called)
            if one.piece:
                print(line((one.recipe, one.stage, one.piece, called, one.changes or "-", one.moves)))
        for text in dict.fromkeys(one.finding for one in lines if one.finding):
            print(f"    FOUND  {name}: {text}", flush=True)
            wrong.append(name)
    print(
        f"{len(names) - len(set(wrong))} of {len(names)} recipes do what they say; {len(wrong)} findings in the others"
    )
    return len(set(wrong))


def _numeric(names: list[str]) -> int:
    from tasks.core.errors import UserError
    from tasks.lab.checks import load, run_checks

    results = [r for name in names for r in run_checks(load(name))]
    if not results:
        raise UserError(
            f"{', '.join(names)} has no checks: write some under its key `checks` (tasks/lab/checks.py says how)"
        )
    width = max(len(r.recipe) for r in results)
    for r in results:
        print(f"{'ok    ' if r.passed else 'FAILED'}  {r.recipe:<{width}}  {r.name}  ({r.piece})")
        for difference in r.differences:
            print(f"        {difference}")
    failed = sum(not r.passed for r in results)
    print(f"{len(results) - failed} of {len(results)} checks passed")
    return failed


def _evidence(names: list[str]) -> None:
    """Prints what the protocols of these recipes showed, and which of them ran other code than the recipe's pieces have today."""
    from tasks.core.at_rest import files_at_rest
    from tasks.core.errors import UserError
    from tasks.lab.behaviour import WHERE, evidence_of, of_other_code, outdated, verdict

    rows = [(n, where, evidence) for n in names for where in WHERE if (evidence := evidence_of(n, where))]
    if not rows:
        raise UserError(
            f"no evidence of {', '.join(names)}: `espalier check {names[0]} --behaviour --record` makes some"
        )
    width, changed = max(len(n) for n, *_ in rows), 0
    with files_at_rest():
        for name, where, evidence in rows:
            effect, protocol = evidence["effect"], evidence["protocol"]
            other = of_other_code(evidence)
            changed += other
            notes = [f"other constants than today's: {', '.join(x)}"] if (x := outdated(evidence)) else []
            print(
                f"{verdict(evidence):<8}  {'other code' if other else 'as it is':<10}  {name:<{width}}  {where:<9}  {protocol['metric']} "
                f"{protocol['direction']} than {protocol['against']} in {protocol['task']}: {effect['mean']:+.3g} "
                f"[{effect['low']:.3g}, {effect['high']:.3g}], {effect['n']} seeds{''.join(f'; {n}' for n in notes)}"
            )
    print(
        f"{len(rows) - changed} of {len(rows)} protocols ran the recipe's pieces as they are; {changed} ran other code: "
        "`espalier check NAME --behaviour --record` runs one again"
    )


def _behaviour(names: list[str], record: bool, keys: tuple[str, ...]) -> int:
    """Runs the protocols under these keys; a claim fails if its interval does not exclude zero in the claimed
    direction."""
    import sys

    import torch

    from tasks.lab.behaviour import behave, verdict, write
    from tasks.planning.resolve import read_recipe

    torch.set_num_threads(1)  # the worlds are so small that threads would only wait for each other
    failed = 0
    for name, where in ((n, k) for n in names for k in keys if read_recipe(n).get(k)):
        outcome = behave(name, where, progress=lambda text: print(f"        {text}", file=sys.stderr))
        effect, protocol = outcome["effect"], outcome["protocol"]
        failed += not outcome["holds"]
        print(
            f"{'holds' if outcome['holds'] else verdict(outcome).upper():<8}  {name}  {protocol['metric']} {protocol['direction']} than {protocol['against']}: "
            f"{effect['mean']:+.4g} [{effect['low']:.4g}, {effect['high']:.4g}], {effect['n']} seeds, {outcome['seconds']} s"
        )
        if record:
            print(f"        {write(outcome, where)}")
    return failed
