"""A knowledge base as sorted integers: questions are found by intersecting them, and a million entities fit into
memory.

Entities are numbered 0 ... E-1 in the order of their ids, literals E ... E+L-1 in the order of their text; relations in
the given order. A fact is (relation, subject, value), stored twice: sorted by subject and sorted by value, so that
either direction is one binary search in the block of a relation. 12 bytes per fact and direction, against several
hundred for Python objects.

    forward(r, s)     the values of subject s under relation r       backward(r, v)   the subjects with value v
    reach(r, xs, f)   the union of `forward` (f) or `backward` over a sorted array xs, in one pass
    between(r, a, b)  the subjects whose number (or year) under r lies in [a, b]

All results are sorted arrays of int32 without repetition; `intersect` works on them smallest first.
"""

from __future__ import annotations

import json
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, overload

import numpy as np

from synth.knowledge.kb import KB, Relation

Ints = np.ndarray  # int32, sorted, without repetition


class Texts(Sequence[str]):
    """Strings in one buffer: `blob` uint8 [bytes], `ends` int64 [n]. Decoded when asked for."""

    def __init__(self, blob: np.ndarray, ends: np.ndarray) -> None:
        self.blob, self.ends = blob, ends

    @staticmethod
    def of(texts: Iterable[str]) -> Texts:
        data = [t.encode() for t in texts]
        ends = np.cumsum(np.fromiter(map(len, data), np.int64, len(data)), dtype=np.int64)
        return Texts(np.frombuffer(b"".join(data), np.uint8), ends)

    def __len__(self) -> int:
        return len(self.ends)

    @overload
    def __getitem__(self, i: int) -> str: ...
    @overload
    def __getitem__(self, i: slice) -> list[str]: ...
    def __getitem__(self, i: int | slice) -> str | list[str]:
        if isinstance(i, slice):
            return [self[j] for j in range(*i.indices(len(self)))]
        if not -len(self) <= i < len(self):
            raise IndexError(f"text {i} of {len(self)}")
        i = int(i) % len(self)
        return self.blob[int(self.ends[i - 1]) if i else 0 : int(self.ends[i])].tobytes().decode()

    def find(self, text: str) -> int:
        """The index of `text` among sorted texts; -1 if it is absent."""
        i = bisect_left(self, text)
        return i if i < len(self) and self[i] == text else -1


