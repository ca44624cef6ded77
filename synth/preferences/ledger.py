"""Pairs that are judged, and what was said of each, so that a pair costs tens of bytes of memory and not thousands.

    Spilled     pairs in a temporary file: 8 bytes of memory each
    Verdicts    decisions about n pairs as arrays: 1 to 4 bytes each, and 8 more where scores differ
    Ledger      pairs (a list, or Spilled) and what came about, in order: a column of numbers, or a cleaner's verdicts; 1 to 4
                bytes each, numbers and scores that differ are in a temporary file
    View        some rows of a ledger as pairs with their columns and decisions, sides swapped where that was decided; made
                anew each time, a block after the other

A view behaves as the list of pairs that it stands for. Numbers of rows are int64.
"""

from __future__ import annotations

import json
import math
import os
import tempfile
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, Any, TypeVar

import numpy as np

from synth.in_order import in_order
from synth.preferences.cleaners._columns import swap_sides
from synth.preferences.cleaners._filed import Filed
from synth.preferences.cleaners._ranks import ranks
from synth.types import Decision, Message, PreferencePair

ROWS, BYTES = 1024, 1 << 23  # pairs and bytes on disk after which a block ends
BLOCK = 1 << 14  # numbers that are written into a file at once
Job = TypeVar("Job")
Once = Callable[[str, Callable[[], Mapping[str, Any]]], Mapping[str, Any]]
"""(name, make) -> what `make` gives, or gave to an earlier run that was killed: arrays and JSON values by name."""


Mapped = Callable[..., Iterator[Any]]
"""What a function gives of each job, in order: `map`, or one that runs it for several at a time, perhaps on other machines."""


def afresh(name: str, make: Callable[[], Mapping[str, Any]]) -> Mapping[str, Any]:
    """The `Once` that keeps nothing."""
    return make()


# kinds, code [n] from 1, scores [n] or None where kinds have them
Told = tuple[list["Kind"], np.ndarray, np.ndarray | None]
Kind = tuple[str, Any, str, Any]  # step, action, reason, and the score where all pairs of this kind have the same


def changed(pair: PreferencePair, **fields: Any) -> PreferencePair:
    """`dataclasses.replace` in a tenth of its time: it is called for every pair, and a pair checks nothing when it is
    made."""
    new = object.__new__(PreferencePair)
    new.__dict__.update(vars(pair), **fields)
    return new


def group_of(pair: PreferencePair) -> str:
    """The sibling group of a pair: `columns["group"]`, the root of its problem; else the problem, else itself."""
    return str(pair.columns.get("group", pair.problem or pair.id))


class Spilled(Sequence[PreferencePair]):
    """Pairs in a file that has no name and ends with this object, or in the file `path`. groups [n]: what `ranks` says of the names
    of their groups."""

    groups: np.ndarray | None = None

    def __init__(self, pairs: Iterable[PreferencePair] = (), path: Path | None = None) -> None:
        self._file = path.open("w+b", 1 << 20) if path else tempfile.TemporaryFile(buffering=1 << 20)  # noqa: SIM115 (open as long as the pairs are read)
        self._added, self._ends = array("q", [0]), np.zeros(1, np.int64)
        self._odd: dict[int, PreferencePair] = {}  # those with values that are no plain ones stay as they are
        for pair in pairs:
            self.add(pair)

    def add(self, pair: PreferencePair) -> None:
        data = _written(pair)
        if data:
            self._file.write(data)
        else:
            self._odd[len(self)] = pair
        self._added.append(self._added[-1] + len(data))

    @property
    def ends(self) -> np.ndarray:
        """[n + 1] the byte at which each pair begins, and the end."""
        if len(self._ends) < len(self._added):
            self._file.flush()
            self._ends = np.array(self._added, np.int64)
        return self._ends

    @property
    def odd(self) -> dict[int, PreferencePair]:
        """Those that the file does not hold, by their place: with values that JSON does not give back."""
        return self._odd

    def close(self) -> None:
        """Ends the use of these pairs; a file that has a name stays."""
        self._file.close()

    def __len__(self) -> int:
        return len(self._added) - 1

    def __getitem__(self, i: Any) -> Any:
        if isinstance(i, slice):
            return self.take(np.arange(len(self))[i])
        return self.take(np.arange(len(self))[[i]])[0]

    def __iter__(self) -> Iterator[PreferencePair]:
        for rows in blocks(self, np.arange(len(self))):
            yield from self.take(rows)

    def take(self, rows: np.ndarray) -> list[PreferencePair]:
        if not len(rows):
            return []
        parts = self._data(rows)
        if not self._odd:
            return [_pair(str(part, "utf-8", "surrogatepass")) for part in parts]
        odd = self._odd
        return [
            changed(odd[i]) if i in odd else _pair(str(part, "utf-8", "surrogatepass"))
            for i, part in zip(rows.tolist(), parts, strict=True)
        ]

    def _data(self, rows: np.ndarray) -> Iterable[Any]:
        """The bytes of each pair."""
        return _parts(self._file.fileno(), self.ends[rows], self.ends[rows + 1])


