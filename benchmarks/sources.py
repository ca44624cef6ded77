"""How many questions do real sources carry, all gates on? `make bench-sources`

For each source below ../shared/data a knowledge base is built (countries, alone and with the factbook, by
benchmarks/schemas; the others without a schema, as `espalier kb build` understands them), and trees of depth 2 and 3
are asked for until WANTED are accepted or every root was tried TRIES times over. Every accepted question is then proved
again from its row and the base alone. "Asked again" are those about an attribute of a root that an earlier one asks; the
largest shares are those of the quotas (`synth.questions.quotas`). Reasons of what was quarantined are in the rows "quarantined: REASON", in questions;
the world is closed, as the card of each file says.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from benchmarks.rows import result_row
from synth.questions.quotas import diversity
from synth.questions.reprove import Reprover, reprove
from synth.types import Problem
from tasks.knowledge import bases, knowledge
from tasks.knowledge.guess import guess
from tasks.knowledge.schema import read_schema
from tasks.problems import grow

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT.parent / "shared" / "data"
RESULT = ROOT / "benchmarks" / "results" / "sources.json"
WANTED, DEPTHS, TRIES = 1200, (2, 3), 4
SCHEMA = ROOT / "benchmarks" / "schemas" / "countries-factbook.yaml"
SOURCES = {
    "countries and factbook": ["countries/countries.json", "factbook"],
    "countries": ["countries/countries.json"],
    "factbook": ["factbook"],
    "chinook": ["chinook/Chinook_Sqlite.sql"],
    "2wiki": ["2wiki/2wikimultihopqa_corpus.json"],
}


def measure(case: str, paths: list[Path], wanted: int) -> list[dict]:
    """The results of one source."""
    schema = SCHEMA if paths[0].name == "countries.json" else None
    sources, relations = read_schema(schema) if schema else ([guess(p) for p in paths], {})
    if schema:
        sources = bases.sources_of(paths, [s for s in sources if any(str(s["path"]).endswith(p.name) for p in paths)])
        relations = relations if any(s["kind"] == "documents" for s in sources) else {}
    with tempfile.TemporaryDirectory() as folder:
        kb = Path(folder) / "kb"
        card = bases.build_base(sources, kb, relations=relations)
        begin = time.process_time()
        only = (
            [*relations, "land_boundaries_border_countries", *(f for s in sources for f in s.get("fields", ()))]
            if schema
            else []
        )
        only = [r for r in only if r in knowledge.kb_at(kb).relations]
        cells = grow.cells({"train": wanted - wanted // 5, "test": wanted // 5}, DEPTHS)
        accepted, quarantined = grow.grow(kb, cells, tries=TRIES, seed=0, closed_world=True, only=only)
        seconds = time.process_time() - begin
        proved = reprove(Reprover(knowledge.kb_at(kb)), accepted)["proved"]
        alike = diversity(accepted, knowledge.ranges_at(kb))
    near = near_duplicates(accepted)
    again = alike.pop("asked_again")
    assert isinstance(again, float)
    most = {name: max(some.values(), default=0) for name, some in alike.items() if isinstance(some, dict)}
    n = len(accepted) + len(quarantined)
    return [
        result(case, "facts", card["facts"], "", "higher", card["entities"]),
        result(case, "accepted", len(accepted), "questions", "higher", n),
        result(case, "proved again", 100 * proved / max(1, len(accepted)), "%", "higher", len(accepted)),
        result(case, "near duplicates", 100 * near / max(1, len(accepted)), "%", "lower", len(accepted)),
        result(case, "asked again", 100 * again, "%", "lower", len(accepted)),
        *(
            result(case, f"largest share of one {name}", 100 * x, "%", "lower", len(accepted))
            for name, x in most.items()
        ),
        result(case, "accepted in a second of CPU time", len(accepted) / seconds, "questions/s", "higher", n),
        *(
            result(case, f"quarantined: {reason}", count, "questions", "lower", n)
            for reason, count in sorted(Counter(q.reason for q in quarantined).items())
        ),
    ]


def near_duplicates(problems: list[Problem], threshold: float = 0.8) -> int:
    """How many questions have four fifths of their runs of three words in common with an earlier one."""
    holders: dict[tuple, list[int]] = {}
    shingles = [set(zip(*(p.question.lower().split()[i:] for i in range(3)), strict=False)) for p in problems]
    near = 0
    for i, mine in enumerate(shingles):
        shared = Counter(j for s in mine for j in holders.get(s, ()))
        near += any(n / (len(mine) + len(shingles[j]) - n) >= threshold for j, n in shared.items())
        for s in mine:
            holders.setdefault(s, []).append(i)
    return near


def result(case: str, metric: str, value: float, unit: str, better: str, n: int) -> dict:
    return result_row(case, metric, value, unit, "make bench-sources", n, better=better, one_core=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--case", action="append", choices=list(SOURCES), help="measure this source alone (may be repeated)"
    )
    parser.add_argument("--wanted", type=int, default=WANTED, help="questions of each source")
    args = parser.parse_args()
    rows = json.loads(RESULT.read_text()) if args.case and RESULT.exists() else []
    for case in args.case or SOURCES:
        paths = [DATA / p for p in SOURCES[case]]
        if missing := [p for p in paths if not p.exists()]:
            print(f"{case}: {missing[0]} is not there, left out", file=sys.stderr)
            continue
        new = measure(case, paths, args.wanted)
        rows = [r for r in rows if r["case"] != case] + new
        print(
            "  ".join([f"{case}:", *(f"{r['metric']} {r['value']:,.4g}{r['unit'] and ' ' + r['unit']}" for r in new)]),
            flush=True,
        )
    RESULT.parent.mkdir(parents=True, exist_ok=True)
    RESULT.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
