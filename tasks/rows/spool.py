"""The rows of the user's files on disk, in shards, and what is decided about all of them at once.

What is made of a file's rows is cut into shards (tasks/storage/shards.py): `rows.parquet` holds the rows that are sound,
`marks.parquet` a line for every row that was read, with its place, or why it is no row. Then `Spool.settle` decides
what needs all rows: which repeat an earlier one, which split a question gets, what may not be trained on. It holds about 60 bytes a
row: the first 64 bits of the id and of the hash of the question, the split, and the order by id. Rows that are repeated
or not trained on cost some hundred bytes each, for their evidence.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count, islice
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
import pyarrow
import pyarrow.parquet

from synth.types import Quarantined, digest
from tasks.storage import state, tables
from tasks.storage.shards import Shards

T = TypeVar("T")
SPLITS = ("train", "valid", "test")
TRAIN, VALID, TEST = range(3)
KEPT, ASIDE, DUPLICATE, HELD, INVALID, APART = range(6)  # what was decided about a row
MARKS = pyarrow.schema(
    [
        ("place", pyarrow.string()),
        ("key", pyarrow.uint64()),  # the first 64 bits of the row's id
        ("asked", pyarrow.uint64()),  # of the hash of its question: rows that ask the same have the same
        ("split", pyarrow.int8()),
        ("held", pyarrow.string()),  # why it must not be trained on
        ("reason", pyarrow.string()),  # why it is no row: with `late`, because it breaks the schema of its type
        ("evidence", pyarrow.string()),
        ("late", pyarrow.bool_()),
    ]
)


@dataclass(frozen=True)
class Read:
    """One thing that was read: a sound row, or why it is none (reason). value: None with a reason."""

    place: str
    value: Any = None
    asked: str = ""
    held: str = ""
    reason: str = ""
    evidence: str = ""


class Stream(Generic[T]):
    """Values that are read from disk each time they are gone through; their number is known."""

    def __init__(self, n: int, begin: Callable[[], Iterator[T]]) -> None:
        self.n, self.begin = n, begin

    def __len__(self) -> int:
        return self.n

    def __iter__(self) -> Iterator[T]:
        return self.begin()


@dataclass
class _Marks:
    """Of all rows that were read, in order. file: the number of their entry."""

    key: np.ndarray
    asked: np.ndarray
    split: np.ndarray
    held: np.ndarray
    aside: np.ndarray
    late: np.ndarray


@dataclass
class Spool(Generic[T]):
    """The rows of one knob `files`. folder: where shards lie; rows: of a shard; knob: what sets that number; cls: the type of rows.

    asked_by: the normal form of what a row asks."""

    folder: Path
    rows: int
    knob: str
    cls: type[T]
    stage: str
    asked_by: Callable[[T], str]
    shards: list[list[Path]] = field(default_factory=list)  # of each entry
    says: list[bool] = field(default_factory=list)  # whether an entry, or one of its rows, states a split
    _at: list[list[int]] = field(default_factory=list)  # the number of the first row of each shard
    n: int = 0

    def fill(
        self,
        items: Callable[[int], Iterator[Read]],
        checked: Callable[[Sequence[Read]], Sequence[Read]],
        states_split: Callable[[], bool],
    ) -> None:
        """Makes the shards of the next entry, or finds them. items: what is read, without the first so many; checked: the same,
        those that break the schema with their reason; states_split: whether a row so far has stated a split."""
        work = Shards(self.folder / f"{len(self.shards)}", self.rows, self.knob)
        folders, starts, stream = [], [], None
        for k in range(1 << 30):
            if work.has(k):
                folder, stream = work.at(k), None
            else:
                stream = stream or items(k * self.rows)
                part = list(islice(stream, self.rows))
                folder = work.made(k, lambda at, part=part: self._write(at, checked(part), states_split()))
                del part
            told = _told(folder)
            folders.append(folder)
            starts.append(self.n)
            self.n += told["n"]
            if told["n"] < self.rows:
                self.says.append(told["said"])
                break
        self.shards.append(folders)
        self._at.append(starts)

    def fill_apart(
        self,
        rows: Callable[[int], Iterator[Any]],
        write: Callable[[Path, tuple[list[Any], bool]], None],
        states_split: Callable[[], bool],
        imap: Callable[..., Iterator[Path]],
    ) -> None:
        """As `fill`, for rows of which each is looked at by itself: they are cut into shards as they were read, and `write` makes a shard
        of its rows and of what `states_split` says then, several at a time (`Parts.each`)."""
        work = Shards(self.folder / f"{len(self.shards)}", self.rows, self.knob)

        def jobs() -> Iterator[tuple[list[Any], bool]]:
            stream = None
            for k in count():
                if work.has(k):
                    n, stream = _told(work.at(k))["n"], None
                    yield [], False
                else:
                    stream = stream or rows(k * self.rows)
                    part = list(islice(stream, self.rows))
                    n = len(part)
                    yield part, states_split()
                if n < self.rows:
                    return

        folders = list(work.each(jobs(), write, imap))
        told = [_told(folder) for folder in folders]
        self._at.append([self.n + k * self.rows for k in range(len(folders))])
        self.n += sum(t["n"] for t in told)
        self.says.append(told[-1]["said"])
        self.shards.append(folders)

    def _write(self, at: Path, part: Sequence[Read], states_split: bool) -> None:
        write_shard(at, self.cls, part, states_split)

    # --- what is decided about all rows
    # ------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Decides about every row. Then `kept`, `quarantined` and `counts` may be asked."""
        m = self._marks()
        self.state = np.where(
            m.aside, ASIDE, np.where(m.held & (m.split == TRAIN), HELD, np.where(m.late, INVALID, KEPT))
        )
        self.state = self.state.astype(np.int8)
        self.split, self.of = m.split, dict[int, int]()  # of: the row that a repeated or parted row is about
        self._repeated(m)
        self.moved: list[tuple[int, int, int]] = []  # (entry, split before, rows) of those that are held out after all
        self._some_held_out(m)
        self._apart(m)
        places = np.unique(np.fromiter(self.of.values(), np.int64, len(self.of)))
        self.places = dict(self._places(places))

    def _marks(self) -> _Marks:
        out = _Marks(
            key=np.zeros(self.n, np.uint64),
            asked=np.zeros(self.n, np.uint64),
            split=np.zeros(self.n, np.int8),
            **{name: np.zeros(self.n, bool) for name in ("held", "aside", "late")},
        )
        for entry in range(len(self.shards)):
            for first, table in self._tables(entry, ["key", "asked", "split", "held", "reason", "late"]):
                here = slice(first, first + table.num_rows)
                for name in ("key", "asked", "split"):
                    getattr(out, name)[here] = table[name].to_numpy()
                late = np.asarray(table["late"])
                out.held[here] = [bool(x) for x in table["held"].to_pylist()]
                out.late[here] = late
                out.aside[here] = np.array([bool(x) for x in table["reason"].to_pylist()], bool) & ~late
        return out

    def _repeated(self, m: _Marks) -> None:
        """The first row of those with one id stays, unless it may not be trained on: then the next is looked at."""
        rows = np.flatnonzero(~m.aside)
        order = rows[np.argsort(m.key[rows], kind="stable")]
        alike = m.key[order][1:] == m.key[order][:-1]
        begins = np.flatnonzero(np.diff(np.concatenate([[False], alike, [False]]).astype(np.int8)))
        for a, b in zip(begins[::2].tolist(), begins[1::2].tolist(), strict=True):
            first = -1
            for i in order[a : b + 1].tolist():
                if first >= 0:
                    self.state[i], self.of[i] = DUPLICATE, first
                elif self.state[i] != HELD:
                    first = i

    def _some_held_out(self, m: _Marks) -> None:
        """With a question to evaluate on. Of ten questions one time in five the hash holds out none, and a run would train
        first and then find nothing to measure; so the one that comes first by its hash is held out."""
        kept = self.state == KEPT
        if (self.split[kept] == TEST).any():
            return
        free = kept & ~np.repeat(self.says, self._sizes())
        learned = np.unique(m.asked[free & (self.split == TRAIN)])
        pool = learned if len(learned) > 1 else np.setdiff1d(m.asked[free], learned)
        if not len(pool):
            return
        chosen = np.flatnonzero(free & (m.asked == pool.min()))
        for i in chosen.tolist():
            self.moved.append((self.entry_of(i), int(self.split[i]), 1))
        self.split[chosen] = TEST

    def _apart(self, m: _Marks) -> None:
        """Without the rows to train on that ask what another row, to be measured on, asks too."""
        kept = self.state == KEPT
        measured = kept & (self.split != TRAIN)
        gone = np.flatnonzero(kept & (self.split == TRAIN))
        gone = gone[np.isin(m.asked[gone], np.unique(m.asked[measured]))]
        if not len(gone):
            return
        about = np.flatnonzero(measured)
        about = about[np.isin(m.asked[about], m.asked[gone])]
        last = dict(zip(m.asked[about].tolist(), about.tolist(), strict=True))
        self.of |= {i: last[a] for i, a in zip(gone.tolist(), m.asked[gone].tolist(), strict=True)}
        self.state[gone] = APART

    def _sizes(self) -> list[int]:
        ends = [starts[0] for starts in self._at[1:]] + [self.n]
        return [end - starts[0] for starts, end in zip(self._at, ends, strict=True)]

    def entry_of(self, i: int) -> int:
        """The number of the entry of a row."""
        return sum(starts[0] <= i for starts in self._at) - 1

    def _tables(self, entry: int, columns: list[str]) -> Iterator[tuple[int, pyarrow.Table]]:
        for first, folder in zip(self._at[entry], self.shards[entry], strict=True):
            yield first, tables.raw(folder / "marks.parquet", columns)

    def _places(self, rows: np.ndarray) -> Iterator[tuple[int, str]]:
        """(row, its place) of rows, which ascend."""
        for entry in range(len(self.shards)):
            for first, table in self._tables(entry, ["place"]):
                mine = rows[np.searchsorted(rows, first) : np.searchsorted(rows, first + table.num_rows)]
                if len(mine):
                    yield from zip(mine.tolist(), table["place"].take(mine - first).to_pylist(), strict=True)

    # --- what came of it
    # -------------------------------------------------------------------------------------------------

    def kept(self) -> Iterator[tuple[int, str, T]]:
        """(entry, place, row) of each row that stays, in order, with the split that was decided."""
        return ((e, place, row) for e, i, place, row in self._sound() if self.state[i] == KEPT)

    def _sound(self, wanted: int | None = None) -> Iterator[tuple[int, int, str, T]]:
        """(entry, number, place, row) of every sound row; of shards with a row in the state `wanted` alone."""
        for entry in range(len(self.shards)):
            for (first, table), folder in zip(
                self._tables(entry, ["place", "reason"]), self.shards[entry], strict=True
            ):
                if wanted is not None and not (self.state[first : first + table.num_rows] == wanted).any():
                    continue
                rows = tables.each(folder / "rows.parquet", self.cls, checked=True)
                places, reasons = table["place"].to_pylist(), table["reason"].to_pylist()
                for i, (place, reason) in enumerate(zip(places, reasons, strict=True), start=first):
                    if reason:
                        continue
                    row = next(rows)
                    split = SPLITS[self.split[i]]
                    yield entry, i, place, row if row.split == split else replace(row, split=split)  # type: ignore

    def counts(self, entry: int) -> tuple[int, Counter[str], Counter[str]]:
        """(rows read, kept rows by split as they were when read, the others by reason), of an entry."""
        first, n = self._at[entry][0], self._sizes()[entry]
        here = self.state[first : first + n]
        kept = (here == KEPT) | (here == APART)
        splits = Counter({SPLITS[s]: int((self.split[first : first + n][kept] == s).sum()) for s in range(3)})
        for e, before, k in self.moved:
            if e == entry:
                splits["test"] -= k
                splits[SPLITS[before]] += k
        reasons = Counter(q.reason for q in self.aside(entry))
        return n, Counter({s: k for s, k in splits.items() if k}), reasons

    def aside(self, entry: int) -> Iterator[Quarantined]:
        """The rows of an entry that are none, in order; those that break the schema of their type come last."""
        for codes in ((ASIDE, DUPLICATE, HELD), (INVALID,)):
            for first, table in self._tables(entry, ["place", "held", "reason", "evidence"]):
                rows = np.flatnonzero(np.isin(self.state[first : first + table.num_rows], codes))
                if not len(rows):
                    continue
                for i, row in zip((rows + first).tolist(), table.take(rows).to_pylist(), strict=True):
                    place = row["place"]
                    if self.state[i] == DUPLICATE:
                        why = f"{place} is the same as {self.places[self.of[i]]}"
                        yield Quarantined(id=place, stage=self.stage, reason="duplicate", evidence=why)
                    elif self.state[i] == HELD:
                        yield Quarantined(id=place, stage=self.stage, reason="held_out", evidence=row["held"])
                    else:
                        yield Quarantined(id=place, stage=self.stage, reason=row["reason"], evidence=row["evidence"])

    def parted(self) -> list[tuple[int, Quarantined]]:
        """(entry, why) of rows that ask what is measured, by place."""
        out = []
        if not (self.state == APART).any():
            return out
        for entry, i, place, row in self._sound(APART):
            if self.state[i] == APART:
                why = f"{self.asked_by(row)[:120]!r} is asked by {self.places[self.of[i]]} too, which is not trained on"
                out.append((entry, Quarantined(id=place, stage=self.stage, reason="held_out", evidence=why)))
        return sorted(out, key=lambda one: one[1].id)


