"""A table read by columns is the knowledge base that its rows give: every file, whatever is wrong in the table."""

import csv
import random
import sqlite3
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from synth.knowledge import column_base
from synth.knowledge.arrow_texts import TEXT, ArrowTexts, encoded
from synth.knowledge.cells import NONE, Cells, compact, read_cells
from synth.knowledge.column_base import ColumnBase
from synth.knowledge.ingest import build, problem
from synth.knowledge.kb import Relation
from synth.knowledge.missing import MISSING
from synth.knowledge.rows import Row
from synth.knowledge.sources import read_source
from synth.knowledge.text import tidy
from tasks.knowledge import bases, column_tables
from tasks.knowledge.guess import guess
from tasks.runtime import beside
from traced import traced

ODD = ("Norvia", "Côte d'Ivoire", "Cote d'Ivoire", "DRC", "Democratic Republic of Congo", "Élan", "Elan", "X" * 1100)
ODD += (
    "",
    "NA",
    "N/A",
    "Republic of Moldova",
    "Moldova",
    "  Two  words ",
    "A & B",
    "The Hague",
    'a "quoted" name',
    "50% off",
)
POOLS = {
    "kind": lambda rng, i: rng.choice(["red", "blue", "green", "Red"]),
    "length": lambda rng, i: f"{rng.randrange(1, 999):,} km" if rng.random() < 0.97 else rng.choice(["5 m", "big"]),
    "founded": lambda rng, i: str(rng.randrange(1500, 2020)),
    "born": lambda rng, i: f"{rng.randrange(1, 28)} May {rng.randrange(1700, 2000)}" if rng.random() < 0.97 else "odd",
    "open": lambda rng, i: rng.choice(["yes", "no"]),
    "country": lambda rng, i: rng.choice(ODD),
    "code": lambda rng, i: f"C{i}",
    "next": lambda rng, i: f"C{rng.randrange(40)}",
    "neighbour": lambda rng, i: rng.choice("ABCDE") + str(rng.randrange(30)),
    "note": lambda rng, i: f"text {rng.random()} of many words that is long. Yes, it is",
    "score %": lambda rng, i: rng.choice(["NA", "1", "2.5", "-", ""]),
    "long": lambda rng, i: "x" * 1200,
}
EDITS = (
    {"range": "string"},
    {"range": "number"},
    {"complete": True},
    {"inverse_functional": True},
    {"label": "an odd one"},
)


def table(path: Path, seed: int) -> dict[str, dict]:
    """A table of odd cells in `path`; returns fields of relations that a person edited."""
    rng = random.Random(seed)
    heads = rng.sample(sorted(POOLS), rng.randrange(1, 7))
    with path.open("w", newline="", encoding="utf-8") as file:
        out = csv.writer(file)
        out.writerow(["name", *heads])
        for i in range(rng.choice([1, 2, 5, 30, 120])):
            name = rng.choice([f"{'ABCDE'[i % 5]}{i}"] * 4 + [rng.choice(ODD)])
            row = [name, *(POOLS[h](rng, i) if rng.random() < 0.95 else "" for h in heads)]
            out.writerow(row[:-1] if rng.random() < 0.02 else [""] * len(row) if rng.random() < 0.02 else row)
    return {rng.choice(heads): dict(rng.choice(EDITS))} if rng.random() < 0.3 else {}


def test_columns_give_what_rows_give(tmp_path):
    read = Counter()
    for seed in range(60):
        edited = table(tmp_path / "t.csv", seed)
        cells = read_cells(tmp_path / "t.csv", "t.csv", type="thing")
        base = ColumnBase.of(cells, edited) if cells else None
        read[base is not None] += 1
        if base is None:
            continue
        reading = read_source(tmp_path / "t.csv", "csv_records", name="t.csv", type="thing")
        rows, columns = build([reading], edited=edited), base.built()
        for part in ("facts", "entities", "relations"):
            assert list(getattr(rows.kb, part).values()) == list(getattr(columns.kb, part).values()), (seed, part)
        for part in ("quarantined", "produced", "accepted", "listed", "doubtful"):
            assert getattr(rows, part) == getattr(columns, part), (seed, part)
        assert list(reading.missing.items()) == list(cells.missing.items()), seed
        assert base.digest() == rows.kb.digest() and base.density() == rows.kb.density(), seed
    assert read[True] > 50, "tables like these are read by columns"


@pytest.mark.parametrize("seed", [3, 8, 15, 21])
def test_the_folder_is_the_same_file_by_file(tmp_path, monkeypatch, seed):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(beside, "can_fork", lambda: seed in (8, 15))  # the tables in a copy of the process, or not
    edited = table(Path("t.csv"), seed)
    folders = {}
    for way, large in (("rows", 1 << 60), ("columns", 0)):
        monkeypatch.setattr(bases, "LARGE", large)
        if way == "columns":
            monkeypatch.setattr(bases, "build", None)  # not the rows again
            if seed > 10:  # in many pieces
                monkeypatch.setattr(column_base, "_BATCH", 3)
                monkeypatch.setattr(column_tables, "_PAGES", 4)
                monkeypatch.setattr(column_tables, "_FEW", 1)
        bases.build_base([guess(Path("t.csv"))], Path(way), relations=edited)
        folders[way] = Path(way)
    rows, columns = folders.values()
    names = sorted(str(p.relative_to(rows)) for p in rows.rglob("*") if p.is_file())
    assert names == sorted(str(p.relative_to(columns)) for p in columns.rglob("*") if p.is_file())
    for name in names:
        if name.endswith(".parquet"):
            assert pq.read_table(rows / name).equals(pq.read_table(columns / name)), name
        elif name.endswith(".sqlite"):
            with sqlite3.connect(rows / name) as one, sqlite3.connect(columns / name) as other:
                assert list(one.iterdump()) == list(other.iterdump()), name
                assert other.execute("PRAGMA integrity_check").fetchall() == [("ok",)], name  # each index has its rows
        elif "manifest" not in name:
            assert (rows / name).read_bytes() == (columns / name).read_bytes(), name


