"""The options for reading rows in foreign layouts, shared by `espalier clean` and `espalier audit`."""

from __future__ import annotations

import argparse
from typing import Any

from flows.cli._text import count


def add_rows(p: argparse.ArgumentParser) -> None:
    p.add_argument(
        "file",
        metavar="FILE",
        help="JSON lines, JSON, CSV, Parquet or Arrow, a folder of them, or owner/name on the Hub",
    )
    p.add_argument("--split", default="train", help="of a dataset that has several (default: train)")
    p.add_argument(
        "--columns",
        default="",
        metavar="OURS=YOURS,...",
        help="your columns: prompt=question,chosen=better,rejected=worse",
    )
    p.add_argument(
        "--scale", default="", metavar="WORDS", help="words of a rating scale, the worst first: bad,fair,good"
    )
    p.add_argument(
        "--limit",
        type=count,
        default=200_000,
        help="characters of a prompt or side; longer rows are quarantined (default: 200000)",
    )


def reader_of(args: argparse.Namespace) -> Any:
    """The reader that turns rows into pairs (`synth.preferences.imported.Reader`). Raises UserError for invalid
    --columns."""
    from tasks.rows.files import reader_of

    return reader_of(args.file, columns=args.columns, scale=args.scale, limit=args.limit)