class Joined(Spilled):
    """The pairs of several files that `Spilled` wrote, one after the other."""

    def __init__(self) -> None:
        super().__init__()
        super().close()
        self._files = list[IO[bytes]]()
        self._rows, self._bytes = [0], [0]  # at which each file begins, and the end
        self._parts = [np.zeros(1, np.int64)]

    def join(self, path: Path, ends: np.ndarray, odd: Mapping[int, PreferencePair]) -> None:
        """ends [n + 1]: of its pairs; odd: those that are not in the file, by their place."""
        self._files.append(path.open("rb", 0))
        self._odd.update({self._rows[-1] + i: pair for i, pair in odd.items()})
        self._parts.append(ends[1:] + self._bytes[-1])
        self._rows.append(self._rows[-1] + len(ends) - 1)
        self._bytes.append(self._bytes[-1] + int(ends[-1]))

    @property
    def ends(self) -> np.ndarray:
        if len(self._parts) > 1:
            self._parts = [np.concatenate(self._parts)]
        return self._parts[0]

    def add(self, pair: PreferencePair) -> None:
        raise TypeError("pairs of files that are whole: add to a Spilled, then join it")

    def close(self) -> None:
        for file in self._files:
            file.close()

    def __len__(self) -> int:
        return self._rows[-1]

    def _data(self, rows: np.ndarray) -> Iterable[Any]:
        which = np.searchsorted(self._rows, rows, side="right") - 1
        out: list[Any] = [b""] * len(rows)
        for k in np.unique(which).tolist():
            mine = np.flatnonzero(which == k)
            begin, end = (self.ends[rows[mine] + more] - self._bytes[k] for more in (0, 1))
            for i, part in zip(mine.tolist(), _parts(self._files[k].fileno(), begin, end), strict=True):
                out[i] = part
        return out


def _parts(file: int, begin: np.ndarray, end: np.ndarray) -> list[memoryview] | list[bytes]:
    """The bytes between, read at once where they lie close to each other."""
    first, last = int(begin.min()), int(end.max())
    if last - first <= 2 * int((end - begin).sum()):
        span = memoryview(os.pread(file, last - first, first))
        return [span[a:b] for a, b in zip((begin - first).tolist(), (end - first).tolist(), strict=True)]
    return [os.pread(file, b - a, a) for a, b in zip(begin.tolist(), end.tolist(), strict=True)]


_encode, _decode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode, json.JSONDecoder().raw_decode


def _written(pair: PreferencePair) -> bytes:
    """What is no text as JSON, then the texts as they are; b"" where JSON would give back something else."""
    decided = [[d.step, d.action, d.reason, d.score] for d in pair.decisions]
    columns, texts = dict(pair.columns), [pair.chosen, pair.rejected, *(m.content for m in pair.prompt)]
    # As of most: the prompt is not written twice.
    grouped_by_prompt = len(pair.prompt) == 1 and columns.get("group") == texts[-1]
    if grouped_by_prompt:
        columns["group"] = ""
    if not (all(map(_is_plain, columns.values())) and _is_plain(pair.margin) and _is_plain(decided)):
        return b""
    prompt = [[m.role, *m.media] for m in pair.prompt]
    rest = [pair.id, pair.source, pair.problem, pair.margin, columns, decided, pair.split, grouped_by_prompt]
    return "".join((_encode([*rest, prompt, list(map(len, texts))]), *texts)).encode("utf-8", "surrogatepass")


def _is_plain(value: Any) -> bool:
    """Whether JSON gives back what it was given."""
    kind = type(value)
    if kind in _PLAIN:
        return True
    if kind is dict:
        return all(type(k) is str for k in value) and all(map(_is_plain, value.values()))
    return kind is list and all(map(_is_plain, value))


_PLAIN = {str, int, float, bool, type(None)}


