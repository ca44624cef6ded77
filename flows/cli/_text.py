"""Output of commands: columns, and model-written text made safe for a terminal."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tasks.core.errors import UserError
from tasks.core.text import dumps
from tasks.core.text import harmless as plain


def columns(rows: Iterable[Sequence[Any]], indent: str = "  ") -> str:
    """Rows of cells as aligned columns."""
    cells = [[plain(str(c)) for c in row] for row in rows]
    widths = [max(len(r[i]) for r in cells if i < len(r)) for i in range(max(map(len, cells), default=0))]
    return "\n".join((indent + "  ".join(c.ljust(w) for c, w in zip(r, widths, strict=False))).rstrip() for r in cells)


def short(value: Any, width: int = 60) -> str:
    """A value on one line, cut if it is long."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    line = " ".join(plain(text).split())
    return line if len(line) <= width else line[: width - 1] + "…"


def count(text: str) -> int:
    """The type of a count option: a whole number, 0 or more."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text} is no count: give a whole number, 0 or more")
    return int(text)


def grown_from(parser: argparse.ArgumentParser) -> None:
    """The option --kb of a command about questions."""
    parser.add_argument(
        "--kb",
        type=Path,
        default=Path("artifacts/kb"),
        metavar="DIR",
        help="what the questions were grown from (default: artifacts/kb)",
    )


def named_values(option: str, texts: Iterable[str], example: str) -> dict[str, Any]:
    """The values of an option that is given as NAME=VALUE, each in YAML. example: what the message of a mistake advises.

    Raises UserError for a text that is not NAME=VALUE.
    """
    import yaml

    values: dict[str, Any] = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not sign or not name:
            raise UserError(f"{option} {text!r} is no NAME=VALUE: write {example}, say")
        try:
            values[name] = yaml.safe_load(value)
        except yaml.YAMLError as e:
            raise UserError(f"{option} {text!r} has a value that cannot be read: write {example}, say") from e
    return values


def dump(value: Any) -> None:
    """A value as JSON on standard output: the whole output of a command with --json."""
    print(dumps(value, indent=1))
