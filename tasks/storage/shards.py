"""Work in parts that are whole or absent: a part is a function of the work's inputs and of its own name or number.

    shards = Shards(stage.work / "own" / "0", rows=50_000, knob="demonstrations.rows_per_shard")
    for k in ...:
        folder = shards.made(k, lambda part: write(part / "rows.parquet"))

    parts = Parts(Path(".pairs.cleaned.part"), of={"input": digest, "settings": digest})
    scores = parts.values("scores", lambda: {"right": array, "names": ["a", "b"]})

A part is written into a temporary folder beside the others, sealed and renamed (tasks/storage/commit.py). A later run of
the same work finds it and does not make it again; one that was damaged on disk is made anew. How many rows a shard has
is settled when the first is made: a run with another number would take other rows for part k.
"""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from synth.in_order import in_order
from tasks.core.errors import UserError
from tasks.storage import commit, state

Job = TypeVar("Job")
SHAPE, OF, VALUES, ARRAYS = "shape.json", "of.json", "values.json", "arrays.npz"


class Parts:
    """The parts of one piece of work, in `folder`.

    of: what all of them are a function of, {what it is called: its digest}. Where parts of another lie, they are removed, and one
    sentence says so; without it the folder's own name tells works apart.
    """

    def __init__(self, folder: Path, of: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        if of is None:
            return
        before = state.read(folder / OF, else_="its parts are made anew")
        if before != of:
            there = self.there()
            if there and isinstance(before, dict):
                other = ", ".join(sorted(k for k in {*before, *of} if before.get(k) != of.get(k)))
                print(f"{folder} holds parts of a run with other {other}: it begins anew", file=sys.stderr)
            for path in there:
                commit.remove(path)
            state.write(folder / OF, dict(of))

    def there(self) -> list[Path]:
        """The folders of the parts that lie there, damaged or not."""
        return sorted(p for p in self.folder.glob("[!.]*") if p.is_dir()) if self.folder.is_dir() else []

    def at(self, part: int | str) -> Path:
        return self.folder / (f"{part:05d}" if isinstance(part, int) else part)

    def has(self, part: int | str) -> bool:
        """Whether a part is there and is what was written; a damaged one is removed, with a warning."""
        path = self.at(part)
        if not path.is_dir():
            return False
        try:
            commit.check(path)
        except commit.Damaged as e:
            print(f"warning: {e}", file=sys.stderr)
            commit.remove(path)
            return False
        return True

    def made(self, part: int | str, write: Callable[[Path], None]) -> Path:
        """The folder of a part; `write` fills it, in a temporary place, if it is not there."""
        if not self.has(part):
            write_part(self.at(part), write)
        return self.at(part)

    def each(
        self, jobs: Iterable[Job], write: Callable[[Path, Job], None], imap: Callable[..., Iterator[Path]] = map
    ) -> Iterator[Path]:
        """The folders of parts 0, 1, ..., in order; `write` fills those that are not there, each with its job. imap: runs this for several
        parts at a time, perhaps on other machines with the same file system, and gives what it returns in the order of the jobs."""
        one = partial(_written, write, imap is not map)
        for (k, _), _ in in_order(
            enumerate(jobs),
            lambda job: self.has(job[0]),
            lambda missing: imap(one, ((self.at(k), job) for k, job in missing)),
        ):
            at = self.at(k)
            if not at.is_dir():
                raise UserError(
                    f"{at} was written on another machine and is not here: share the file system of {self.folder}"
                )
            yield at

    def values(self, part: str, make: Callable[[], Mapping[str, Any]]) -> Mapping[str, Any]:
        """name -> array or JSON value: what `make` gives, or gave to an earlier run. None is a JSON value."""
        if self.has(part):
            return read_values(self.at(part))
        values = make()
        self.made(part, lambda at: write_values(at, values))
        return values


def write_part(at: Path, write: Callable[[Path], None], mine: str = "") -> None:
    """Make a part: `write` fills a folder beside it, which is sealed and renamed. mine: tells the writers of one part apart where there
    may be two; then one that is there already stays."""
    beside = at.with_name(f".{at.name}{mine}.part")
    commit.remove(beside)
    commit.make_folder(beside)
    write(beside)
    commit.place(beside, at, keep=bool(mine))  # what is there is of a writer that was thought dead: the same bytes


def _written(write: Callable[[Path, Job], None], several: bool, job: tuple[Path, Job]) -> None:
    at, rest = job
    write_part(at, lambda beside: write(beside, rest), f".{uuid.uuid4().hex}" if several else "")


def write_values(at: Path, values: Mapping[str, Any]) -> None:
    """Arrays go into one file, the rest into another: each file of a part is flushed to disk, which takes time."""
    arrays: dict[str, Any] = {name: v for name, v in values.items() if isinstance(v, np.ndarray)}
    np.savez(at / ARRAYS, **arrays)
    rest = {name: v for name, v in values.items() if name not in arrays}
    (at / VALUES).write_text(json.dumps(rest), encoding="utf-8")


def read_values(at: Path) -> dict[str, Any]:
    """What `write_values` wrote."""
    rest = json.loads((at / VALUES).read_text(encoding="utf-8"))
    with np.load(at / ARRAYS, allow_pickle=False) as arrays:
        return {**rest, **arrays}


class Shards(Parts):
    """Parts 0, 1, ... of `rows` rows each. knob: what sets the number of rows, for the message; "" if nothing does. Raises
    UserError where parts of another number of rows lie."""

    def __init__(self, folder: Path, rows: int, knob: str = "") -> None:
        super().__init__(folder)
        self.rows = rows
        before = state.read(folder / SHAPE, else_="its parts are made anew", needs=("rows",))
        there = self.there()
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
