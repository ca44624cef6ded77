"""`espalier audit FILE`: copies, contradictions, cycles and length in preference pairs, in every layout that `espalier
clean` reads; a million rows in minutes."""

from __future__ import annotations

import argparse
import json
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flows.cli._rows import add_rows, reader_of
from flows.cli._text import count

if TYPE_CHECKING:
    from tasks.rows.audit import Audit


def add(commands: Any) -> None:
    p = commands.add_parser(
        "audit",
        help="copies, contradictions, cycles and length in a large file of preference pairs; nothing is changed",
    )
    add_rows(p)
    p.add_argument(
        "--threshold",
        type=float,
        default=0.7,
        help="Jaccard similarity of near duplicates, for each side separately (default: 0.7)",
    )
    p.add_argument(
        "--out", type=Path, help="folder for faults.jsonl, quarantine.jsonl and card.json (default: none is written)"
    )
    p.add_argument("--processes", type=count, default=0, help="that read the file (default: one per core)")
    p.add_argument(
        "--ray",
        default="",
        metavar="HOST:PORT",
        help="Ray cluster whose machines read the file in place of --processes (docs/scaling.md)",
    )
    p.set_defaults(run=audit)


def audit(args: argparse.Namespace) -> int:
    from tasks.core.errors import UserError
    from tasks.rows.audit import audit_rows, kept_of
    from tasks.rows.files import LINES
    from tasks.runtime.progress import Progress

    if not 0 < args.threshold <= 1:
        raise UserError(f"--threshold {args.threshold} must lie in (0, 1]")
    if args.ray:
        from tasks.planning.places import check_address

        check_address(args.ray, "--ray")
    path, reader = Path(args.file), reader_of(args)
    knobs = {"split": args.split, "threshold": args.threshold}
    size = path.stat().st_size if path.is_file() and path.suffix in LINES else None
    with ExitStack() as stack:
        parts = stack.enter_context(kept_of(args.file, reader, args.out, **knobs)) if args.out else None
        with Progress(size, "audit") as progress:
            work = {"processes": args.processes, "ray": args.ray}
            report = audit_rows(args.file, reader, done=progress.update, parts=parts, **work, **knobs)
        if args.out:
            _write(report, args.out)
    card = report.card
    print(
        f"{card['lines']:,} lines, {card['pairs']:,} pairs of {card['prompts']:,} prompts, {sum(card['words'].values()):,} words"
    )
    for name, counts in (("quarantined", card["quarantined"]), ("faults", card["faults"])):
        print(f"  {name}: {', '.join(f'{code} {n:,}' for code, n in counts.items()) or 'none'}")
    length = card["length"]
    if length["n"]:
        print(
            f"  the longer side is chosen in {length['share']:.1%} [{length['low']:.1%}, {length['high']:.1%}] of {length['n']:,} pairs"
        )
    if args.out:
        print(f"wrote faults.jsonl, quarantine.jsonl and card.json to {args.out}")
    return 0


def _write(report: Audit, out: Path) -> None:
    """Each file replaces an earlier one when it is whole."""
    files = {
        "faults.jsonl": (json.dumps(_fault(report, line, code, other)) for line, code, other in report.faults),
        "quarantine.jsonl": (json.dumps(vars(q), ensure_ascii=False) for q in report.quarantined),
        "card.json": [json.dumps(report.card, indent=1, sort_keys=True)],
    }
    out.mkdir(parents=True, exist_ok=True)
    for name, lines in files.items():
        with (out / f".{name}.part").open("w", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in lines)
    for name in files:
        (out / f".{name}.part").replace(out / name)


def _fault(report: Audit, line: int, code: str, other: int) -> dict[str, Any]:
    """A row of faults.jsonl: line or row numbers, with their files if there are several."""
    (name, at), (beside, to) = report.place(line), report.place(other or line)
    out = {"line": at, "reason": code, "other_line": to if other else None}
    if report.files:
        out |= {"file": name.rpartition(" ")[0], "other_file": beside.rpartition(" ")[0] if other else None}
    return out
