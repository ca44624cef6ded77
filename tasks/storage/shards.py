"""Work in parts that are whole or absent: part k is a function of the work's inputs and of k alone.

    shards = Shards(stage.work / "own" / "0", rows=50_000, knob="demonstrations.rows_per_shard")
    for k in ...:
        folder = shards.made(k, lambda part: write(part / "rows.parquet"))

A part is written into a temporary folder beside the others, sealed and renamed (tasks/storage/commit.py). A later run of
the same work finds it and does not make it again; one that was damaged on disk is made anew. How many rows a part has
is settled when the first is made: a run with another number would take other rows for part k.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from tasks.core.errors import UserError
from tasks.storage import commit, state

SHAPE = "shape.json"


class Shards:
    """The parts of one piece of work, in `folder`, of `rows` rows each. knob: what sets the number of rows, for the message;
    "" if nothing does. Raises UserError where parts of another number of rows lie."""

    def __init__(self, folder: Path, rows: int, knob: str = "") -> None:
        self.folder, self.rows = folder, rows
        before = state.read(folder / SHAPE, else_="its parts are made anew", needs=("rows",))
        there = self._there()
        if before is None:
            for path in there:
                commit.remove(path)
        elif before["rows"] != rows and there:
            remedy = f"set {knob} back to {before['rows']}, or remove" if knob else "remove"
            raise UserError(
                f"{len(there)} shards of {before['rows']:,} rows lie in {folder}, of a run that has not ended, and now a shard has "
                f"{rows:,} rows: {remedy} that folder to begin anew"
            )
        if before is None or before["rows"] != rows:
            state.write(folder / SHAPE, {"rows": rows})

    def _there(self) -> list[Path]:
        return sorted(p for p in self.folder.glob("[0-9]*") if p.is_dir()) if self.folder.is_dir() else []

    def has(self, k: int) -> bool:
        """Whether part k is there and is what was written; a damaged one is removed, with a warning."""
        path = self.at(k)
        if not path.is_dir():
            return False
        try:
            commit.check(path)
        except commit.Damaged as e:
            print(f"warning: {e}", file=sys.stderr)
            commit.remove(path)
            return False
        return True

    def at(self, k: int) -> Path:
        return self.folder / f"{k:05d}"

    def made(self, k: int, write: Callable[[Path], None]) -> Path:
        """The folder of part k; `write` fills it, in a temporary place, if it is not there."""
        if not self.has(k):
            part = self.folder / f".{k:05d}.part"
            commit.remove(part)
            commit.make_folder(part)
            write(part)
            commit.place(part, self.at(k))
        return self.at(k)
