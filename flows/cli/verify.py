"""`espalier verify FILE`: prove published questions again, from the file and the knowledge base alone; or check foreign
questions."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from flows.cli._text import count


def add(commands: Any) -> None:
    p = commands.add_parser(
        "verify", help="prove published questions again from the file and the knowledge base alone; check others'"
    )
    p.add_argument(
        "file",
        type=Path,
        metavar="FILE",
        help="questions .parquet or .jsonl of ours, or .json/.jsonl rows with V@/C@ triples",
    )
    p.add_argument(
        "--kb", type=Path, metavar="DIR", help="the knowledge base (default: artifacts/kb; for others' questions: none)"
    )
    p.add_argument("--most", type=count, default=10, help="findings to print (default 10)")
    p.add_argument("--json", action="store_true", help="all findings as JSON, one per line")
    p.set_defaults(run=verify)


def verify(args: argparse.Namespace) -> int:
    """Returns 0 if every question is proved (or clean), else 1."""
    from tasks.core.errors import UserError
    from tasks.problems import grow
    from tasks.problems import verify as play

    problems, rows, theirs = [], [], []
    if args.file.suffix == ".parquet":
        problems, _ = grow.read(args.file)
    else:
        rows, theirs = grow.rows(args.file)
    if not problems and not rows and not theirs:
        raise UserError(f"{args.file} holds no question")
    wrong, kb = 0, args.kb or Path("artifacts/kb")
    if problems or rows:
        ours = [row for _, row in rows]
        outcome = play.published(ours, kb, args.file) if ours else play.ours(problems, kb, args.file)
        wrong += outcome["rows"] - outcome["proved"]
        for id_, reason, evidence in outcome["evidence"] if args.json else outcome["evidence"][: args.most]:
            print(
                json.dumps({"id": id_, "reason": reason, "evidence": evidence})
                if args.json
                else f"{id_}  {reason}: {evidence}"
            )
        if not args.json:
            print(
                f"{outcome['proved']} of {outcome['rows']} questions proved again"
                + (f"; refuted: {outcome['refuted']}" if wrong else "")
            )
    if theirs:
        findings, quarantined, count = play.theirs(theirs, args.kb)
        wrong += len(quarantined) + sum(not f["clean"] for f in findings)
        if args.json:
            print("\n".join(json.dumps(f) for f in findings))
            return int(bool(wrong))
        print(f"{len(findings)} questions read, {len(quarantined)} rows quarantined")
        for what, n in count.items():
            print(f"  {n:6d}  {n / max(1, len(findings)):6.1%}  {what}")
        for what, some in (("findings", [*play.sentences(findings)]), ("rows that cannot be read", quarantined)):
            if some:
                print(f"{what}, {min(len(some), args.most)} of {len(some)}:")
            for line in some[: args.most]:
                print(f"  {line[:300]}")
        if args.kb is None:
            print("  whether the answer is unique and no triple can go, a knowledge base says: --kb DIR")
    return int(bool(wrong))