def _pair(data: str) -> PreferencePair:
    (name, source, problem, margin, columns, decided, split, grouped_by_prompt, prompt, lengths), at = _decode(data)
    texts = [data[at : (at := at + n)] for n in lengths]
    new = object.__new__(PreferencePair)
    of = new.__dict__
    of["id"], of["chosen"], of["rejected"] = name, texts[0], texts[1]
    of["prompt"] = tuple([_message(m[0], text, tuple(m[1:])) for m, text in zip(prompt, texts[2:], strict=True)])
    of["source"], of["problem"], of["margin"], of["columns"] = source, problem, margin, columns
    of["decisions"], of["split"] = tuple([decision(*d) for d in decided]) if decided else (), split
    if grouped_by_prompt:
        columns["group"] = texts[2]
    return new


def _message(role: str, content: str, media: tuple[str, ...]) -> Message:
    new = object.__new__(Message)
    of = new.__dict__
    of["role"], of["content"], of["media"] = role, content, media
    return new


def decision(step: str, action: Any, reason: str, score: float) -> Decision:
    """A Decision, in a third of the time of its constructor."""
    new = object.__new__(Decision)
    of = new.__dict__
    of["step"], of["action"], of["reason"], of["score"] = step, action, reason, score
    return new


def once(pairs: Sequence[PreferencePair]) -> Once:
    """What finds again what takes long: of pairs that keep nothing, a call of `make`."""
    return getattr(pairs, "once", afresh)


def mapped(pairs: Sequence[PreferencePair]) -> Mapped:
    """What runs a function for parts of these pairs."""
    return getattr(pairs, "mapped", map)


def each(
    once: Once,
    jobs: Iterable[tuple[str, Job]],
    make: Callable[[Any], Mapping[str, Any]],
    mapped: Mapped = map,
    *,
    load: Callable[[Job], Any] = lambda job: job,
    fits: Callable[[Mapping[str, Any], Job], bool] = lambda result, job: True,
) -> Iterator[Mapping[str, Any]]:
    """What `make` gives of each job, in order, or gave to an earlier run under its name; what does not fit is made again.

    load: of a job, what `make` is called with. mapped: runs `make`; another than `map` may take jobs ahead and pickle them.
    """
    if mapped is map:
        for name, job in jobs:
            result = once(name, lambda job=job: make(load(job)))
            yield result if fits(result, job) else make(load(job))
        return
    job: Any = None  # of the name that was taken last
    other = set[str]()  # names under which lies what does not fit

    def names() -> Iterator[str]:
        nonlocal job
        for name, it in jobs:
            job = it
            yield name

    def there(name: str) -> bool:
        earlier = _found(once, name)
        if earlier is not None and not fits(earlier, job):
            other.add(name)
            return False
        return earlier is not None

    for name, result in in_order(names(), there, lambda lacking: mapped(make, (load(job) for _ in lacking))):
        yield result if result is not None and name in other else once(name, lambda result=result: result or {})


class _Lacking(Exception):
    """Nothing is there."""


def _found(once: Once, name: str) -> Mapping[str, Any] | None:
    """What an earlier run left under a name."""

    def lacking() -> Mapping[str, Any]:
        raise _Lacking

    try:
        return once(name, lacking)
    except _Lacking:
        return None


def taken(pairs: Sequence[PreferencePair], rows: np.ndarray) -> list[PreferencePair]:
    """The pairs of some rows."""
    take = getattr(pairs, "take", None)
    return take(rows) if take else [pairs[i] for i in rows.tolist()]


def blocks(pairs: Sequence[PreferencePair], rows: np.ndarray) -> Iterator[np.ndarray]:
    """The rows in parts of at most ROWS pairs, and of about BYTES on disk."""
    ends = pairs.ends if isinstance(pairs, Spilled) else None
    at = 0
    while at < len(rows):
        part = rows[at : at + ROWS]
        if ends is not None:
            part = part[: max(1, int(np.searchsorted(np.cumsum(ends[part + 1] - ends[part]), BYTES)))]
        yield part
        at += len(part)


