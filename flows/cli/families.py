"""`espalier families`: the families of verifiable problems, a line each."""

from __future__ import annotations

import argparse
from typing import Any


def add(commands: Any) -> None:
    p = commands.add_parser("families", help="list the families of problems: levels, items per second, certificate")
    p.add_argument("name", nargs="?", metavar="FAMILY", help="show one family: the knobs of every level, and a problem")
    p.set_defaults(run=families)


def families(args: argparse.Namespace) -> int:
    from tasks.core.errors import UserError, nearest
    from tasks.planning.families import FOLDER
    from tasks.planning.families import families as every
    from tasks.planning.pieces import files

    known = files(FOLDER)
    if args.name is not None:
        name = args.name.replace("-", "_")
        if name not in known:
            raise UserError(f"there is no family {args.name!r}: {nearest(args.name, known)}")
        one = next(f for f in every(seconds=0) if f.name == name)
        print(f"{one.name}: {' | '.join(one.certificate)}")
        for level, knobs in enumerate(one.levels, 1):
            print(f"  level {level}: {', '.join(f'{k} {v}' for k, v in knobs.items())}")
        print(f"  {one.example}")
        return 0
    width = max(map(len, known))
    print(f"{'family':<{width}}  levels  items/s  certificate")
    for one in every():
        rate = "" if one.rate is None else f"{one.rate:,.0f}"
        print(f"{one.name:<{width}}  {len(one.levels):>6}  {rate:>7}  {' | '.join(one.certificate)}")
    return 0
