"""A knowledge base of one table, kept by columns: what `ingest.build` makes of the same table, without an object for
every fact.

`ColumnBase.of` gives None where the table needs what only `ingest.build` does (two objects that a relation does not
allow, relations of one name). `facts` gives the facts in their order, a few thousand at a time; `kb` makes them all
objects.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from synth.knowledge.arrow_texts import TEXT as _TEXT
from synth.knowledge.arrow_texts import ArrowTexts, contents, in_json, joined, pc, quote
from synth.knowledge.cells import NONE, Cells
from synth.knowledge.columns import Column, distinct, keys_of, settle, year_of, years_of
from synth.knowledge.ingest import LONGEST, Built, problem
from synth.knowledge.kb import BLANK as BLANK_OF_TEMPLATE
from synth.knowledge.kb import KB, Entity, Fact, Relation, densities, entity_id
from synth.knowledge.names import Same, resolve
from synth.knowledge.orders import inverse
from synth.knowledge.postings import Postings, Texts
from synth.knowledge.rows import Reading, Row, quarantine
from synth.types import Quarantined

_FACT = ("id", "subject", "relation", "object", "literal", "source", "span", "title", "text")
_BATCH = 16_384  # records
_FAR = np.iinfo(np.int64).max


class _Arrays(dict[str, pa.Array]):
    """Arrays that are made when they are asked for, each by a function of the others."""

    def __init__(self, **make: Callable[[_Arrays], pa.Array]) -> None:
        self._make = make

    def __missing__(self, name: str) -> pa.Array:
        self[name] = self._make[name](self)
        return self[name]


@dataclass
class Stated:
    """The facts of one relation: of record i the value `values[new[codes[i]]]`, read from the text `texts[codes[i]]` of a
    column; none where codes[i] is NONE. `late`: after the facts of all records, as the years of dates are."""

    relation: Relation
    column: str
    texts: ArrowTexts
    codes: np.ndarray
    new: np.ndarray
    values: ArrowTexts
    inverse: bool = False  # it is stated whether an object has one subject
    late: bool = False

    @cached_property
    def arrays(self) -> _Arrays:
        """[values] "y", the values, and "Y", each with a capital; "ids"; "tails", of the text of which a fact's id is the hash
        the end; and [texts] "texts"."""
        head, literal = quote(self.relation.name), self.relation.literal
        return _Arrays(
            y=lambda arrays: self.values.array,
            Y=lambda arrays: _capitals(self.values),
            ids=lambda arrays: arrays["y"] if literal else joined(f"{self.relation.range}:", arrays["y"]),
            tails=lambda arrays: (
                joined(f",{head},null,", in_json(arrays["ids"]), "]")
                if literal
                else joined(f",{head},", in_json(arrays["ids"]), ",null]")
            ),
            texts=lambda arrays: self.texts.array,
        )

    @cached_property
    def template(self) -> tuple[list[str], list[str]]:
        """`_sentence` of the relation."""
        return _sentence(self.relation)


@dataclass
class ColumnBase:
    """subjects, lines   of the records (`cells.Cells`)
    stated            the relations that have facts, in the order of their columns
    entities          [entities] their names, those of the records first; `types` [entities] an index into `type_names`;
                      `order` those that facts mention, in the order of their first; `places` the record of that
    aliases           entity -> further names
    """

    name: str
    type: str
    subjects: ArrowTexts
    lines: np.ndarray
    stated: list[Stated]
    relations: dict[str, Relation]
    entities: ArrowTexts
    types: np.ndarray
    type_names: list[str]
    order: np.ndarray
    places: np.ndarray
    ends: dict[str, np.ndarray]
    aliases: dict[int, tuple[str, ...]]
    quarantined: tuple[Quarantined, ...]
    produced: int
    accepted: int
    listed: frozenset[str]
    doubtful: tuple[Same, ...]
    absent: tuple[str, ...] = ()

    @staticmethod
    def of(
        cells: Cells, edited: Mapping[str, Mapping[str, object]] | None = None, *, elsewhere: bool = False
    ) -> ColumnBase | None:
        """The base of a table; `edited` and `elsewhere` as in `ingest.build`."""
        return _of(cells, edited or {}, elsewhere)

    # ---- as values

    def id(self, entity: int) -> str:
        return f"{self.type_names[self.types[entity]]}:{self.entities[entity]}"

    def entity_columns(self, *, by_id: bool = False) -> Iterator[dict[str, list[Any]]]:
        """The entities that facts mention, in the order of the first mention or of their ids, some at a time, as the
        columns of `Entity`."""
        order, places = self.order, self.places
        if by_id:
            order = self.by_id
            place = np.empty(len(self.entities), np.int64)
            place[self.order] = places
            places = place[order]
        for at in range(0, len(order), 4 * _BATCH):
            some = order[at : at + 4 * _BATCH]
            names = self.entities.take(some).array.to_pylist()
            types = [self.type_names[t] for t in self.types[some].tolist()]
            aliases = self.aliases.get
            yield {
                "id": [entity_id(t, x) for t, x in zip(types, names, strict=True)],
                "name": names,
                "type": types,
                "aliases": [aliases(e, ()) for e in some.tolist()],
                "source": [f"{self.name} line {n}" for n in self.lines[places[at : at + len(some)]].tolist()],
            }

    @cached_property
    def by_id(self) -> np.ndarray:
        """The entities that facts mention, in the order of their ids."""
        return self.order[ArrowTexts(self._ids()).take(self.order).ranked()]

    def _ids(self) -> pa.Array:
        """[entities] their ids: made anew each time, since a million take 40 MB."""
        types = pa.array([f"{t}:" for t in self.type_names], _TEXT).take(pa.array(self.types))
        return joined(types, self.entities.array)

    @cached_property
    def _names(self) -> _Arrays:
        """[records] "x", their names, and "X", each with a capital."""
        return _Arrays(
            x=lambda arrays: self.subjects.array,
            X=lambda arrays: _capitals(self.subjects),
        )

    @cached_property
    def _numbers(self) -> np.ndarray:
        """[facts] uint64, in their order: the eight bytes that are the id of each."""
        quoted = in_json(self._ids().slice(0, len(self.subjects)))
        out = np.empty(self.accepted, np.uint64)
        done = 0
        for rows, of, codes in self._places():
            hashes = np.empty(len(rows), np.uint64)
            for k in np.unique(of).tolist():
                here = of == k
                ends = self.stated[k].arrays["tails"].take(pa.array(self.stated[k].new[codes[here]]))
                hashes[here] = _hashes("[", quoted.take(pa.array(rows[here])), ends)
            out[done : done + len(rows)] = hashes
            done += len(rows)
        for s in self.stated:
            s.arrays.pop("tails", None)
        pa.default_memory_pool().release_unused()
        return out

    def _by_id(self) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
        """`_places` in the order of the ids, and these as numbers: 8 bytes of each id, and 10 that say which fact it is."""
        sort = np.argsort(self._numbers)
        if len(sort) < 1 << 31:
            sort = sort.astype(np.int32)
        rows, of, codes = (np.empty(len(sort), kind) for kind in (np.int32, np.int16, np.int32))
        done = 0
        for some in self._places():
            for whole, part in zip((rows, of, codes), some, strict=True):
                whole[done : done + len(part)] = part
            done += len(some[0])
        for at in range(0, len(sort), 4 * _BATCH):
            some = sort[at : at + 4 * _BATCH]
            yield rows[some], of[some], codes[some], self._numbers[some]

    def index_columns(self, end: str = "") -> Iterator[tuple[pa.Array, pa.Array, pa.Array]]:
        """Some at a time, in their order: (subject, relation, id) of the facts, or where `end` is "object" or "literal",
        (relation, that, id) of those that have it."""
        relations = sorted(range(len(self.stated)), key=lambda k: self.stated[k].relation.name)
        at = self._where()
        if not end:
            names = pa.array([self.stated[k].relation.name for k in relations], _TEXT)
            records = self.subjects.ranked()
            for begin in range(0, len(records), max(1, 4 * _BATCH // max(1, len(relations)))):
                some = records[begin : begin + max(1, 4 * _BATCH // max(1, len(relations)))]
                there = np.stack([self.stated[k].codes[some] != NONE for k in relations], 1)
                numbers = self._numbers[np.stack([at(k, some) for k in relations], 1)[there]]
                row, column = np.nonzero(there)
                subjects = joined(f"{self.type}:", self._names["x"].take(pa.array(some[row])))
                yield subjects, names.take(pa.array(column)), _hex(numbers)
            return
        for s, k in ((self.stated[k], k) for k in relations):
            if s.relation.literal == (end == "literal"):
                rows = np.flatnonzero(s.codes != NONE)
                rank = inverse(ArrowTexts(s.arrays["ids"]).ranked(), np.int32)
                of, numbers = s.new[s.codes[rows]], self._numbers[at(k, rows)]
                sort = np.lexsort((numbers, rank[of]))
                for begin in range(0, len(sort), 4 * _BATCH):
                    some = sort[begin : begin + 4 * _BATCH]
                    name = pa.array([s.relation.name], _TEXT).take(pa.array(np.zeros(len(some), np.int8)))
                    yield name, s.arrays["ids"].take(pa.array(of[some])), _hex(numbers[some])

    def _where(self) -> Callable[[int, np.ndarray], np.ndarray]:
        """The places of the facts of some records under relation `stated[k]`, of those that have one."""
        now = [k for k, s in enumerate(self.stated) if not s.late]
        starts = np.zeros(len(self.subjects), np.int64)
        for k in now:
            starts += self.stated[k].codes != NONE
        before = int(starts.sum())
        starts = np.cumsum(starts) - starts
        late = {}
        for k, s in enumerate(self.stated):
            if s.late:
                late[k] = np.cumsum(s.codes != NONE) + (before - 1)
                before = int(late[k][-1]) + 1 if len(late[k]) else before

        def place(k: int, records: np.ndarray) -> np.ndarray:
            if k in late:
                return late[k][records]
            others = (self.stated[j].codes[records] != NONE for j in now if j < k)
            return starts[records] + sum(x.astype(np.int64) for x in others)

        return place

    def _in_order(self) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
        done = 0
        for rows, of, codes in self._places():
            yield rows, of, codes, self._numbers[done : done + len(rows)]
            done += len(rows)

    def fact_columns(self, names: Sequence[str] = _FACT, *, by_id: bool = False) -> Iterator[dict[str, pa.Array]]:
        """The facts in their order or in that of their ids, some at a time, as the columns of `Fact`; beside them "title",
        the name of the subject, and "text", the sentence of the fact. `names`: which of these."""
        head = f"{self.type}:"
        for rows, of, codes, numbers in self._by_id() if by_id else self._in_order():
            parts: dict[str, list[pa.Array]] = {f: [] for f in ("object", "literal", "span", "text") if f in names}
            places = []
            for k in np.unique(of).tolist():
                s = self.stated[k]
                (here,) = np.nonzero(of == k)
                places.append(here)
                records, texts, new = (pa.array(x) for x in (rows[here], codes[here], s.new[codes[here]]))
                own = "literal" if s.relation.literal else "object"
                for name in {"object", "literal"} & parts.keys():
                    ends = s.arrays["ids"].take(new) if name == own else pa.nulls(len(here), _TEXT)
                    parts[name].append(ends)
                if "span" in parts:
                    x = self._names["x"].take(records)
                    parts["span"].append(joined(x, f" {s.column} = ", s.arrays["texts"].take(texts)))
                if "text" in parts:
                    parts["text"].append(self._sentences(k, records, new))
            order = pa.array(inverse(np.concatenate(places)))
            done = {f: pa.concat_arrays(some).take(order) for f, some in parts.items()}
            done["id"] = _hex(numbers)
            done["title"] = self._names["x"].take(pa.array(rows))
            done["subject"] = joined(head, done["title"])
            done["source"] = joined(f"{self.name} line ", pa.array(self.lines[rows]).cast(_TEXT))
            if "relation" in names:
                labels = pa.array([s.relation.name for s in self.stated], _TEXT)
                done["relation"] = labels.take(pa.array(of))
            yield {f: done[f] for f in names}

    def _sentences(self, k: int, records: pa.Array, values: pa.Array) -> pa.Array:
        """What the facts of records say that have these values under relation `stated[k]`."""
        pieces, order = self.stated[k].template
        parts: list[Any] = [pieces[0]]
        for i, (blank, after) in enumerate(zip(order, pieces[1:], strict=True)):
            name = blank.upper() if i == 0 and not pieces[0] else blank
            parts += [
                self._names[name].take(records) if blank == "x" else self.stated[k].arrays[name].take(values),
                after,
            ]
        return joined(*(p for p in parts if not isinstance(p, str) or p))

    def said(self, records: np.ndarray, which: np.ndarray) -> pa.Array:
        """What the facts of some records say, each of the relation `stated[which]`, in their order."""
        parts, places = [pa.array([], _TEXT)], [np.zeros(0, np.int64)]
        for k in np.flatnonzero(np.bincount(which)).tolist():
            (here,) = np.nonzero(which == k)
            s, some = self.stated[k], records[here]
            parts.append(self._sentences(k, pa.array(some), pa.array(s.new[s.codes[some]])))
            places.append(here)
        return pa.concat_arrays(parts).take(pa.array(inverse(np.concatenate(places))))

    def fact_batches(self) -> Iterator[list[Fact]]:
        """The facts in their order, some at a time."""
        columns = [f.name for f in fields(Fact)]
        for some in self.fact_columns(columns):
            yield [Fact(**dict(zip(columns, row))) for row in zip(*(some[c].to_pylist() for c in columns), strict=True)]

    def _places(self) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """(records, which of `stated`, codes of the texts) of the facts in their order."""
        now = [k for k, s in enumerate(self.stated) if not s.late]
        for some in [now, *([k] for k, s in enumerate(self.stated) if s.late)]:
            step = max(1, 4 * _BATCH // max(1, len(some)))
            for at in range(0, len(self.subjects) if some else 0, step):
                block = np.stack([self.stated[k].codes[at : at + step] for k in some], 1)
                row, column = np.nonzero(block != NONE)
                if len(row):
                    yield row + at, np.array(some)[column], block[row, column]

    def forget(self, *, ids: bool = True) -> None:
        """Give back the memory of what is made again where it is asked for again; `ids`: those of the facts too, which take
        longest."""
        for name in ("by_id", "_names", *(["_numbers"] if ids else [])):
            self.__dict__.pop(name, None)
        for s in self.stated:
            s.__dict__.pop("arrays", None)
        pa.default_memory_pool().release_unused()

    def kb(self) -> KB:
        """All of it as objects."""
        entities = (
            Entity(**dict(zip(columns, row)))
            for columns in self.entity_columns()
            for row in zip(*columns.values(), strict=True)
        )
        return KB(entities, self.relations.values(), (f for some in self.fact_batches() for f in some))

    def built(self) -> Built:
        return Built(
            kb=self.kb(),
            listed=self.listed,
            doubtful=self.doubtful,
            quarantined=self.quarantined,
            produced=self.produced,
            accepted=self.accepted,
        )

    # ---- what is computed from all facts

    def digest(self) -> str:
        """As `KB.digest`, of the lines in their order without a list of them: the text of a name ends with a quote, so
        that none is the beginning of another, and lines are in the order of their names."""
        total = hashlib.sha256()
        quoted = in_json(self._ids())
        heads = pa.array([f", {quote(t)}" for t in self.type_names], _TEXT)
        entities = self.order[ArrowTexts(quoted).take(self.order).ranked()]
        for at in range(0, len(entities), _BATCH):
            some = entities[at : at + _BATCH]
            names = in_json(self.entities.take(some).array)
            ends = ["".join(f", {quote(a)}" for a in sorted(self.aliases.get(e, ()))) + "]\n" for e in some.tolist()]
            types = heads.take(pa.array(self.types[some]))
            lines = joined('["entity", ', quoted.take(pa.array(some)), ", ", names, types, pa.array(ends, _TEXT))
            total.update(contents(lines))
        columns = []
        for s in sorted(self.stated, key=lambda s: quote(s.relation.name)):
            head = f", {quote(s.relation.name)}, {json.dumps(s.relation.literal)}, "
            columns.append((s, pa.scalar(head, _TEXT)))
        records = ArrowTexts(quoted.slice(0, len(self.subjects))).ranked()
        for at in range(0, len(records), _BATCH):
            some = records[at : at + _BATCH]
            subjects = joined('["fact", ', quoted.take(pa.array(some)))
            cells = []
            for s, head in columns:
                codes = s.codes[some]
                of = pa.array(s.new[codes], mask=codes == NONE)
                cells.append(pc.coalesce(joined(subjects, head, in_json(s.arrays["ids"].take(of)), "]\n"), ""))
            total.update(contents(joined(*cells)))
        for line in sorted(
            json.dumps(["relation", *map(str, astuple(r))], ensure_ascii=False) for r in self.relations.values()
        ):
            total.update(line.encode() + b"\n")
        return total.hexdigest()

    def density(self) -> dict[str, object]:
        """As `KB.density`."""
        subjects, objects, alone = [], [], []
        for s in self.stated:
            rows = np.flatnonzero(s.codes != NONE).astype(np.int32)
            to = np.full(len(rows), NONE, np.int32)
            if not s.relation.literal:
                to = self.ends[s.relation.name][s.new[s.codes[rows]]].astype(np.int32)
            subjects.append(rows)
            objects.append(to)
            alone.append((to != NONE) & (np.bincount(to[to != NONE], minlength=len(self.entities))[to] == 1))
        subject, object_, back = (np.concatenate(x) if x else np.zeros(0, np.int64) for x in (subjects, objects, alone))
        return densities(len(self.order), subject, object_, np.ones(len(subject), bool), back)

    def postings(self) -> Postings:
        """As `Postings.of(kb)`, by subjects alone."""
        order = self.by_id
        place = np.full(len(self.entities), NONE, np.int32)
        place[order] = np.arange(len(order), dtype=np.int32)
        literals, to = self._literals(len(order))
        type_names = sorted({self.type_names[t] for t in np.unique(self.types[self.order]).tolist()})
        number = np.array([type_names.index(t) if t in type_names else 0 for t in self.type_names])
        ids, names = _texts(self._ids().take(pa.array(order))), _texts(self.entities.take(order).array)
        relation, subject, value = (np.empty(self.accepted, np.int32) for _ in range(3))
        done = 0
        for k, name in enumerate(self.relations):
            for s in self.stated:
                if s.relation.name == name:
                    rows = np.flatnonzero(s.codes != NONE).astype(np.int32)
                    rows = rows[np.argsort(place[rows])]
                    ends = to[name] if s.relation.literal else place[self.ends[name]]
                    part = slice(done, done := done + len(rows))
                    relation[part], subject[part], value[part] = k, place[rows], ends[s.new[s.codes[rows]]]
        return Postings(
            ids=ids,
            names=names,
            types=number[self.types[order]].astype(np.int16),
            type_names=type_names,
            literals=literals,
            relations=tuple(self.relations.values()),
            facts=(relation, subject, value),
            forward=True,
        )

    def _literals(self, first: int) -> tuple[Texts, dict[str, np.ndarray]]:
        """(the literals that facts have, in their order; relation -> [values] int32, which of them each is, from `first` on)."""
        literal = [s for s in self.stated if s.relation.literal]
        used = [_used(s) for s in literal]
        whole = ArrowTexts(
            pa.concat_arrays(
                [s.values.take(u).array for s, u in zip(literal, used, strict=True)] or [pa.array([], _TEXT)]
            )
        )
        order = whole.ranked()
        texts = whole.take(order).array
        del whole
        new = np.ones(len(texts), bool)
        new[1:] = pc.not_equal(texts.slice(1), texts.slice(0, max(0, len(texts) - 1))).to_numpy(zero_copy_only=False)
        at = np.empty(len(texts), np.int32)
        at[order] = np.cumsum(new) + (first - 1)
        to = {}
        for s, own in zip(literal, used, strict=True):
            to[s.relation.name] = np.full(len(s.values), NONE, np.int32)
            to[s.relation.name][own], at = at[: len(own)], at[len(own) :]
        return _texts(texts if new.all() else texts.filter(pa.array(new))), to


def _texts(texts: pa.Array) -> Texts:
    if not len(texts):
        return Texts.of(())
    offsets = np.frombuffer(texts.buffers()[1], np.int64)[texts.offset : texts.offset + len(texts) + 1]
    return Texts(np.frombuffer(contents(texts), np.uint8), offsets[1:] - offsets[0])


def _sentence(relation: Relation) -> tuple[list[str], list[str]]:
    """(what the passage of a relation says before, between and after its blanks, with a capital; which blank each is, x
    or y)."""
    pieces, order = [""], []
    words = {"label": relation.label, "domain": relation.domain.replace("_", " ")}
    for i, part in enumerate(BLANK_OF_TEMPLATE.split(relation.passage)):
        if i % 2 == 0 or part in words:
            pieces[-1] += words[part] if i % 2 else part
        else:
            order.append(part)
            pieces.append("")
    return [pieces[0][:1].upper() + pieces[0][1:], *pieces[1:]], order


def _capitals(texts: ArrowTexts) -> pa.Array:
    if not pc.any(pc.match_substring_regex(texts.array, "^[^A-Z0-9]")).as_py():
        return texts.array
    parts = (texts[at : at + _BATCH] for at in range(0, len(texts), _BATCH))
    return pa.concat_arrays([pa.array([t[:1].upper() + t[1:] for t in some], _TEXT) for some in parts])


def _hashes(*parts: pa.Array | str) -> np.ndarray:
    """[texts] uint64, the first eight bytes of the hash of each text, given as for `joined`."""
    texts, sha = joined(*parts).cast(pa.large_binary()).to_pylist(), hashlib.sha256
    return np.frombuffer(b"".join([sha(t).digest()[:8] for t in texts]), ">u8")


def hashed(*parts: pa.Array | str) -> pa.Array:
    """The hash of each text, given as for `joined`, as 16 hex digits."""
    return _hex(_hashes(*parts))


def _hex(numbers: np.ndarray) -> pa.Array:
    """Numbers of 64 bits as 16 digits each."""
    digits = numbers.astype(">u8").tobytes().hex().encode()
    ends = np.arange(0, len(digits) + 1, 16, dtype=np.int64)
    return pa.LargeStringArray.from_buffers(len(numbers), pa.py_buffer(ends), pa.py_buffer(digits))


# ---- making it


def _of(cells: Cells, edited: Mapping[str, Mapping[str, object]], elsewhere: bool) -> ColumnBase | None:
    if ":" in cells.type:  # an id could not be taken apart
        return None
    everyone = set(cells.subjects)
    reading = Reading(listed={cells.type: everyone} if everyone else {}, guess=True)
    reading.quarantined, reading.missing = list(cells.quarantined), cells.missing
    stated = _settled(cells, reading, edited)
    if stated is None:
        return None
    used = {s.relation.name for s in stated}
    absent = tuple(name for name in edited if name not in used)
    if absent and not elsewhere:
        return None
    merged, doubtful = _one_name(cells, stated, everyone)
    del everyone
    reading.listed.clear()
    for s in stated if merged else ():
        if not s.relation.literal:
            values, s.new = _renamed(s, merged)
            s.values = ArrowTexts.of(values)
            s.__dict__.pop("arrays", None)
    if merged and any((cells.type, x) in merged for x in cells.subjects):
        return None
    for s in stated:
        if not s.inverse:
            rows = s.codes[s.codes != NONE]
            s.relation = replace(s.relation, inverse_functional=len(np.unique(s.new[rows])) == len(rows))
    ranked = sorted(stated, key=lambda s: (s.late, 0 if s.late else int(np.flatnonzero(s.codes != NONE)[0])))
    relations = {s.relation.name: s.relation for s in ranked}
    produced = len(reading.quarantined) + sum(int((s.codes != NONE).sum()) for s in stated)
    quarantined, refused = list(reading.quarantined), set[str]()
    if not _refused(cells, stated, quarantined, refused):
        return None
    but = refused | {n for n, given in edited.items() if "complete" in given}
    stated = [s for s in stated if (s.codes != NONE).any()]
    accepted = sum(int((s.codes != NONE).sum()) for s in stated)
    if not accepted:
        return None
    names, types, type_names, ends = _entities(cells, stated)
    order, places = _mentioned(cells, stated, ends, len(names))
    aliases: dict[int, tuple[str, ...]] = {}
    if merged:
        number = {(type_names[t], x): e for e, (x, t) in enumerate(zip(names, types.tolist(), strict=True))}
        mentioned = set(order.tolist())
        for (type_, other), one in merged.items():
            if (e := number.get((type_, one), NONE)) in mentioned:
                aliases[e] = tuple(dict.fromkeys((*aliases.get(e, ()), other)))
    listed = frozenset(
        s.relation.name
        for s in stated
        if s.relation.name not in but and (s.codes != NONE).all() and not (types[len(cells.subjects) :] == 0).any()
    )
    relations = {n: replace(r, complete=True) if n in listed else r for n, r in relations.items()}
    return ColumnBase(
        name=cells.name,
        type=cells.type,
        subjects=cells.subjects,
        lines=cells.lines,
        stated=stated,
        relations={n: r for n, r in relations.items() if len(n) <= LONGEST},
        entities=names,
        types=types,
        type_names=type_names,
        order=order,
        places=places,
        ends=ends,
        aliases=aliases,
        quarantined=tuple(quarantined),
        produced=produced,
        accepted=accepted,
        listed=listed,
        doubtful=tuple(doubtful),
        absent=absent,
    )


def _entities(
    cells: Cells, stated: Sequence[Stated]
) -> tuple[ArrowTexts, np.ndarray, list[str], dict[str, np.ndarray]]:
    """(names, the type of each, the types, relation -> the entity of each of its values): the records first."""
    records, types, type_names = len(cells.subjects), list[int](), [cells.type]
    names: list[str] = []  # but those of the records
    places: dict[str, dict[str, int]] = {}
    if any(s.relation.range == cells.type for s in stated):
        places[cells.type] = {x: i for i, x in enumerate(cells.subjects)}
    ends = {}
    for s in stated:
        kind = s.relation.range
        if s.relation.literal:
            continue
        place = places.setdefault(kind, {})
        if kind not in type_names:
            type_names.append(kind)
        some = set(_used(s).tolist())
        to = np.full(len(s.values), NONE, np.int64)
        for i, value in enumerate(s.values):
            if i in some:
                if value not in place:
                    place[value] = records + len(names)
                    names.append(value)
                    types.append(type_names.index(kind))
                to[i] = place[value]
        ends[s.relation.name] = to
    whole = ArrowTexts(pa.concat_arrays([cells.subjects.array, pa.array(names, _TEXT)]))
    return whole, np.concatenate([np.zeros(records, np.int16), np.array(types, np.int16)]), type_names, ends


def _used(s: Stated) -> np.ndarray:
    """The values that facts have, rising: one that only refused rows have is none."""
    return np.unique(s.new[np.unique(s.codes[s.codes != NONE])])


def _mentioned(
    cells: Cells, stated: Sequence[Stated], ends: Mapping[str, np.ndarray], n: int
) -> tuple[np.ndarray, np.ndarray]:
    """(the entities that facts mention, in the order of the first mention; the record of each)."""
    records, now = len(cells.subjects), [s for s in stated if not s.late]
    first = np.full(n, _FAR)
    for k, s in enumerate([*now, *(s for s in stated if s.late)]):
        rows = np.flatnonzero(s.codes != NONE)
        at = 2 * (rows * len(now) + k) if not s.late else 2 * (records * k + rows)
        first[rows] = np.minimum(first[rows], at)
        if not s.relation.literal:
            to = ends[s.relation.name][s.new[s.codes[rows]]]
            some, where = np.unique(to, return_index=True)
            first[some] = np.minimum(first[some], at[where] + 1)
    order = np.argsort(first, kind="stable")[: int((first < _FAR).sum())]
    half = first[order] // 2
    record = np.where(half < records * len(now), half // max(1, len(now)), half % max(1, records))
    return order, record


def _settled(cells: Cells, reading: Reading, edited: Mapping[str, Mapping[str, object]]) -> list[Stated] | None:
    """The relations of the columns; None where two have one name, or a cell holds a list. Quarantines cells that do not fit their column."""
    width = len(cells.columns)
    firsts = {
        c: int(np.flatnonzero(codes != NONE)[0]) for c, (_, codes) in cells.columns.items() if (codes != NONE).any()
    }
    order = {c: (firsts[c], i) for i, c in enumerate(cells.columns) if c in firsts}
    columns: dict[str, Column] = {}
    for c in sorted(order, key=lambda c: order[c]):
        texts, codes = cells.columns[c]
        rows = np.flatnonzero(codes != NONE)
        some = cells.subjects if len(rows) == len(codes) else cells.subjects.take(rows)
        columns[c] = Column(c, cells.type, texts, codes[rows], some, apart=True)
    keys = keys_of(columns.values(), dict.fromkeys(columns, cells.type))
    now: dict[str, Stated] = {}
    late: list[Stated] = []
    for c, column in columns.items():
        texts, codes = cells.columns[c]
        settled = settle(column, {}, edited.get(c, {}), reading, keys)
        values, new, codes = texts, np.arange(len(texts), dtype=np.int32), codes
        if settled.values is not None and any(isinstance(v, list) for v in settled.values):
            return None  # several objects in one cell
        if settled.values is not None:
            bad = np.array([not isinstance(v, str) for v in settled.values])
            place: dict[str, int] = {}
            new = np.array(
                [place.setdefault(v, len(place)) if isinstance(v, str) else NONE for v in settled.values], np.int32
            )
            values = ArrowTexts.of(list(place))
            if bad.any():
                for i in np.flatnonzero((codes != NONE) & bad[codes]).tolist():
                    reason, why = settled.values[codes[i]]
                    span = f"{cells.subjects[i]} {c} = {texts[codes[i]]}"
                    reading.quarantine(reason, cells.place(i), why, span)
                codes = np.where((codes != NONE) & bad[codes], np.int32(NONE), codes)
        if (codes != NONE).any():
            now[c] = _stated(c, c, settled.schema, edited, texts, codes, new, values)
        if settled.years is not None and (codes != NONE).any():
            years, of = distinct([year_of(v) for v in values])
            late.append(_stated(years_of(c), c, settled.years, edited, texts, codes, of[new], years))
            late[-1].late = True
    stated = [now[c] for c in cells.columns if c in now] + late
    names = [s.relation.name for s in stated]
    domains = {s.relation.domain for s in stated}
    return stated if width and len(set(names)) == len(names) and domains <= {cells.type} else None


def _stated(
    name: str,
    column: str,
    schema: Mapping[str, object],
    edited: Mapping[str, Mapping[str, object]],
    texts: ArrowTexts,
    codes: np.ndarray,
    new: np.ndarray,
    values: Sequence[str],
) -> Stated:
    guess = {"functional": True, "label": re.sub(r"[_\-]+", " ", name)}
    relation = Relation(name=name, **{**guess, **schema, **edited.get(name, {})})  # type: ignore[arg-type]
    inverse = "inverse_functional" in {**schema, **edited.get(name, {})}
    return Stated(relation, column, texts, codes, new, ArrowTexts.of(values), inverse)


def _one_name(
    cells: Cells, stated: Sequence[Stated], everyone: set[str]
) -> tuple[dict[tuple[str, str], str], list[Same]]:
    counts: dict[str, Counter[str]] = {cells.type: Counter()}
    times = sum((s.codes != NONE).astype(np.int32) for s in stated)
    if len(stated):
        counts[cells.type].update({x: n for x, n in zip(cells.subjects, np.asarray(times).tolist(), strict=True) if n})
    things = [s for s in stated if not s.relation.literal]
    for s in sorted(things, key=lambda s: (s.late, int(np.flatnonzero(s.codes != NONE)[0]))):
        some = np.bincount(s.new[s.codes[s.codes != NONE]], minlength=len(s.values))
        counter = counts.setdefault(s.relation.range, Counter())
        for value, n in zip(s.values, some.tolist(), strict=True):
            if n:
                counter[value] += n
    return resolve(counts, {cells.type: everyone}, {})


def _renamed(s: Stated, merged: Mapping[tuple[str, str], str]) -> tuple[list[str], np.ndarray]:
    values, of = distinct([merged.get((s.relation.range, v), v) for v in s.values])
    return values, of[s.new]


def _suspect(s: Stated) -> np.ndarray:
    """[values] bool, whether `problem` may find something wrong with a value alone."""
    pattern = {"string": "", "number": r"^[+-]?(\d+\.?\d*|\.\d+)$", "year": r"^\d{1,4}$"}.get(s.relation.range)
    if pattern is None or len(s.relation.name) > LONGEST:
        return np.ones(len(s.values), bool)
    good = pc.match_substring_regex(s.values.array, pattern or ".")
    return ~good.to_numpy(zero_copy_only=False)


def _refused(cells: Cells, stated: Sequence[Stated], quarantined: list[Quarantined], refused: set[str]) -> bool:
    """Take out what cannot be a fact, in the order of the rows; False where a relation allows an object one subject and
    it has two."""
    long = cells.subjects.longer(LONGEST)
    at = {x: i for i, x in enumerate(cells.subjects)} if any(s.relation.range == cells.type for s in stated) else {}
    relations = {s.relation.name: s.relation for s in stated}
    out: list[tuple[tuple[int, ...], int, int]] = []
    for k, s in enumerate(stated):
        rows = np.flatnonzero(s.codes != NONE)
        code = s.new[s.codes[rows]]
        name = s.relation.name
        bad = _suspect(s)
        for i in np.flatnonzero(bad).tolist():
            alone = Row(subject="\0", relation=name, object=s.values[i], source="", span="")
            bad[i] = problem(alone, None, relations) is not None
        suspect = bad[code] | long[rows]
        if s.relation.range == cells.type:
            suspect |= np.array([at.get(v, NONE) for v in s.values], np.int64)[code] == rows
        if s.relation.inverse_functional and len(np.unique(code[~suspect])) < int((~suspect).sum()):
            return False
        out += [((int(s.late), *((k, i) if s.late else (i, k))), i, k) for i in rows[suspect].tolist()]
    for k in {k for *_, k in out}:
        stated[k].codes = stated[k].codes.copy()
    for _, i, k in sorted(out):
        s = stated[k]
        span = f"{cells.subjects[i]} {s.column} = {s.texts[s.codes[i]]}"
        value = s.values[int(s.new[s.codes[i]])]
        row = Row(subject=cells.subjects[i], relation=s.relation.name, object=value, source=cells.place(i), span=span)
        refusal = problem(row, None, relations)
        assert refusal is not None
        quarantined.append(quarantine(refusal[0], row.source, refusal[1], row.span))
        refused.add(s.relation.name)
        s.codes[i] = NONE
    return True