class Verdicts(Sequence[Decision]):
    """Decisions about n pairs, in order; `add` appends. kinds: what was said; code [n]: the kind of each."""

    def __init__(self, decisions: Iterable[Decision] = ()) -> None:
        self._kinds: dict[Kind, int] = {}
        self._listed: list[Kind] = []
        self._code, self._most = array("B"), 1 << 8  # kinds that an entry can tell apart
        self._first = array("d")  # of each kind the first score
        self._score: array[float] | None = None  # of each decision, once two of one kind differ
        self.extend(decisions)

    def extend(self, decisions: Iterable[Decision]) -> None:
        for d in decisions:
            whole = isinstance(d.score, float)
            self.add(d.step, d.action, d.reason, d.score if whole else 0.0, None if whole else d.score)

    def add(self, step: str, action: Any, reason: str, score: float, other: Any = None) -> None:
        """other: a score that is no float."""
        kinds = self._kinds
        code = kinds.setdefault((step, action, reason, other), len(kinds))
        if code == self._most:
            self._code, self._most = (
                (array("H", self._code), 1 << 16) if code < 1 << 16 else (array("i", self._code), 1 << 31)
            )
        if code == len(self._first):
            self._first.append(score)
        if self._score is None and self._first[code] != score:
            self._score = array("d", np.array(self._first)[np.array(self._code)].tobytes())
        if self._score is not None:
            self._score.append(score)
        self._code.append(code)

    def __len__(self) -> int:
        return len(self._code)

    def __getitem__(self, i: Any) -> Any:
        if isinstance(i, slice):
            return [self[k] for k in range(len(self))[i]]
        step, action, reason, other = self._list[self._code[i]]
        score = self._first[self._code[i]] if self._score is None else self._score[i]
        return decision(step, action, reason, score if other is None else other)

    def __iter__(self) -> Iterator[Decision]:
        kinds = self._list
        scores = map(self._first.__getitem__, self._code) if self._score is None else self._score
        for code, score in zip(self._code, scores, strict=True):
            step, action, reason, other = kinds[code]
            yield decision(step, action, reason, score if other is None else other)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    @property
    def _list(self) -> list[Kind]:
        if len(self._listed) < len(self._kinds):
            self._listed = list(self._kinds)
        return self._listed

    def arrays(self) -> Told:
        kinds, code = list(self._kinds), np.array(self._code)
        code = code.astype(np.min_scalar_type(len(kinds)), copy=False)
        code += 1
        if self._score is not None:
            return kinds, code, np.frombuffer(self._score)
        told = [k[3] if k[3] is not None else s for k, s in zip(kinds, self._first, strict=True)]
        return [(*k[:3], s) for k, s in zip(kinds, told, strict=True)], code, None


@dataclass
class _Column:
    name: str
    values: Filed  # [n, 1] NaN: the pair has none


@dataclass
class _Said:
    kinds: list[Kind]
    code: np.ndarray  # [n] 0: nothing was said
    score: Filed | None  # [n, 1]
    carried_out: bool

    @cached_property
    def objects(self) -> list[Decision | None]:
        return [None, *(decision(*k) for k in self.kinds)]

    @cached_property
    def flips(self) -> bool:
        return self.carried_out and any(k[1] == "flip" for k in self.kinds)

    def of(self, rows: np.ndarray) -> list[Decision | None]:
        codes = self.code[rows].tolist()
        if self.score is None:
            objects = self.objects if len(self.kinds) <= ROWS else None
            return (
                [objects[c] for c in codes] if objects else [decision(*self.kinds[c - 1]) if c else None for c in codes]
            )
        out: list[Decision | None] = []
        for c, score in zip(codes, self.score.at(rows)[:, 0].tolist(), strict=True):
            step, action, reason, other = self.kinds[c - 1]
            out.append(decision(step, action, reason, score if other is None else other) if c else None)
        return out