def test_what_is_no_such_table_is_left_to_the_rows(tmp_path):
    for text in ("", "name,a,a\nA,1,2\n", 'name,a\nA,"1\n', "name,a\n", ",a\nA,1\n"):
        (tmp_path / "t.csv").write_text(text)
        assert read_cells(tmp_path / "t.csv", "t.csv") is None, text
    (tmp_path / "t.csv").write_bytes("name,a\nÉ,1\n".encode("latin1"))
    assert read_cells(tmp_path / "t.csv", "t.csv") is None
    (tmp_path / "t.csv").write_text("name,a\nA,1\n")
    assert read_cells(tmp_path / "t.csv", "t.csv", id="b") is None
    assert isinstance(read_cells(tmp_path / "t.csv", "t.csv"), Cells)


def test_texts_that_no_record_has_are_left_out():
    texts, codes = compact(ArrowTexts.of(["a", "b", "c", "d"]), np.array([2, NONE, 0, 2], np.int32))
    assert list(texts) == ["c", "a"] and codes.tolist() == [0, NONE, 1, 0]


def test_cells_are_numbered_as_each_alone():
    rng = random.Random(1)
    pool = ["", " ", "a", "a ", " a", "a  b", "a b", "e\u0301", "\u00e9", "\u00a0x", "x", "\ttab", "\u3000", "A", "tab"]
    for n in (0, 1, 5, 200):
        cells = [rng.choice(pool) for _ in range(n)]
        texts, codes = encoded([pa.array(cells[at : at + 7], TEXT) for at in range(0, n, 7)], NONE)
        assert list(texts) == list(dict.fromkeys(t for t in map(tidy, cells) if t))
        assert [texts[c] if c != NONE else "" for c in codes.tolist()] == list(map(tidy, cells))


@pytest.mark.parametrize("words", [MISSING, ("", "-"), ("gone",)])
def test_names_that_are_missing_or_come_twice_are_refused_as_by_rows(tmp_path, words):
    names = [
        "A",
        "a",
        "NA",
        "",
        "-",
        "<b></b>",
        "<b>A</b>",
        "A &amp; B",
        "A & B",
        "Gone",
        "gone",
        "  A ",
        "Nan",
        "\u00c9",
        "E\u0301",
    ]
    rng = random.Random(2)
    for seed in range(20):
        some = [rng.choice(names) for _ in range(rng.randrange(1, 30))]
        rows = [f'"{x}",{rng.choice(["1", "", "NA", "-", "gone"])},{i}' for i, x in enumerate(some)]
        (tmp_path / "t.csv").write_text("\n".join(["name,a,b", *rows]), encoding="utf-8")
        cells = read_cells(tmp_path / "t.csv", "t.csv", missing=words)
        reading = read_source(tmp_path / "t.csv", "csv_records", name="t.csv", missing=words)
        assert cells is not None
        assert list(cells.subjects) == list(dict.fromkeys(r.subject for r in reading.rows)), (seed, some)
        assert cells.quarantined == reading.quarantined, (seed, some)
        assert cells.missing == reading.missing, (seed, some)


def test_a_value_of_a_million_letters_or_an_odd_number_is_refused_as_by_rows():
    """Values that a pattern passes are not looked at one by one."""
    values = ["1", "1.", ".5", "+1e5", "1,5", "\u0663", "", "-", "x" * 2000, "12345", "-12", "2024-01-02"]
    for kind in ("string", "number", "year", "date"):
        relation = Relation(name="r", label="r", domain="thing", range=kind)
        stated = column_base.Stated(relation, "r", values, np.zeros(0), np.zeros(0), ArrowTexts.of(values))
        for value, suspect in zip(values, column_base._suspect(stated).tolist(), strict=True):
            row = Row(subject="\0", relation="r", object=value, source="", span="")
            assert suspect or problem(row, None, {"r": relation}) is None, (kind, value)


def test_a_large_table_is_read_without_an_object_for_every_cell(tmp_path):
    """Of 20,000 names and as many texts: as strings in lists they took 270 bytes for each record."""
    n = 20_000
    with (tmp_path / "t.csv").open("w") as file:
        file.write("name,kind,length,note\n")
        file.writelines(f"Name {i},kind {i % 50},{i % 977} km,a note of some words that says {i}\n" for i in range(n))
    before = pa.total_allocated_bytes()
    kept = read_cells(tmp_path / "t.csv", "t.csv")
    assert kept is not None and pa.total_allocated_bytes() - before < 80 * n  # 60 letters and two numbers
    held, _ = traced(lambda: read_cells(tmp_path / "t.csv", "t.csv"))
    assert held < 30 * n, held / n  # a number for each cell