class Postings:
    """Raises ValueError if the arrays are inconsistent.

    ids, names, literals   [E], [E], [L]; ids and literals sorted
    types                  [E] int16, index into `type_names`
    facts                  int32 [F] each: relation, subject, value; every fact once
    forward                the facts are in the order of `save`, and are not read by their values
    """

    def __init__(
        self,
        *,
        ids: Sequence[str],
        names: Sequence[str],
        types: np.ndarray,
        type_names: Sequence[str],
        literals: Sequence[str],
        relations: Sequence[Relation],
        facts: tuple[np.ndarray, np.ndarray, np.ndarray],
        forward: bool = False,
    ) -> None:
        self.ids, self.names, self.literals = (
            t if isinstance(t, Texts) else Texts.of(t) for t in (ids, names, literals)
        )
        self.types, self.type_names, self.relations = np.asarray(types, np.int16), tuple(type_names), tuple(relations)
        self.number = {r.name: i for i, r in enumerate(self.relations)}
        relation, subject, value = (np.asarray(x, np.int32) for x in facts)
        n, values = len(self.ids), len(self.ids) + len(self.literals)
        if len(relation) and not (0 <= subject.min() <= subject.max() < n and 0 <= value.min() <= value.max() < values):
            raise ValueError(
                f"a fact names an entity or literal beyond the {n} entities and {values - n} literals that were given"
            )
        self._start = np.concatenate([[0], np.cumsum(np.bincount(relation, minlength=len(self.relations)))])
        self._numbers: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        self._by = {True: (subject, value) if forward else _sorted(relation, subject, value, values)}
        if not forward:
            self._by[False] = _sorted(relation, value, subject, values)

    @staticmethod
    def of(kb: KB) -> Postings:
        """The postings of a KB in memory."""
        ids = sorted(kb.entities)
        at = {x: i for i, x in enumerate(ids)}
        literals = sorted({f.literal for f in kb.facts.values() if f.literal is not None})
        lit = {x: len(ids) + i for i, x in enumerate(literals)}
        type_names = sorted({e.type for e in kb.entities.values()})
        number = {name: i for i, name in enumerate(kb.relations)}
        rows = array("i")
        for f in kb.facts.values():
            value = lit[f.literal] if f.object is None else at[f.object]  # type: ignore[index]
            rows.extend((number[f.relation], at[f.subject], value))
        columns = np.frombuffer(rows, np.int32).reshape(-1, 3).T
        types = np.array([type_names.index(kb.entities[x].type) for x in ids], np.int16)
        return Postings(
            ids=ids,
            names=[kb.entities[x].name for x in ids],
            types=types,
            type_names=type_names,
            literals=literals,
            relations=tuple(kb.relations.values()),
            facts=(columns[0], columns[1], columns[2]),
        )

    def __len__(self) -> int:
        """The number of facts."""
        return len(self._by[True][0])

    # ---- names and numbers

    def index(self, value: str) -> int:
        """The number of an entity id, else of a literal; -1 for neither."""
        i = self.ids.find(value)
        return i if i >= 0 else self.literal(value)

    def literal(self, text: str) -> int:
        """The number of a literal; -1 if no fact has it."""
        i = self.literals.find(text)
        return i + len(self.ids) if i >= 0 else -1

    def value(self, i: int) -> str:
        """The entity id or literal of a number."""
        return self.ids[i] if i < len(self.ids) else self.literals[int(i) - len(self.ids)]

    def text(self, i: int) -> str:
        """The name of an entity, the text of a literal."""
        return self.names[i] if i < len(self.ids) else self.literals[int(i) - len(self.ids)]

    def of_type(self, type: str) -> Ints:
        """The entities of a type."""
        return np.flatnonzero(self.types == self.type_names.index(type)).astype(np.int32)

    # ---- facts

    def forward(self, relation: int, subject: int) -> Ints:
        return self._slice(relation, subject, True)

    def backward(self, relation: int, value: int) -> Ints:
        return self._slice(relation, value, False)

    def _slice(self, relation: int, x: int, forward: bool) -> Ints:
        keys, others = self.block(relation, forward)
        return others[keys.searchsorted(x) : keys.searchsorted(x, "right")]

    def block(self, relation: int, forward: bool) -> tuple[np.ndarray, np.ndarray]:
        """(keys, others) of one relation, sorted by key, then by other."""
        part = slice(self._start[relation], self._start[relation + 1])
        keys, others = self._by[forward]
        return keys[part], others[part]

    def reach(self, relation: int, xs: Ints, forward: bool) -> Ints:
        """The union over xs of `forward` (or `backward`)."""
        keys, others = self.block(relation, forward)
        lo, hi = keys.searchsorted(xs), keys.searchsorted(xs, "right")
        n = hi - lo
        if not n.any():
            return others[:0]
        places = np.arange(n.sum()) + np.repeat(lo - np.concatenate([[0], np.cumsum(n)[:-1]]), n)
        return np.unique(others[places])

    def subjects(self, relation: int) -> Ints:
        """The subjects that have any value under a relation."""
        return np.unique(self.block(relation, True)[0])

    def fan(self, relation: int, forward: bool) -> np.ndarray:
        """[keys with any] int64: how many others each key has; the median says how selective a clue is."""
        return np.unique(self.block(relation, forward)[0], return_counts=True)[1]

    def between(self, relation: int, low: float, high: float) -> Ints:
        """The subjects with a number in [low, high] under a relation."""
        numbers, subjects = self.sorted_numbers(relation)
        return np.unique(subjects[numbers.searchsorted(low) : numbers.searchsorted(high, "right")])

    def sorted_numbers(self, relation: int) -> tuple[np.ndarray, np.ndarray]:
        """(float64 numbers ascending, their subjects) of a relation whose range is number, year or date (1789-07-14 is
        17890714); other literals are skipped. Computed once."""
        if relation not in self._numbers:
            keys, subjects = self.block(relation, False)
            unique, place = np.unique(keys, return_inverse=True)
            dates = self.relations[relation].range == "date"
            numbers = (
                np.array([as_number(self.text(i), date=dates) for i in unique], np.float64)[place]
                if len(unique)
                else np.zeros(0)
            )
            some = ~np.isnan(numbers)
            order = np.argsort(numbers[some], kind="stable")
            self._numbers[relation] = numbers[some][order], subjects[some][order]
        return self._numbers[relation]

    # ---- disk

    def save(self, path: Path) -> None:
        """One .npz without pickled objects."""
        words = {
            f"{n}_{k}": getattr(getattr(self, n), k) for n in ("ids", "names", "literals") for k in ("blob", "ends")
        }
        header = json.dumps(
            {"types": self.type_names, "relations": [asdict(r) for r in self.relations]}, ensure_ascii=False
        )
        relation = np.repeat(np.arange(len(self.relations), dtype=np.int32), np.diff(self._start))
        with path.open("wb") as out:
            np.savez(
                out,
                schema=np.frombuffer(header.encode(), np.uint8),
                types=self.types,
                relation=relation,
                subject=self._by[True][0],
                value=self._by[True][1],
                **words,
            )

    @staticmethod
    def load(path: Path) -> Postings:
        """Load what `save` wrote. Raises ValueError if the file is something else."""
        try:
            with np.load(path, allow_pickle=False) as file:
                part = {name: file[name] for name in file.files}
            schema = json.loads(part["schema"].tobytes())
            words: dict[str, Any] = {
                n: Texts(part[f"{n}_blob"], part[f"{n}_ends"]) for n in ("ids", "names", "literals")
            }
            relations = [Relation(**r) for r in schema["relations"]]
            return Postings(
                types=part["types"],
                type_names=schema["types"],
                relations=relations,
                facts=(part["relation"], part["subject"], part["value"]),
                **words,
            )
        except (OSError, KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{path} holds no postings ({error}): `espalier kb build` writes them") from error


def as_number(text: str, *, date: bool = False) -> float:
    """The numeric value of a literal, with or without commas between thousands, or the digits of a date; NaN for
    anything else."""
    try:
        return float(text.replace("-" if date else ",", ""))
    except ValueError:
        return float("nan")


def intersect(sets: Sequence[Ints]) -> Ints:
    """The intersection of sorted arrays: the smallest is looked up in the others, so its size determines the cost."""
    first, *rest = sorted(sets, key=len)
    for other in rest:
        if not len(first) or not len(other):
            return first[:0]
        place = other.searchsorted(first)
        place[place == len(other)] = 0
        first = first[other[place] == first]
    return first


def _sorted(relation: np.ndarray, key: np.ndarray, other: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """(key, other) sorted by relation, then key, then other."""
    if n and relation.size and (int(relation.max()) + 1) * n * n < 2**63:
        whole = relation.astype(np.int64)  # one number for each fact: sorting these is faster than finding an order
        for part in (key, other):
            whole *= n
            whole += part
        whole.sort()
        others = (whole % n).astype(np.int32)
        whole //= n
        whole %= n
        return whole.astype(np.int32), others
    order = np.lexsort((other, key, relation))
    return key[order], other[order]
