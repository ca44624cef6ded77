"""A CSV of a million rows as a knowledge base: `make bench-reading`

A made-up table of N rows (name, category, city, year, a length with its unit: four facts each) is read by columns
(`synth.knowledge.cells`, `column_base`) and written as entities, relations, facts, passages and postings, by a process of
its own: CPU seconds of each part, and the process's peak memory. The rows (`csv_records` and `ingest.build`, which read
tables below 4 MB) get a tenth of the rows up to the knowledge base in memory, nothing written.
"""

from __future__ import annotations

import argparse
import csv
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from benchmarks.rows import result_row

ROOT = Path(__file__).resolve().parents[1]
RESULT = ROOT / "benchmarks" / "results" / "reading.json"
ROWS = 1_000_000
FIRST = ("Nor", "Zel", "Mar", "Tol", "Bre", "Kas", "Vin", "Lor", "Del", "Hap", "Quin", "Ost")
LAST = ("ton", "via", "dale", "burg", "ford", "stad", "mere", "wick", "holm", "fell")


def table(path: Path, n: int, *, linked: bool = False) -> None:
    """A table of n rows, the same for the same n. `linked`: with a column of names of other rows."""
    rng = random.Random(0)
    words = [f"{a}{b}" for a in FIRST for b in LAST]
    kinds = [f"{a}{b}" for a in ("Stone", "Iron", "Glass", "Wood", "Brick") for b in ("works", "house", "hall", "yard")]
    cities = [f"{word} {end}" for word in words for end in ("North", "South")]
    with path.open("w", newline="", encoding="utf-8") as file:
        out = csv.writer(file)
        out.writerow(["name", "category", "city", "founded", "height", *(["model"] if linked else [])])
        for i in range(n):
            row = [name_of(words, i), rng.choice(kinds), rng.choice(cities), rng.randrange(1500, 2020)]
            out.writerow([*row, f"{rng.randrange(3, 300)} m", *([name_of(words, rng.randrange(n))] if linked else [])])


def name_of(words: list[str], i: int) -> str:
    """The name of row i."""
    return f"{words[i % 120]} {words[i // 120 % 120]}{words[i // 14_400 % 120].lower()}"


def measured(path: Path, way: str) -> dict[str, float]:
    """CPU seconds of each part and peak memory in MB of this process, which does nothing else."""
    from synth.knowledge.cells import read_cells
    from synth.knowledge.column_base import ColumnBase
    from synth.knowledge.ingest import build
    from synth.knowledge.sources import read_source
    from tasks.knowledge import column_tables

    begin, parts = time.process_time(), {}
    if way == "columns":
        cells = read_cells(path, path.name, type="hall")
        assert cells is not None
        base = ColumnBase.of(cells)
        assert base is not None
        parts["read and understood (s)"] = time.process_time() - begin
        with tempfile.TemporaryDirectory() as folder:
            column_tables.write_tables(Path(folder), base)
        parts["facts"] = base.accepted
    else:
        parts["facts"] = build([read_source(path, "csv_records", name=path.name, type="hall")]).accepted
    parts["in all (s)"] = time.process_time() - begin
    parts["peak memory (MB)"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return parts


def result(case: str, metric: str, value: float, n: int) -> dict:
    name, _, unit = metric.partition(" (")
    better = "higher" if name == "facts" else "lower"
    return result_row(case, name, value, unit.rstrip(")"), "make bench-reading", n, better=better, one_core=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=ROWS, help="rows of the table that is read by columns")
    parser.add_argument("--read", type=Path, help="measure this table alone, in this process")
    parser.add_argument("--way", choices=["columns", "rows"], default="columns")
    args = parser.parse_args()
    if args.read:
        print(json.dumps(measured(args.read, args.way)))
        return 0
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for way, n, words in (
            ("columns", args.rows, "written as tables, by columns"),
            ("rows", args.rows // 10, "in memory, by rows"),
        ):
            path = Path(folder) / f"{way}.csv"
            table(path, n)
            command = [sys.executable, "-m", "benchmarks.reading", "--read", str(path), "--way", way]
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
            new = [result(f"{n:,} rows, {words}", metric, v, n) for metric, v in json.loads(done.stdout).items()]
            print("  ".join(f"{r['metric']} {r['value']:,.4g} {r['unit']}" for r in new), flush=True)
            rows += new
    RESULT.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