def write_shard(at: Path, cls: type, part: Sequence[Read], states_split: bool) -> None:
    """The files of a shard."""
    with tables.Writer(at / "rows.parquet", cls, checked=True) as out:
        for x in part:
            if x.value is not None and not x.reason:
                out.add(x.value)
    columns: dict[str, list[Any]] = {name: [] for name in MARKS.names}
    for x in part:
        row = x.value is not None
        columns["place"].append(x.place)
        columns["key"].append(key_of(x.value.id) if row else 0)
        columns["asked"].append(int(digest("own", x.asked)[:16], 16) if row else 0)
        columns["split"].append(SPLITS.index(x.value.split) if row else TRAIN)
        columns["held"].append(x.held)
        columns["reason"].append(x.reason)
        columns["evidence"].append(x.evidence)
        columns["late"].append(row and bool(x.reason))
    pyarrow.parquet.write_table(pyarrow.table(columns, schema=MARKS), at / "marks.parquet", compression="zstd")
    state.write(at / "read.json", {"n": len(part), "said": states_split})


def _told(folder: Path) -> dict[str, Any]:
    told = state.read(folder / "read.json", else_="", needs=("n", "said"))
    assert told is not None, "a sealed part holds it"
    return told


def key_of(name: str) -> int:
    """The first 64 bits of an id, which is a hash in hexadecimal; of another text, of its hash."""
    try:
        return int(name[:16], 16)
    except ValueError:
        return int(digest(name)[:16], 16)
