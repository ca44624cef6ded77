"""The ledger: all proposals, attempts, scores and results, append-only in one SQLite file that survives kill -9 and
power cuts.

A row is (round, kind, place) -> JSON with its SHA-256, written once. A transaction is on disk before the caller goes on
(synchronous = FULL, write-ahead log), so a killed process loses at most the row that it was writing; the next one finds
all others and makes only the missing rows. Triggers refuse UPDATE and DELETE, so that a row never changes. Opening a
ledger reads every row; if one is damaged, the file is renamed, and the rounds before it are kept. Only one process at a
time: a second one gets an error that names the holder.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

_SCHEMA = """
CREATE TABLE IF NOT EXISTS entry (
    round INTEGER NOT NULL, kind TEXT NOT NULL, place INTEGER NOT NULL, body TEXT NOT NULL,
    sha256 TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (round, kind, place)
) WITHOUT ROWID;
CREATE TRIGGER IF NOT EXISTS no_update BEFORE UPDATE ON entry BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
CREATE TRIGGER IF NOT EXISTS no_delete BEFORE DELETE ON entry BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
"""
ENDING = ".damaged"  # of a ledger that was renamed
_BESIDE = ("", "-wal", "-shm")  # a ledger and what SQLite writes beside it
_ROWS = "SELECT round, kind, place, body, sha256 FROM entry ORDER BY round, kind, place"


class Ledger:
    """said: what was found damaged and renamed, as a sentence; "" where nothing was.

    Raises ValueError where the file belongs to another run, is no ledger, or another process holds it; sqlite3.Error
    where a row is written twice.
    """

    def __init__(self, path: Path | str, run: Mapping[str, Any]) -> None:
        """run: what makes a run what it is (seed, settings). A ledger of another run is refused, never mixed with."""
        self.path, self.said = Path(path), ""
        self._lock = None if str(path) == ":memory:" else _hold(self.path)
        try:
            self._db = sqlite3.connect(self.path, isolation_level=None)
        except sqlite3.OperationalError as e:  # a folder, or a file of somebody else
            if self._lock is not None:
                self._lock.close()
            raise ValueError(f"{path} cannot be opened ({e}): remove it, or name another file") from e
        try:
            self._open()
            wrong, upto = self._damage()
            if wrong:
                self._start_anew(wrong, upto)
            known = self.get(-1, "run", 0)
        except sqlite3.DatabaseError as e:
            self.close()
            raise ValueError(f"{path} is no ledger of self-play ({e}): remove it, or name another file") from e
        if known is None:
            self.add(-1, {"run": [dict(run)]})
        elif known != json.loads(json.dumps(dict(run))):
            self.close()
            raise ValueError(
                f"{path} is the ledger of another run ({json.dumps(known)[:200]}): remove it, or name another file"
            )

    def _open(self) -> None:
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")
        self._db.executescript(_SCHEMA)
        if "sha256" not in [c[1] for c in self._db.execute("PRAGMA table_info(entry)")]:  # written by an older version
            self._db.execute("ALTER TABLE entry ADD COLUMN sha256 TEXT NOT NULL DEFAULT ''")

    def _damage(self) -> tuple[str, int]:
        """(what is wrong, the first round that cannot be believed); ("", 0) where all is as it was written."""
        try:
            (verdict,) = self._db.execute("PRAGMA quick_check(1)").fetchone()
            if verdict != "ok":
                return " ".join(str(verdict).split()), -1
            for round, kind, place, body, known in self._db.execute(_ROWS):
                if known and known != _sum(round, kind, place, body):
                    return f"the SHA-256 of round {round}, {kind} {place}, is not that of what it holds", round
        except sqlite3.DatabaseError as e:
            if "not a database" in str(e):
                raise
            return str(e), -1
        except UnicodeDecodeError as e:
            return f"text that is none: {e.reason}", -1
        return "", 0

    def _start_anew(self, wrong: str, upto: int) -> None:
        """Rename the file; what comes before round `upto` goes into a new one."""
        kept = list(self._db.execute(f"SELECT * FROM ({_ROWS}) WHERE round < ?", (upto,))) if upto >= 0 else []
        self._db.close()
        part = self.path.with_name(self.path.name + ".part")
        for ending in _BESIDE:
            Path(f"{part}{ending}").unlink(missing_ok=True)
        self._db = sqlite3.connect(part, isolation_level=None)
        self._open()
        with self._db:
            self._db.execute("BEGIN IMMEDIATE")
            self._db.executemany("INSERT INTO entry VALUES (?, ?, ?, ?, ?)", kept)
        self._db.close()
        old, n = self.path.with_name(self.path.name + ENDING), 1
        while old.exists():
            n += 1
            old = self.path.with_name(f"{self.path.name}.{n}{ENDING}")
        for ending in _BESIDE:
            if Path(f"{self.path}{ending}").exists():
                Path(f"{self.path}{ending}").rename(f"{old}{ending}")
        part.rename(self.path)
        self._db = sqlite3.connect(self.path, isolation_level=None)
        self._open()
        since = f"what was played before round {upto} is kept" if kept else "it is played again from the start"
        self.said = f"{self.path} is damaged ({wrong}) and lies at {old.name} now: {since}"

    def add(self, round: int, rows: Mapping[str, Iterable[Any]], first: int = 0) -> None:
        """Write the bodies of some kinds at the places first, first + 1, ...: all of them in one transaction, or
        none."""
        records = [
            (round, kind, first + i, text, _sum(round, kind, first + i, text))
            for kind, bodies in rows.items()
            for i, text in enumerate(json.dumps(body, sort_keys=True) for body in bodies)
        ]
        with self._db:
            self._db.execute("BEGIN IMMEDIATE")
            self._db.executemany("INSERT INTO entry VALUES (?, ?, ?, ?, ?)", records)

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
        if self._lock is not None:
            self._lock.close()


def _sum(round: int, kind: str, place: int, body: str) -> str:
    return hashlib.sha256(f"{round} {kind} {place} {body}".encode("utf-8", "surrogatepass")).hexdigest()


def _hold(path: Path) -> IO[str]:
    """The lock beside a ledger, held while the returned file is open; a dead process holds none. Raises ValueError
    where another process has it."""
    try:
        lock = Path(f"{path}.lock").open("a+", encoding="utf-8")
    except OSError as e:
        raise ValueError(f"{path}.lock cannot be written ({(e.strerror or str(e)).lower()}): name another file") from e
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.seek(0)
        who = lock.read().strip() or "?"
        lock.close()
        raise ValueError(
            f"another loop plays on {path} (process {who}): wait for it, end it, or name another file"
        ) from None
    lock.truncate(0)
    lock.write(str(os.getpid()))
    lock.flush()
    return lock
