"""`espalier why ROW`: why a row was kept or dropped, with its proof."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from typing import Any

from flows.cli._text import dump, plain
from tasks.core.paths import project


def add(commands: Any) -> None:
    p = commands.add_parser(
        "why", help="why a row was kept or dropped: every decision about it, and its proof made again"
    )
    p.add_argument(
        "row",
        metavar="ROW",
        help="id of a fact, problem, demonstration, pair or quarantined row, its beginning, or words of its text",
    )
    p.add_argument(
        "--of",
        metavar="STATE",
        default="workspace",
        help="commit, experiment or registered model to ask (default: workspace)",
    )
    p.add_argument("--json", action="store_true", help="print everything as JSON")
    p.set_defaults(run=why)


def why(args: argparse.Namespace) -> int:
    from tasks.results import why as task
    from tasks.results.snapshots import snapshot

    state = snapshot(project(), args.of)
    events = task.why(state, args.row)
    first = events[0]
    proof = proved(state, first)
    relatives = task.relatives(state, first.id) if first.table == "problems" else {}
    if args.json:
        dump(
            {
                "id": first.id,
                "events": [{"stage": e.stage, "table": e.table, **e.columns} for e in events],
                "made_of_it": relatives,
                "proof": {"holds": proof.holds, "lines": list(proof.lines)} if proof else None,
            }
        )
        return 0
    print(f"{first.id}")
    for event in events:
        for line in said(event):
            print(f"  {plain(line)}")
    if proof:
        print(f"proof: {'holds' if proof.holds else 'nothing to prove' if proof.holds is None else 'FAILS'}")
        for line in proof.lines:
            print(f"  {plain(line)}")
    for line in of_it(relatives):
        print(plain(line))
    return 0


def proved(state: Any, event: Any) -> Any:
    """The proof of the row, where it is one of a kind that has proofs."""
    from tasks.results import rows

    return rows.prove(state, event)


def said(event: Any) -> Iterator[str]:
    """One event in words."""
    from tasks.results.why import question

    r, at = event.columns, event.stage
    if event.table == "own":
        drawn = "" if r["weight"] == 1 else f", weight {r['weight']:g}"
        yield f"{at}: {r['place']} of {r['file']}{drawn}"
    elif event.table == "quarantine":
        yield f"{at}: quarantined, {r['reason']}: {r['evidence']}"
    elif event.table == "decisions":
        yield f"{at}: {r['step']} says {r['action']} ({r['reason']}, score {r['score']:.4g})"
    elif event.table == "truth":
        yield f"{at}: planted (no cleaner reads this): flipped {r['flip']}, copy {r['copy'] or 'no'}, error {r['error'] or 'none'}"
    elif event.table == "facts":
        yield f"{at}: accepted fact: {r['subject']} {r['relation']} {r['object'] or r['literal']}"
    elif event.table == "problems":
        lineage = json.loads(r["lineage"])
        yield f"{at}: accepted: {question(r)}"
        yield f"    answer {r['answer']!r}, verifier {r['verifier']}, family {r['family']}, difficulty {r['difficulty']}"
        yield f"    split {r['split']}: decided by the hash of its root {lineage.get('root', '?')}; index {lineage.get('index', '?')}"
    elif event.table == "demonstrations":
        yield f"{at}: demonstration of problem {r['problem']} ({r['split']}), {r['calls']} searches, {r['detours']} detours"
        for m in json.loads(r["messages"]):
            yield f"    {m['role']}: {' / '.join(m['content'].splitlines())}"
    else:
        kept = {"removed": "removed, and kept beside", "pairs": "kept" if at == "clean" else "made"}[event.table]
        yield f"{at}: {kept}; {question(r)}"
        yield f"    chosen   {r['chosen']}"
        yield f"    rejected {r['rejected']}    ({r['source']}, {r['split']}, problem {r['problem'] or 'none'})"


def of_it(relatives: dict[str, list[dict[str, Any]]]) -> Iterator[str]:
    if relatives:
        yield "made of it:"
    for what, rows in relatives.items():
        for r in rows:
            yield f"  {what}: " + (
                f"{r['run']} was right in {r['right']} of {r['samples']} samples"
                if what == "scores"
                else f"{r['id']} ({r['split']})"
            )