class Ledger:
    """What came about with `pairs`, which stay as they are. once: where what takes long is found again (`Once`); mapped: runs a
    function for parts of them."""

    def __init__(self, pairs: Sequence[PreferencePair], once: Once = afresh, mapped: Mapped = map) -> None:
        self.base, self.n, self.mapped = pairs, len(pairs), mapped
        self._once = once
        self._came: list[_Column | _Said] = []
        self._groups = pairs.groups if isinstance(pairs, Spilled) else None

    def groups(self) -> np.ndarray:
        """[n] int32 place of the name of each pair's sibling group among all names, sorted."""
        if self._groups is None:
            self._groups = ranks(map(group_of, self.base))
        return self._groups

    def once(self, name: str, make: Callable[[], Mapping[str, Any]]) -> Mapping[str, Any]:
        """What `make` gives, or gave to an earlier run of the same work. Names are told apart by what came about before."""
        return self._once(f"{len(self._came):02d}-{name}", make)

    def has(self, name: str) -> bool:
        """Whether a column of this name was computed for all pairs that are left."""
        return any(isinstance(event, _Column) and event.name == name for event in self._came)

    def column(self, rows: np.ndarray, name: str, values: np.ndarray) -> None:
        """values [rows] float64."""
        self._came.append(_Column(name, self._filed(rows, values, np.nan)))

    def said(self, rows: np.ndarray, told: Told, *, carried_out: bool) -> np.ndarray:
        """Notes `Verdicts.arrays` of [rows]; gives [rows] bool, those to be removed."""
        kinds, code, score = told
        whole = np.zeros(self.n, code.dtype)
        whole[rows] = code
        scores = None if score is None else self._filed(rows, score, 0.0)
        self._came.append(_Said(kinds, whole, scores, carried_out))
        return np.array([False, *(k[1] == "remove" for k in kinds)])[code]

    def _filed(self, rows: np.ndarray, values: np.ndarray, else_: float) -> Filed:
        """[n, 1] values of rows, which ascend, on disk; `else_` of the others."""
        out = Filed(1)
        for a in range(0, self.n, BLOCK):
            first, last = np.searchsorted(rows, [a, a + BLOCK])
            part = np.full((min(BLOCK, self.n - a), 1), else_)
            part[rows[first:last] - a, 0] = values[first:last]
            out.add(part)
        return out

    def counts(self) -> dict[tuple[str, str, str], int]:
        """(step, action, reason) -> pairs of which it was said, in the order of steps."""
        out: dict[tuple[str, str, str], int] = {}
        for event in self._came:
            if isinstance(event, _Said):
                for k, n in zip(event.kinds, np.bincount(event.code, minlength=1)[1:].tolist(), strict=True):
                    out[k[:3]] = out.get(k[:3], 0) + n
        return out

    def take(self, rows: np.ndarray, upto: int | None = None) -> list[PreferencePair]:
        """Pairs as they are after the first `upto` things that came about."""
        fresh = taken(self.base, rows)
        came = self._came[:upto]
        if not came:
            return fresh
        out = fresh if isinstance(self.base, Spilled) else [changed(p) for p in fresh]
        turning = any(isinstance(event, _Said) and event.flips for event in came)
        together: list[list[Decision | None]] = []
        for event in came:
            if isinstance(event, _Column):
                for p, x in zip(out, event.values.at(rows)[:, 0].tolist(), strict=True):
                    if not math.isnan(x):
                        p.__dict__["columns"] = {**p.columns, event.name: x}
            elif not turning:
                together.append(event.of(rows))
            else:
                decided = event.of(rows)
                for p, d in zip(out, decided, strict=True):
                    if d is not None:
                        p.__dict__["decisions"] = (*p.decisions, d)
                if event.flips:
                    out = [
                        swap_sides(p) if d is not None and d.action == "flip" else p
                        for p, d in zip(out, decided, strict=True)
                    ]
        if together:
            for p, decided in zip(out, zip(*together, strict=True), strict=True):
                p.__dict__["decisions"] = (*p.decisions, *[d for d in decided if d is not None])
        return out

    def view(self, rows: np.ndarray) -> View:
        return View(self, rows, len(self._came))


class View(Sequence[PreferencePair]):
    """Some rows of a ledger as they were when the view was made."""

    def __init__(self, ledger: Ledger, rows: np.ndarray, upto: int) -> None:
        self.ledger, self.rows, self.upto = ledger, rows, upto

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, i: Any) -> Any:
        if isinstance(i, slice):
            return self.take(np.arange(len(self))[i])
        return self.take(np.arange(len(self))[[i]])[0]

    def __iter__(self) -> Iterator[PreferencePair]:
        for block in self.blocks():
            yield from block

    def blocks(self) -> Iterator[list[PreferencePair]]:
        for rows in blocks(self.ledger.base, self.rows):
            yield self.ledger.take(rows, self.upto)

    def once(self, name: str, make: Callable[[], Mapping[str, Any]]) -> Mapping[str, Any]:
        """As of the ledger."""
        return self.ledger.once(name, make)

    @property
    def mapped(self) -> Mapped:
        """As of the ledger."""
        return self.ledger.mapped

    def take(self, places: np.ndarray) -> list[PreferencePair]:
        """Of the rows of this view."""
        return self.ledger.take(self.rows[places], self.upto)

    def where(self, chosen: np.ndarray) -> View:
        """chosen [len(self)] bool."""
        return View(self.ledger, self.rows[chosen], self.upto)
