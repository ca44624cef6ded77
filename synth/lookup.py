"""Texts, and what is known of each, on disk: memory does not grow with their number.

    known = Lookup[str]()
    known["a name"] = "what is known of it"
    known.get("another")            # None

A mapping of texts to texts or whole numbers in an SQLite file that has no name, lies in the system's temporary folder and ends with
this object. It is written once its pages fill CACHE, so a small one never touches the disk.
"""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Iterator, Mapping
from typing import TypeVar, cast

CACHE = 4096  # KiB of pages in memory
V = TypeVar("V", str, int)


class Lookup(Mapping[str, V]):
    """Keys are gone through in the order of their bytes. Whole numbers are below 2**63."""

    def __init__(self) -> None:
        # of any thread: SQLite runs one statement at a time
        self._db = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        for line in (f"cache_size = -{CACHE}", "journal_mode = OFF", "synchronous = OFF"):  # what is lost is made anew
            self._db.execute(f"PRAGMA {line}")
        self._db.execute("CREATE TABLE lookup (key BLOB PRIMARY KEY, value) WITHOUT ROWID")
        self._db.execute("BEGIN")  # one transaction, which never ends: a commit for each row takes time

    def __getitem__(self, key: str) -> V:
        row = self._run("SELECT value FROM lookup WHERE key = ?", _bytes(key)).fetchone()
        if row is None:
            raise KeyError(key)
        return cast(V, _text(row[0]) if isinstance(row[0], bytes) else row[0])

    def __setitem__(self, key: str, value: V) -> None:
        kept = _bytes(value) if isinstance(value, str) else value
        self._run("INSERT OR REPLACE INTO lookup VALUES (?, ?)", _bytes(key), kept)

    def __iter__(self) -> Iterator[str]:
        return (_text(key) for (key,) in self._run("SELECT key FROM lookup ORDER BY key"))

    def __len__(self) -> int:
        return self._run("SELECT count(*) FROM lookup").fetchone()[0]

    def _run(self, statement: str, *values: bytes | int) -> sqlite3.Cursor:
        try:
            return self._db.execute(statement, values)
        except sqlite3.OperationalError as e:
            if e.sqlite_errorcode != sqlite3.SQLITE_FULL:
                raise
            raise OSError(errno.ENOSPC, f"{os.strerror(errno.ENOSPC)} in the temporary folder (TMPDIR)") from e


def _bytes(text: str) -> bytes:
    """Halves of surrogate pairs, which texts of users may have, are kept."""
    return text.encode("utf-8", "surrogatepass")


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass")
