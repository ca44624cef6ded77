"""The ledger: what was proposed, attempted, scored and concluded, append-only in one SQLite file that survives kill -9.

A row is (round, kind, place) -> JSON, written once. A transaction is on disk before the caller goes on (synchronous =
FULL, write-ahead log), so a process that is killed loses at most the row that it was writing; the next one finds all
others and makes only what is missing. Triggers refuse UPDATE and DELETE, so that a row that was believed once is never
another.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

_SCHEMA = """
CREATE TABLE IF NOT EXISTS entry (
    round INTEGER NOT NULL, kind TEXT NOT NULL, place INTEGER NOT NULL, body TEXT NOT NULL,
    PRIMARY KEY (round, kind, place)
) WITHOUT ROWID;
CREATE TRIGGER IF NOT EXISTS no_update BEFORE UPDATE ON entry BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
CREATE TRIGGER IF NOT EXISTS no_delete BEFORE DELETE ON entry BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
"""


class Ledger:
    """Raises ValueError where the file belongs to another run, or is no ledger; sqlite3.Error where a row is written
    twice."""

    def __init__(self, path: Path | str, run: Mapping[str, Any]) -> None:
        """run: what makes a run what it is (seed, settings). A ledger of another run is refused, never mixed with."""
        self.path = Path(path)
        self._db = sqlite3.connect(self.path, isolation_level=None)
        try:
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = FULL")
            self._db.executescript(_SCHEMA)
            known = self.get(-1, "run", 0)
        except sqlite3.DatabaseError as e:
            self._db.close()
            raise ValueError(f"{path} is no ledger of self-play ({e}): name another file") from e
        if known is None:
            self.add(-1, {"run": [dict(run)]})
        elif known != json.loads(json.dumps(dict(run))):
            self._db.close()
            raise ValueError(
                f"{path} is the ledger of another run ({json.dumps(known)[:200]}): remove it, or name another file"
            )

    def add(self, round: int, rows: Mapping[str, Iterable[Any]], first: int = 0) -> None:
        """Write the bodies of some kinds at the places first, first + 1, ...: all of them in one transaction, or
        none."""
        made = [
            (round, kind, first + i, json.dumps(body, sort_keys=True))
            for kind, bodies in rows.items()
            for i, body in enumerate(bodies)
        ]
        with self._db:
            self._db.execute("BEGIN IMMEDIATE")
            self._db.executemany("INSERT INTO entry VALUES (?, ?, ?, ?)", made)

    def get(self, round: int, kind: str, place: int = 0) -> Any:
        """The body of one row, or None."""
        row = self._db.execute(
            "SELECT body FROM entry WHERE round = ? AND kind = ? AND place = ?", (round, kind, place)
        ).fetchone()
        return None if row is None else json.loads(row[0])

    def rows(self, kind: str, round: int | None = None) -> Iterator[tuple[int, int, Any]]:
        """(round, place, body) of a kind, in order; of one round, or of all."""
        where, values = ("AND round = ?", (kind, round)) if round is not None else ("", (kind,))
        for r, place, body in self._db.execute(
            f"SELECT round, place, body FROM entry WHERE kind = ? {where} ORDER BY round, place", values
        ):
            yield r, place, json.loads(body)

    def close(self) -> None:
        self._db.close()
