"""The command line `espalier`. One file per group of commands, found by folder: each has `add(commands)`, which adds
its parsers to the argparse subparsers `commands` and sets `run` (a function of the parsed arguments that returns an
exit code) as their default. Nothing heavy is imported for `--help`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from flows.cli import _tasks
from tasks.core import paths
from tasks.core.errors import UserError, nearest
from tasks.runtime.termination import disk_errors
from tasks.core.text import terminal


class Parser(argparse.ArgumentParser):
    """The parser of `espalier`, whose help lists commands by task: a few of them, or all."""

    def commands(self) -> dict[str, str]:
        """Command -> what it does, in one line."""
        assert self._subparsers is not None
        return {c.dest: c.help or "" for a in self._subparsers._group_actions for c in a._choices_actions}  # type: ignore[attr-defined]

    def format_help(self) -> str:
        return _tasks.screen(self.commands())

    def all_commands(self) -> str:
        return _tasks.screen(self.commands(), everything=True)


def parser() -> tuple[Parser, list[str]]:
    """The parser and the names of its commands."""
    top = Parser(prog="espalier", usage="espalier COMMAND ...")
    commands = top.add_subparsers(
        prog="espalier", required=True, metavar="COMMAND", parser_class=argparse.ArgumentParser
    )
    for path in sorted(Path(__file__).parent.glob("[!_]*.py")):
        import_module(f"flows.cli.{path.stem}").add(commands)
    return top, list(commands.choices)


def _unknown(top: Parser, words: Sequence[str], unknown: Sequence[str]) -> None:
    """Says what a command does not take with the usage of that command, not of all; argparse says it of the first parser."""
    command: argparse.ArgumentParser = top
    for word in words:
        inner = next((a for a in command._actions if isinstance(a, argparse._SubParsersAction)), None)
        if inner is None:
            break
        command = inner.choices.get(word, command)
    options = [o for action in command._actions for o in action.option_strings if o.startswith("--")]
    first = unknown[0].partition("=")[0]
    near = f" ({nearest(first, options)})" if first.startswith("--") else ""
    command.error(f"unrecognized arguments: {' '.join(unknown)}{near}")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code. A user's mistake, or an error of the disk, gives one sentence and
    code 2; without a command the help is shown."""
    with terminal():
        return _main(argv)


def _main(argv: Sequence[str] | None) -> int:
    words = list(sys.argv[1:] if argv is None else argv) or ["--help"]
    if words in (["--help", "--all"], ["-h", "--all"], ["--all"]):
        words = ["help"]
    top, commands = parser()
    if not words[0].startswith("-") and words[0] not in commands:
        print(f"error: there is no command {words[0]!r}: {nearest(words[0], commands)}", file=sys.stderr)
        return 2
    args, unknown = top.parse_known_args(words)
    if unknown:
        _unknown(top, words, unknown)
    paths.allow_remote_code()
    try:
        with disk_errors():
            return args.run(args) or 0
    except UserError as e:
        print(f"error: {e}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # `espalier recipes | head`
        sys.stderr.close()
        return 0
