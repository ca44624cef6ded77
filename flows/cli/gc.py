"""`espalier gc`: free disk space; `espalier gc --damaged`: remove files that have changed since they were written."""

from __future__ import annotations

import argparse
from typing import Any

from tasks.core.paths import inside


def add(commands: Any) -> None:
    p = commands.add_parser(
        "gc",
        help="free disk space: work that nothing goes on from, shipped events, and over the budget caches and runs",
    )
    p.add_argument("--dry-run", action="store_true", help="print what would be removed, and stop")
    p.add_argument(
        "--damaged",
        action="store_true",
        help="instead: hash all outputs and DVC's cache, and remove damaged files",
    )
    p.set_defaults(run=gc)


def gc(args: argparse.Namespace) -> int:
    """Raises UserError outside a project, and during a run."""
    from tasks.results import garbage
    from tasks.runtime import dvc

    root = inside()
    would = "would be removed" if args.dry_run else "removed"
    with dvc.alone(root):
        if args.damaged:
            damaged = garbage.damaged(root, dry=args.dry_run)
            print(
                "\n".join(
                    [
                        *damaged,
                        f"{len(damaged)} damaged, {would}" + ("; `espalier run` makes them anew" if damaged else ""),
                    ]
                )
            )
            return 0
        freed = garbage.collect(root, dry=args.dry_run)
    for item in freed.items:
        print(f"{megabytes(item.bytes):>10}  {item.what}")
    print(
        f"{megabytes(sum(i.bytes for i in freed.items)):>10}  {would}; {megabytes(freed.used)} of {megabytes(freed.budget)} (disk_gb) are in use then"
    )
    if freed.used > freed.budget:
        print(
            "Still over the budget: raise disk_gb in params.yaml, remove commits or experiments (`dvc exp remove`), or move the cache (`dvc cache dir`)."
        )
        return 1
    return 0


def megabytes(n: int) -> str:
    return f"{n / 1e6:,.1f} MB"
