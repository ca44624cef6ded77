"""A CSV of a million rows as a knowledge base: `make bench-reading`

A made-up table of N rows (name, category, city, year, a length with its unit: four facts each) is read by columns
(`synth.knowledge.cells`, `column_base`) and written as entities, relations, facts, passages and postings, by a process of
its own: CPU seconds of each part, and the process's peak memory. The rows (`csv_records` and `ingest.build`, which read
tables below 4 MB) get a tenth of the rows up to the knowledge base in memory, nothing written. What comes on top, of N
rows and of a tenth of them, each in a process of its own: the SQL database, the search index, and `questions grow`, for
which the table has a fifth column, the name of another row (ASKED questions of depth 2; world closed). `espalier kb
build` whole, and by its parts, of N rows with six columns and of a fifth of them (`--six FILE` writes such a table, `--eight
FILE` one with more different texts). `--only WAY ...` measures some of these alone and keeps the other results.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.rows import result_row

if TYPE_CHECKING:
    from synth.knowledge.column_base import ColumnBase

ROOT = Path(__file__).resolve().parents[1]
RESULT = ROOT / "benchmarks" / "results" / "reading.json"
ROWS, ASKED = 1_000_000, 50
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


def six(path: Path, n: int) -> None:
    """A table of n rows with six columns: id, name, category of 50, country of 100, a number and a date."""
    rng = random.Random(0)
    words = [f"{a}{b}" for a in FIRST for b in LAST]
    with path.open("w", newline="", encoding="utf-8") as file:
        out = csv.writer(file)
        out.writerow(["id", "name", "category", "country", "weight", "launched"])
        for i in range(n):
            day = f"{rng.randrange(1950, 2020)}-{rng.randrange(1, 13):02}-{rng.randrange(1, 29):02}"
            kinds = f"{rng.choice(words[:50])} class", f"{rng.choice(words[:100])}land"
            out.writerow([i + 1, name_of(words, i), *kinds, rng.randrange(1, 50_000), day])


def eight(path: Path, n: int) -> None:
    """A table of n rows with eight columns: id, name, category of 50, city of 5,000, two numbers, a date and a text of five
    words."""
    rng = random.Random(28)
    syllables = [a + b for a in "bdfgklmnprstvz" for b in "aeiou"]

    def word(k: int) -> str:
        return "".join(rng.choice(syllables) for _ in range(k))

    kinds = sorted({word(3) for _ in range(80)})[:50]
    cities = sorted({word(4).title() for _ in range(6000)})[:5000]
    words = sorted({word(rng.randint(2, 3)) for _ in range(9000)})[:5000]
    seen: set[str] = set()
    with path.open("w", newline="", encoding="utf-8") as file:
        out = csv.writer(file)
        out.writerow(["id", "name", "category", "city", "weight", "score", "opened", "note"])
        for i in range(n):
            while (name := f"{word(3).title()} {word(3).title()}") in seen:
                pass
            seen.add(name)
            row = [f"r{i:07}", name, rng.choice(kinds), rng.choice(cities)]
            row += [rng.randint(1, 100_000), round(rng.uniform(0, 1000), 2)]
            day = f"{rng.randint(1900, 2024)}-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}"
            out.writerow([*row, day, " ".join(rng.choice(words) for _ in range(5))])


def name_of(words: list[str], i: int) -> str:
    """The name of row i."""
    return f"{words[i % 120]} {words[i // 120 % 120]}{words[i // 14_400 % 120].lower()}"


def measured(path: Path, way: str, folder: Path) -> dict[str, float]:
    """CPU seconds of each part and peak memory in MB of this process, which does nothing else."""
    begin = time.process_time()
    parts = WAYS[way](path, folder, begin)
    parts["in all (s)"] = time.process_time() - begin
    parts["peak memory (MB)"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return parts


def read(path: Path, begin: float) -> tuple[ColumnBase, dict[str, float]]:
    from synth.knowledge.cells import read_cells
    from synth.knowledge.column_base import ColumnBase

    cells = read_cells(path, path.name, type="hall")
    assert cells is not None
    base = ColumnBase.of(cells)
    assert base is not None
    return base, {"read and understood (s)": time.process_time() - begin, "facts": base.accepted}


def tables(path: Path, folder: Path, begin: float) -> dict[str, float]:
    from tasks.knowledge import column_tables

    base, parts = read(path, begin)
    column_tables.write_tables(folder, base)
    return parts


def by_rows(path: Path, folder: Path, begin: float) -> dict[str, float]:
    from synth.knowledge.ingest import build
    from synth.knowledge.sources import read_source

    return {"facts": build([read_source(path, "csv_records", name=path.name, type="hall")]).accepted}


def sql(path: Path, folder: Path, begin: float) -> dict[str, float]:
    from tasks.knowledge import column_tables

    base, parts = read(path, begin)
    column_tables.write_sql(folder, base)
    return parts


def index(path: Path, folder: Path, begin: float) -> dict[str, float]:
    from synth.search.index import build_index
    from tasks.knowledge import column_tables

    base, parts = read(path, begin)
    build_index(column_tables.pages(base), folder / "index")
    return parts


def build(path: Path, folder: Path, begin: float) -> dict[str, float]:
    """What `espalier kb build` does with such a table, and CPU seconds of its parts."""
    from synth.search.index import build_index
    from tasks.knowledge import column_tables

    base, parts = read(path, begin)

    def indexed() -> None:
        base.forget()
        build_index(column_tables.pages(base), folder / "index")

    for part, work in (
        ("tables", lambda: column_tables.write_tables(folder, base)),
        ("SQL", lambda: column_tables.write_sql(folder, base)),
        ("digest", base.digest),
        ("search index", indexed),
    ):
        start = time.process_time()
        work()
        parts[f"{part} (s)"] = time.process_time() - start
    return parts


def stored(path: Path, folder: Path, begin: float) -> dict[str, float]:
    """What `questions grow` reads."""
    from tasks.knowledge import column_tables

    base, parts = read(path, begin)
    column_tables.write_tables(folder, base)
    column_tables.write_sql(folder, base)
    (folder / "card.json").write_text(json.dumps({"kb": base.digest()}), encoding="utf-8")
    return parts


def grown(path: Path, folder: Path, begin: float) -> dict[str, float]:
    from flows.cli import main

    wanted = ["--n", str(ASKED), "--depths", "2", "--closed-world"]
    with contextlib.redirect_stdout(sys.stderr):
        assert not main(["questions", "grow", "--kb", str(folder), "--out", str(folder / "questions"), *wanted])
    card = json.loads((folder / "questions" / "card.json").read_text(encoding="utf-8"))
    return {"questions": card["accepted"]}


WAYS = {
    "tables": tables,
    "rows": by_rows,
    "sql": sql,
    "index": index,
    "build": build,
    "stored": stored,
    "grown": grown,
}


def result(case: str, metric: str, value: float, n: int) -> dict:
    name, _, unit = metric.partition(" (")
    better = "higher" if name in ("facts", "questions") else "lower"
    return result_row(case, name, value, unit.rstrip(")"), "make bench-reading", n, better=better, one_core=True)


def started(path: Path, way: str, folder: str) -> dict[str, float]:
    """`measured` in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.reading", "--read", str(path), "--way", way, "--out", folder]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=ROWS, help="rows of the table that is read by columns")
    parser.add_argument("--read", type=Path, help="measure this table alone, in this process")
    parser.add_argument("--way", choices=list(WAYS), default="tables")
    parser.add_argument("--six", type=Path, help="write a table of six columns with --rows rows, and no more")
    parser.add_argument("--eight", type=Path, help="write a table of eight columns with --rows rows, and no more")
    parser.add_argument("--only", nargs="+", choices=list(WAYS), default=[], help="measure these ways alone")
    parser.add_argument("--out", type=Path, help="with --read: a folder to write into")
    args = parser.parse_args()
    if args.six:
        six(args.six, args.rows)
        return 0
    if args.eight:
        eight(args.eight, args.rows)
        return 0
    if args.read:
        print(json.dumps(measured(args.read, args.way, args.out)))
        return 0
    rows, tenth = json.loads(RESULT.read_text(encoding="utf-8")) if args.only else [], args.rows // 10
    for way, n, words in (
        ("tables", args.rows, "written as tables, by columns"),
        ("rows", tenth, "in memory, by rows"),
        ("sql", tenth, "SQL database alone"),
        ("sql", args.rows, "SQL database alone"),
        ("index", tenth, "search index alone"),
        ("index", args.rows, "search index alone"),
        ("build", args.rows // 5, "`kb build`, six columns"),
        ("build", args.rows, "`kb build`, six columns"),
        ("grown", tenth, "`questions grow`"),
        ("grown", args.rows, "`questions grow`"),
    ):
        if args.only and way not in args.only:
            continue
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"{way}.csv"
            six(path, n) if way == "build" else table(path, n, linked=way == "grown")
            if way == "grown":
                started(path, "stored", folder)
            new = [result(f"{n:,} rows, {words}", metric, v, n) for metric, v in started(path, way, folder).items()]
            print("  ".join(f"{r['metric']} {r['value']:,.4g} {r['unit']}" for r in new), flush=True)
            case = new[0]["case"]
            rows = [r for r in rows if r["case"] != case] + new
        RESULT.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")  # those measured so far
    return 0


if __name__ == "__main__":
    sys.exit(main())
