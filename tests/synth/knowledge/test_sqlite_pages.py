"""Pages written as SQLite's own: SQLite finds nothing wrong in them, reads the same rows, and goes on writing."""

import random
import sqlite3

import numpy as np
import pyarrow as pa
import pytest

from synth.knowledge.arrow_texts import TEXT
from synth.knowledge.sqlite_pages import SqlitePages

SCHEMA = """
CREATE TABLE thing (id TEXT PRIMARY KEY, name TEXT, note TEXT) WITHOUT ROWID;
CREATE INDEX by_name ON thing (name);
CREATE TABLE numbered (number INTEGER PRIMARY KEY, text TEXT, size INTEGER);
CREATE TABLE other (id TEXT PRIMARY KEY, name TEXT) WITHOUT ROWID;
"""


@pytest.mark.parametrize("n", [0, 1, 2, 30, 700, 60_000])
@pytest.mark.parametrize("longest", [3, 60, 3000])
def test_sqlite_reads_what_it_would_have_written(tmp_path, n, longest):
    if n * longest > 4_000_000:
        n //= 30
    rng = random.Random(f"{n} {longest}")
    rows = sorted(
        (
            f"{i:06}",
            rng.choice(["é", "a", "", "🙂", None]) and rng.choice("abcé") * rng.randrange(longest),
            rng.choice([None, "x" * rng.randrange(6 * longest), "ü"]),
        )
        for i in rng.sample(range(900_000), n)
    )
    by_name = sorted(rows, key=lambda r: (r[1] is not None, (r[1] or "").encode(), r[0]))
    path = tmp_path / "made.sqlite"
    with sqlite3.connect(path) as connection:
        connection.executescript(SCHEMA)
    connection.close()
    with SqlitePages(path) as pages:
        for name, some in (("thing", rows), ("by_name", [(r[1], r[0]) for r in by_name])):
            step = rng.choice([1, 7, 1000, 10_000]) if n < 2000 else 5000
            with pages.fill(name) as tree:
                for at in range(0, len(some), step):
                    tree.add([pa.array(c, TEXT) for c in zip(*some[at : at + step], strict=True)])
        gap = rng.choice([1, 3, 1000])
        sizes = [0, 1, 2, 127, 128, 32767, 32768, (1 << 23) - 1, 1 << 23, (1 << 31) - 1, 1 << 31, 1 << 47, 1 << 62]
        numbered = [(gap * i, r[2], rng.choice(sizes)) for i, r in enumerate(rows)]
        with pages.fill("numbered") as tree:
            for at in range(0, n, step):
                numbers, texts, of = zip(*numbered[at : at + step], strict=True)
                tree.add([pa.nulls(len(of)), pa.array(texts, TEXT), pa.array(of)], np.array(numbers))
    with sqlite3.connect(path) as connection:
        run = connection.execute
        assert run("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert run("SELECT * FROM numbered ORDER BY number").fetchall() == numbered
        for row in numbered[:: 1 + n // 50]:
            assert run("SELECT * FROM numbered WHERE number = ?", row[:1]).fetchall() == [row]
        assert run("SELECT * FROM thing ORDER BY id").fetchall() == rows
        plan = "SELECT name, id FROM thing INDEXED BY by_name ORDER BY name, id"
        assert run(plan).fetchall() == [(r[1], r[0]) for r in by_name]
        for key, name, _ in rows[:: 1 + n // 50]:
            assert run("SELECT name FROM thing WHERE id = ?", (key,)).fetchall() == [(name,)]
            assert name is None or (key,) in run("SELECT id FROM thing WHERE name = ?", (name,)).fetchall()
        run("INSERT INTO other VALUES ('1', 'other')")
        run("DELETE FROM thing WHERE id < '3'")
        connection.executemany("INSERT INTO thing VALUES (?, ?, ?)", [(f"new {i}", "x" * i, None) for i in range(300)])
        assert run("PRAGMA integrity_check").fetchall() == [("ok",)]
    connection.close()


def test_another_kind_of_file_is_refused(tmp_path):
    path = tmp_path / "wide.sqlite"
    with sqlite3.connect(path) as connection:
        connection.executescript("PRAGMA encoding = 'UTF-16'; CREATE TABLE thing (id TEXT PRIMARY KEY) WITHOUT ROWID")
    connection.close()
    with pytest.raises(ValueError, match="as it makes them by default"):
        SqlitePages(path)
