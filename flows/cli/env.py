"""`espalier env list`: the environments in which problems are played, a line each; `espalier env show NAME`: one, with
its knobs."""

from __future__ import annotations

import argparse
from typing import Any


def add(commands: Any) -> None:
    p = commands.add_parser("env", help="list the environments: tools, budgets, what ends an episode")
    what = p.add_subparsers(dest="what", required=True, metavar="list|show")
    every = what.add_parser("list", help="a line for each environment")
    every.set_defaults(run=listed)
    one = what.add_parser("show", help="one environment with its knobs")
    one.add_argument("name", metavar="ENVIRONMENT")
    one.set_defaults(run=shown)


def listed(args: argparse.Namespace) -> int:
    from tasks.planning.environments import environments

    rows = [
        (e.name, e.tools or "none", _pairs(e.budgets) or "-", e.ends or "its file does not say") for e in environments()
    ]
    heads = ("environment", "tools", "budgets", "ends with")
    widths = [max(len(row[i]) for row in [heads, *rows]) for i in range(3)]
    for row in [heads, *rows]:
        print("  ".join([*(f"{x:<{w}}" for x, w in zip(row, widths, strict=False)), row[3]]))
    print(
        "Tokens: sampling.max_turn_tokens of a turn and sampling.max_tokens of a conversation, of the stage that plays it."
    )
    return 0


def shown(args: argparse.Namespace) -> int:
    from tasks.planning.environments import environment

    e = environment(args.name)
    print(f"{e.name}: {e.about}")
    print(f"  tools    {e.tools or 'none'}")
    print(f"  budgets  {_pairs(e.budgets) or '-'}")
    print(f"  ends     {e.ends or 'its file does not say'}")
    for name, default in e.knobs.items():
        print(f"  {name:<16} {default!r}")
    return 0


def _pairs(values: dict[str, Any]) -> str:
    return ", ".join(f"{k} {v:g}" if isinstance(v, int | float) else f"{k} {v}" for k, v in values.items())
