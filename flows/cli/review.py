"""`espalier review FILE`: decide about pairs in the terminal or on a local page; decisions become anchors."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from flows.cli._text import count, plain

KEYS = {"1": "first", "2": "second", "t": "tie", "s": "skip"}


def add(commands: Any) -> None:
    p = commands.add_parser(
        "review",
        help="decide about the pairs that a cleaner asks about; what you say becomes anchors of the stage clean",
    )
    p.add_argument(
        "file",
        metavar="FILE",
        type=Path,
        help="pairs: a table such as artifacts/clean/pairs.parquet, or JSONL with prompt, chosen, rejected",
    )
    p.add_argument(
        "--to",
        metavar="FILE",
        type=Path,
        default=Path("data/reviews.jsonl"),
        help="where decisions go (default: data/reviews.jsonl)",
    )
    p.add_argument(
        "--sample", metavar="N", type=count, help="instead of those asked about: N pairs drawn by hash (0: all)"
    )
    p.add_argument("--page", action="store_true", help="decide in the browser")
    p.add_argument("--port", type=int, default=0, help="of the page (default: a free one)")
    p.add_argument("--reviewer", default="", help="name stored with each decision (default: the user's)")
    p.add_argument("--summary", action="store_true", help="print the decisions so far, and stop")
    p.set_defaults(run=review)


def review(args: argparse.Namespace) -> int:
    from tasks.results.review import Review

    sitting = Review(args.file, args.to, sample=args.sample, reviewer=args.reviewer)
    if args.page and not args.summary:
        from tasks.results.review_page import serve

        try:
            serve(
                sitting,
                args.port,
                lambda url: print(f"Decide at {url} (Ctrl-C ends; every decision is kept)", flush=True),
            )
        except KeyboardInterrupt:
            print()
    elif not args.summary:
        terminal(sitting)
    print("\n".join(sitting.summary()))
    print(
        f"Decisions: {args.to}. To use them: `espalier clean FILE --reviews {args.to}`, or, in a pipeline, `clean: {{reviews: {args.to}}}` "
        "below `set` in params.yaml."
    )
    return 0


def terminal(sitting: Any) -> None:
    """Reads 1, 2, t, s, u or q, one per line, until the end of the input."""
    while (shown := sitting.next()) is not None:
        print(f"\n--- {sitting.left} left " + "-" * 40)
        for m in shown.pair.prompt:
            print(f"{m.role}: {plain(m.content)}")
        for n, side in enumerate(shown.sides, 1):
            print(f"  [{n}] {plain(side)}")
        while True:
            print("better: 1, 2, t (tie), s (skip), u (undo), q (stop): ", end="", flush=True)
            line = sys.stdin.readline()
            key = line.strip().lower()
            if not line or key == "q":
                print()
                return
            if key in KEYS:
                sitting.decide(shown, KEYS[key])
                break
            if key == "u":
                print("taken back" if sitting.undo() else "nothing to take back")
                break
