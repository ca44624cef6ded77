"""Problems on disk, of which some tens of bytes each are in memory: what curricula look at.

known = Problems(tables.each(path, Problem))
known[7]                                   # the whole problem, read from the file
[p.family for p in known]                  # from memory
known.where(np.array([p.env == "single" for p in known]))
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from synth.types import Problem, to_row
from tasks.storage.on_disk import OnDisk

BLOCK = 1 << 14  # rows whose numbers are Python's at once
KINDS = 1 << 16  # sets of what many problems share that are in memory
SHARED = ("split", "env", "family", "verifier")  # and `difficulty`


class _File:
    """The rows of problems in a file that has no name and ends with this object. In memory are of each its id, its place and its
    kind: some 40 bytes."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self._rows = OnDisk(Problem)
        self._id_begin, self._ids = array("q", [0]), bytearray()
        self._kind, self._kinds = array("i"), list[dict[str, Any]]()
        kinds: dict[tuple[str, ...], int] = {}
        for p in problems:
            row = to_row(p)
            self._rows.add(row)
            self._ids += p.id.encode("utf-8", "surrogatepass")
            self._id_begin.append(len(self._ids))
            of = {name: getattr(p, name) for name in SHARED}
            key = (*of.values(), row["difficulty"])
            if key not in kinds and len(kinds) < KINDS:
                of["difficulty"] = p.difficulty
            else:
                key = key if key in kinds else (*of.values(), "")  # its difficulty is read where it is asked for
            code = kinds.setdefault(key, len(self._kinds))
            if code == len(self._kinds):
                self._kinds.append(of)
            self._kind.append(code)
        self._rows.flush()

    def __len__(self) -> int:
        return len(self._kind)

    def id(self, row: int) -> str:
        return self._ids[self._id_begin[row] : self._id_begin[row + 1]].decode("utf-8", "surrogatepass")

    def whole(self, row: int) -> Problem:
        return self._rows[row]

    def outline(self, row: int) -> _Outline:
        new = object.__new__(_Outline)
        vars(new).update(self._kinds[self._kind[row]], id=self.id(row), _at=(self, row))
        return new


class _Outline(Problem):
    """A problem of which the file is read once more is asked for than is in memory."""

    def __getattr__(self, name: str) -> Any:
        if name not in _FIELDS or "_at" not in vars(self):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        file, row = vars(self)["_at"]
        vars(self).update(vars(file.whole(row)))
        return vars(self)[name]

    def _plain(self) -> Problem:
        return Problem(**{name: getattr(self, name) for name in _FIELDS})

    def __eq__(self, other: object) -> bool:
        return self._plain() == (other._plain() if isinstance(other, _Outline) else other)

    __hash__ = Problem.__hash__

    def __reduce__(self) -> tuple[Any, ...]:  # another process has no such file
        return _made, (vars(self._plain()),)


_FIELDS = tuple(f.name for f in fields(Problem))


def _made(of: Mapping[str, Any]) -> Problem:
    return Problem(**of)


class Problems(Sequence[Problem]):
    """Problems in a temporary file. One that is asked for by its place is read whole; gone through, they give id, split, env, family,
    verifier and (of KINDS sets of these) difficulty from memory, and the rest from the file when it is asked for."""

    def __init__(self, problems: Iterable[Problem] = (), *, of: Problems | None = None, rows: Any = None) -> None:
        """of, rows: some rows of others, in place of `problems`."""
        self._file = _File(problems) if of is None else of._file
        self._rows = np.arange(len(self._file)) if rows is None else np.asarray(rows, np.int64)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, i: Any) -> Any:
        if isinstance(i, slice):
            return [self._file.whole(row) for row in self._rows[i].tolist()]
        return self._file.whole(int(self._rows[i]))

    def __iter__(self) -> Iterator[Problem]:
        for lo in range(0, len(self), BLOCK):
            yield from map(self._file.outline, self._rows[lo : lo + BLOCK].tolist())

    def ids(self) -> Iterator[str]:
        for lo in range(0, len(self), BLOCK):
            yield from map(self._file.id, self._rows[lo : lo + BLOCK].tolist())

    def where(self, chosen: np.ndarray) -> Problems:
        """chosen [len(self)] bool."""
        return Problems(of=self, rows=self._rows[chosen])

    def at(self, places: np.ndarray) -> Problems:
        return Problems(of=self, rows=self._rows[places])


class ByName(Mapping[str, Problem]):
    """The problems by id, in their order; of one id the last counts, in the place of the first, as in a dict. 16 bytes each."""

    def __init__(self, problems: Problems) -> None:
        self._file, rows = problems._file, problems._rows
        hashes = np.fromiter(map(hash, problems.ids()), np.int64, len(rows))
        order = np.argsort(hashes, kind="stable")
        alike = np.flatnonzero(hashes[order[1:]] == hashes[order[:-1]])
        if len(alike):
            hashes, rows, order = self._last_of_each(problems, hashes, order, alike)
        self._hashes, self._sorted = hashes[order], rows[order]
        self.problems = Problems(of=problems, rows=rows)

    def _last_of_each(
        self, problems: Problems, hashes: np.ndarray, order: np.ndarray, alike: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        rows, keep, first = problems._rows.copy(), np.ones(len(hashes), bool), dict[str, int]()
        for i in np.unique(order[np.concatenate([alike, alike + 1])]).tolist():
            at = first.setdefault(self._file.id(int(problems._rows[i])), i)
            if at != i:
                rows[at], keep[i] = problems._rows[i], False
        return hashes[keep], rows[keep], np.argsort(hashes[keep], kind="stable")

    def _row(self, name: object) -> int | None:
        at = int(np.searchsorted(self._hashes, hash(name)))
        while at < len(self._hashes) and self._hashes[at] == hash(name):
            if self._file.id(row := int(self._sorted[at])) == name:
                return row
            at += 1
        return None

    def __getitem__(self, name: str) -> Problem:
        row = self._row(name)
        if row is None:
            raise KeyError(name)
        return self._file.whole(row)

    def __contains__(self, name: object) -> bool:
        return self._row(name) is not None

    def __iter__(self) -> Iterator[str]:
        return self.problems.ids()

    def __len__(self) -> int:
        return len(self.problems)
