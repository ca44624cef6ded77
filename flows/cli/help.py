"""`espalier help [COMMAND]`: all commands by task, or the arguments of one."""

from __future__ import annotations

import argparse
from typing import Any

from tasks.core.errors import UserError, nearest


def add(commands: Any) -> None:
    p = commands.add_parser("help", help="all commands, by task; `help COMMAND`: what one takes")
    p.add_argument(
        "command", nargs="?", metavar="COMMAND", help="the command that is explained; without one, all are listed"
    )
    p.set_defaults(run=show)


def show(args: argparse.Namespace) -> int:
    """Raises UserError for an unknown command."""
    from flows.cli import parser

    top, commands = parser()
    if not args.command:
        print(top.all_commands(), end="")
    elif args.command not in commands:
        raise UserError(f"there is no command {args.command!r}: {nearest(args.command, commands)}")
    else:
        top.parse_args([args.command, "--help"])
    return 0
