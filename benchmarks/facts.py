"""Facts that `espalier kb build` reads in plain paragraphs, drawn for a person to compare with their sentences.

    python -m benchmarks.facts                 # draws the sample and prints each fact above its sentence
    python -m benchmarks.facts --record FILE   # FILE has a line for each fault: its number in the sample, then what is wrong

Three samples, drawn by a hash from the paragraphs of ../shared/data/2wiki: facts of all relations, facts that link two things
(without nationalities, occupations and genres), and pages with the type that was given to them. With --record the sample and
its faults are written to benchmarks/runs/facts.json, from which docs/examples/facts.md is made (`python -m docs.generators.facts`).
Sentences are printed, and not kept: they belong to their authors.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tasks.knowledge import bases
from tasks.knowledge.guess import sources_at
from tasks.storage import tables

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT.parent / "shared" / "data" / "2wiki"
RESULT = ROOT / "benchmarks" / "runs" / "facts.json"
SEED = 8
SIZES = {"facts": 130, "links": 130, "types": 160}
EASY = ("nationality", "occupation", "genre")  # the ends of their names


def drawn(name: str, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of a sample, in the order of a hash of what they say."""
    order = lambda r: hashlib.sha256(f"{SEED} {name} {r['says']}".encode()).digest()  # noqa: E731
    return sorted(rows, key=order)[: SIZES[name]]


def samples(kb: Path) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """(name, rows) of each sample: `says` is the fact, `place` the page and its characters, `text` the sentence there."""
    said = [
        {
            "says": f"{r['subject']} | {r['relation']} | {r['object'] or r['literal']}",
            "place": r["source"].rpartition("#")[2],
            "text": " ".join((r["span"] or "").split()),
            "link": r["object"] is not None and not r["relation"].endswith(EASY),
        }
        for r in rows_of(kb / "facts.parquet")
    ]
    yield "facts", drawn("facts", said)
    yield "links", drawn("links", [r for r in said if r["link"]])
    pages = {r["title"]: r for r in rows_of(kb / "documents.parquet")}
    typed = [
        {
            "says": f"{r['name']} | {r['type']}",
            "place": pages[r["name"]]["id"].rpartition("#")[2],
            "text": " ".join(pages[r["name"]]["text"].split())[:200],
        }
        for r in rows_of(kb / "entities.parquet")
        if r["name"] in pages
    ]
    yield "types", drawn("types", typed)


def rows_of(path: Path) -> list[dict[str, Any]]:
    return tables.raw(path).to_pylist()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", type=Path, metavar="FILE")
    args = parser.parse_args()
    if not DATA.is_dir():
        raise SystemExit(f"the paragraphs are not there: {DATA}")
    faults = {}
    if args.record:
        for line in args.record.read_text(encoding="utf-8").splitlines():
            name, number, why = line.split(maxsplit=2)
            faults[name, int(number)] = why
    kept: dict[str, Any] = {"command": "python -m benchmarks.facts", "seed": SEED, "samples": {}}
    with tempfile.TemporaryDirectory() as folder:
        bases.build_base(sources_at(DATA), Path(folder) / "kb")
        for name, rows in samples(Path(folder) / "kb"):
            kept["samples"][name] = [
                {"says": r["says"], "place": r["place"], "fault": faults.pop((name, i), "")} for i, r in enumerate(rows)
            ]
            if not args.record:
                for i, r in enumerate(rows):
                    print(f"{name} {i}  {r['says']}\n    {r['text']}")
    if faults:
        raise SystemExit(f"no such row in the sample: {sorted(faults)}")
    if args.record:
        RESULT.write_text(json.dumps(kept, indent=0, ensure_ascii=False) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
