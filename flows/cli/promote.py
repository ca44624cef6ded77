"""`espalier promote`: register the trained model, and make it the champion if it is better on the held-out set."""

from __future__ import annotations

import argparse
from typing import Any

from tasks.core.paths import project


def add(commands: Any) -> None:
    p = commands.add_parser(
        "promote", help="register the model; move the alias `champion` to it where its interval says that it is better"
    )
    p.add_argument("--model", default="rl", help="stage whose model is promoted (default: rl)")
    p.add_argument("--force", action="store_true", help="move the alias regardless of the comparison")
    p.add_argument("--rollback", action="store_true", help="move the alias back to its previous version")
    p.add_argument(
        "--measure-champion",
        action="store_true",
        help="play the current held-out questions with the champion, so that other models can be compared with it",
    )
    p.set_defaults(run=promote)


def promote(args: argparse.Namespace) -> int:
    from tasks.results import promote as task

    if args.rollback:
        print(task.rollback(project()))
    elif args.measure_champion:
        print(task.measure_champion(project()))
    else:
        print(task.promote(project(), model=args.model, force=args.force))
    return 0
