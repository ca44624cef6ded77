"""Reads several sources into one base: what tables and documents say about the same thing is said about one entity.

names      a page whose title is the name of a record is of the type of that record; one that a column names ("curator")
           and that states no type is of the type of that column's things; a column most of whose values are records or
           pages of another source leads there
relations  a key of documents that is called like a column about the same things is that column: what both say counts
           once, and what contradicts the only value of a record is quarantined
doubtful   a page that may be a record ("A. Berg", "Dr. Anna Berg") is not merged, but listed for a person

Spellings that differ in accents, case or marks are merged afterwards (`synth.knowledge.names.resolve`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any

from synth.knowledge.columns import (
    Keys,
    are_names,
    column_at,
    keys_in,
    places_of,
    range_of,
    understand,
)
from synth.knowledge.kb import LITERALS
from synth.knowledge.names import Same, fold
from synth.knowledge.rows import Reading, Row
from synth.knowledge.words import PEOPLE, label_of, relation_name, thing_of, unit_of, wording

Reader = Callable[..., Reading]  # reads one source; of documents with `others=`
_PLAIN = ("page", "person")  # types of pages that state none
_TITLES = {"dr", "prof", "professor", "sir", "dame", "mr", "mrs", "ms", "st", "saint", "captain", "coach", "von", "the"}


@dataclass(frozen=True)
class Others:
    """What the tables of other sources name.

    records  folded name -> (name, type), of names that one type of records has
    columns  (type, folded values) of the columns that hold names of things without a record
    decided  folded name of a page -> (the record that it is, its type), as a person decided
    """

    records: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    columns: Sequence[tuple[str, Set[str]]] = ()
    decided: Mapping[str, tuple[str, str]] = field(default_factory=dict)

    def record(self, title: str, stated: str) -> str:
        """The type of the record that a page is about, or "". `stated`: the type that the page states, or ""."""
        key = fold(title)
        if key in self.decided:
            return self.decided[key][1]
        _, type_ = self.records.get(key, ("", ""))
        sure = stated in ("", type_) or len(key.split()) > 1 or {stated, type_} <= PEOPLE
        return type_ if sure else ""

    def things(self, titles: Iterable[str]) -> dict[str, str]:
        """Folded title -> the type of a column that has it among its values: if its name has two words or more, or if more
        than half of the values are titles."""
        folded = {fold(t) for t in titles}
        out: dict[str, str] = {}
        for type_, values in self.columns:
            there = values & folded
            for name in there:
                if " " in name or 2 * len(there) > len(values):
                    out.setdefault(name, type_)
        return out


def read_together(
    readers: Sequence[tuple[str, Reader]],
    *,
    edited: Mapping[str, Mapping[str, object]] | None = None,
    names: Mapping[str, Mapping[str, str]] | None = None,
) -> list[Reading]:
    """The readings of sources, given as (kind, what reads it), in their order. `edited` and `names`: as of
    `synth.knowledge.ingest.build`, which is given the readings next."""
    if len(readers) == 1:
        return [readers[0][1]()]
    read = {i: reader() for i, (kind, reader) in enumerate(readers) if kind != "documents"}
    tables = list(read.values())
    _understood(tables, edited)
    others = _others(tables, edited, names or {})
    for i, (kind, reader) in enumerate(readers):
        if kind == "documents":
            read[i] = reader(others=others) if tables else reader()
    pages = [r for r in read.values() if r.documents]
    if tables and pages:
        titles = {fold(row.subject): row.subject_type for r in pages for row in r.rows}
        titles |= {fold(title): type_ for r in pages for title, type_ in r.titles.items()}
        for reading in tables:
            if reading.guess:
                _to_pages(reading, titles, edited or {})
        for reading in pages:
            _one_relation(reading, tables, edited or {}, names or {})
            reading.doubtful += _may_be(reading, others)
    return [read[i] for i in range(len(readers))]


def _understood(tables: Sequence[Reading], edited: Mapping[str, Mapping[str, object]] | None) -> None:
    """Settle the columns of all tables, each with the records of the others. Numbers by which tables refer to each other
    are no facts then, as in a database."""
    guessed, edited_names = [r for r in tables if r.guess], set(edited or ())
    if len(tables) < 2 or not guessed:
        return
    records = [{fold(n): type_ for type_, some in r.listed.items() for n in some} for r in tables]
    keys = [keys_in(r) if r.guess else {} for r in tables]
    for number, reading in enumerate(tables):
        if reading.guess:
            besides = [r for i, r in enumerate(records) if i != number]
            codes: Keys = {d: by for i, k in enumerate(keys) if i != number for d, by in k.items()}
            understand(reading, edited, elsewhere=lambda v, b=besides: _type_in(v, b), keys=codes)
    for number, (reading, own) in enumerate(zip(tables, keys, strict=True)):
        ranges = {given.get("range") for i, r in enumerate(tables) if i != number for given in r.schema.values()}
        for type_ in ranges & own.keys():
            numbers = {r for r in own[str(type_)] if relation_name(r) in ("id", "key", "code", f"{type_}_id")}
            if not numbers & edited_names:
                reading.rows = [row for row in reading.rows if row.relation not in numbers]
                reading.schema = {r: given for r, given in reading.schema.items() if r not in numbers}


def _type_in(value: str, records: Sequence[Mapping[str, str]]) -> str:
    key = fold(value)
    return next((r[key] for r in records if key in r), "")


def _others(
    tables: Sequence[Reading],
    edited: Mapping[str, Mapping[str, object]] | None,
    names: Mapping[str, Mapping[str, str]],
) -> Others:
    for reading in tables:
        if reading.guess:
            understand(reading, edited)
    types: dict[str, dict[str, str]] = defaultdict(dict)  # folded name -> type -> name
    columns: list[tuple[str, Set[str]]] = []
    for reading in tables:
        for type_, some in reading.listed.items():
            for name in some:
                types[fold(name)].setdefault(type_, name)
        for row in () if reading.guess else reading.rows:  # triples, and records with a mapping
            relation = reading.schema.get(row.relation, {})
            ends = ((row.subject, row.subject_type or relation.get("domain", "")),)
            for name, type_ in (*ends, (row.object, row.object_type or relation.get("range", ""))):
                if name and type_ and type_ not in LITERALS:
                    types[fold(name)].setdefault(str(type_), name)
    for reading in tables:
        for relation, places in places_of(reading).items() if reading.guess else ():
            range_ = str({**reading.schema.get(relation, {}), **(edited or {}).get(relation, {})}.get("range", ""))
            values = list(dict.fromkeys(reading.rows[i].object for i in places))
            if range_ == "string" and are_names(values):
                columns.append((thing_of(reading.columns.get(relation, relation)), {fold(v) for v in values}))
            elif range_ and range_ not in LITERALS and range_ not in reading.listed:
                columns.append((range_, {fold(v) for v in values}))
    records = {key: (next(iter(some.values())), next(iter(some))) for key, some in types.items() if len(some) == 1}
    decided = {fold(n): (one, type_) for type_, some in names.items() for n, one in some.items() if n != one}
    return Others(records, columns, decided)


def _to_pages(reading: Reading, titles: Mapping[str, str], edited: Mapping[str, Mapping[str, object]]) -> None:
    """Columns of names most of which are pages lead to those pages, in place."""
    for relation, places in places_of(reading).items():
        given = reading.schema.get(relation, {})
        range_ = given.get("range")
        if range_ in (*LITERALS[:1], *LITERALS[2:]) or range_ in reading.listed or "range" in edited.get(relation, {}):
            continue
        if any(reading.rows[i].object_type for i in places):
            continue
        column = column_at(reading, relation, places)
        type_ = range_of(column, lambda v: titles.get(fold(v), ""))
        own = thing_of(reading.columns.get(relation, relation))
        if not type_ and own not in LITERALS and any(titles.get(fold(v)) == own for v in column.values):
            type_ = own  # some of its things have a page
        if not type_ or type_ == range_ or not are_names(column.values):
            continue
        different = len(set(column.subjects))
        single = different == len(column) or different == len(column.pairs())
        words = wording(reading.columns.get(relation, relation), column.domain, type_, single=single)
        kept = {k: v for k, v in given.items() if k not in ("range", "label", "passage", "forward", "inverse")}
        reading.schema[relation] = {**kept, "range": type_, **words}


# ---- one relation for a column and a key


def _keys(relation: str, reading: Reading) -> set[str]:
    """How documents may call the relation of a table."""
    label = str(reading.schema.get(relation, {}).get("label", ""))
    column = reading.columns.get(relation, relation)
    unit = unit_of(column)
    texts = {relation, label, label_of(column), f"{label} in {unit}" if unit else label}
    return {relation_name(t) for t in texts if t}


def _one_relation(
    reading: Reading,
    tables: Sequence[Reading],
    edited: Mapping[str, Mapping[str, object]],
    names: Mapping[str, Mapping[str, str]],
) -> None:
    """Say in the relation of a table what documents say about the same things under its name, in place."""
    known: dict[tuple[str, str], tuple[str, Reading]] = {}
    for table in tables:
        for relation, given in table.schema.items():
            for key in _keys(relation, table):
                known.setdefault((str(given.get("domain", "")), key), (relation, table))
    renamed: dict[str, tuple[str, Reading]] = {}
    for relation, given in reading.schema.items():
        domain, label = str(given.get("domain", "")), str(given.get("label", ""))
        match = next((f for k in (relation, label) if (f := known.get((domain, relation_name(k))))), None)
        if match is not None:
            renamed[relation] = match
    if not renamed:
        return
    values: dict[tuple[str, str], list[Row]] = defaultdict(list)
    single: dict[str, bool] = {}
    for relation, table in renamed.values():
        for row in table.rows if relation not in single else ():
            if row.relation == relation:
                values[relation, fold(row.subject)].append(row)
    for relation, _ in renamed.values():
        single[relation] = all(len(some) == 1 for (r, _), some in values.items() if r == relation)
    kept: list[Row] = []
    for row in reading.rows:
        if row.relation not in renamed:
            kept.append(row)
            continue
        relation, table = renamed[row.relation]
        given = {**table.schema[relation], **edited.get(relation, {})}
        domain, range_ = (str(given.get(side, "")) for side in ("domain", "range"))
        subject = names.get(domain, {}).get(row.subject, row.subject)
        stated = values.get((relation, fold(subject)), [])
        object = names.get(range_, {}).get(row.object, row.object)
        if any(_equal(one.object, object) for one in stated):
            reading.agreed += 1
        elif stated and single[relation]:
            why = f"{stated[0].source} says {stated[0].object!r}: correct one of the two"
            reading.quarantine("contradicts", row.source, why, row.span)
        else:
            kept.append(replace(row, relation=relation))
    reading.rows = kept
    reading.schema = {n: given for n, given in reading.schema.items() if n not in renamed}


def _equal(one: str, other: str) -> bool:
    try:
        return float(one) == float(other)
    except ValueError:
        return fold(one) == fold(other)


# ---- what a person decides


def _may_be(reading: Reading, others: Others) -> list[Same]:
    """Pages that have no record and may be one, under a longer or shorter name."""
    by_last: dict[str, list[tuple[str, str]]] = defaultdict(list)
    typed = {fold(title): (title, type_) for title, type_ in reading.titles.items() if type_ not in _PLAIN}
    for key, pair in {**typed, **others.records}.items():
        by_last[key.split()[-1] if key else ""].append(pair)
    out = []
    for title, type_ in reading.titles.items():
        key = fold(title)
        words = key.split()
        if not words or type_ not in _PLAIN or key in others.records or key in others.decided:
            continue
        for name, record in by_last.get(words[-1], ()):
            if why := _alike(words, fold(name).split()):
                out.append(Same(record, name, title, why))
    for d in reading.documents:
        for alias in d.aliases:
            name, record = others.records.get(fold(alias), ("", ""))
            if name and fold(d.title) != fold(name) and fold(d.title) not in others.decided:
                out.append(Same(record, name, d.title, "its page says that it is also called so"))
    for title in reading.titles:
        name, record = others.records.get(fold(title), ("", ""))
        if name and reading.titles[title] != record:
            out.append(Same(record, name, title, f"a record and a page that says it is a {reading.titles[title]}"))
    return list(dict.fromkeys(out))


def _alike(one: Sequence[str], other: Sequence[str]) -> str:
    """Why two names with the same last word may be one; "" where they are not alike."""
    bare = [[w for w in words if w not in _TITLES] for words in (one, other)]
    short, long = sorted(bare, key=len)
    if len(short) < 2:
        return ""
    if short == long or set(short) < set(long):
        return "one has words more"
    if len(short) == len(long) and all(
        a == b or (1 in (len(a), len(b)) and a[:1] == b[:1]) for a, b in zip(short, long, strict=True)
    ):
        return "one has initials"
    return ""


# ---- what every file gave


def place_of(source: str, files: Mapping[str, Any]) -> str:
    """The file of the place of a fact ("club/members.csv line 3"), or ""."""
    if source in files:
        return source
    for at in range(len(source) - 1, 0, -1):
        if source[at] in " #" and source[:at] in files:
            return source[:at]
    folder, _, table = source.partition(" ")
    own = f"{folder}/{table.split(' ')[0]}.csv"  # of a folder of tables: "club members 3"
    return own if own in files else ""


def counts_of(sources: Iterable[tuple[str, str]], files: Mapping[str, Any]) -> dict[str, tuple[int, int]]:
    """File -> (how many different subjects, how many facts) of (place, subject) of facts."""
    facts: Counter[str] = Counter()
    subjects: dict[str, set[str]] = defaultdict(set)
    for source, subject in sources:
        file = place_of(source, files)
        facts[file] += 1
        subjects[file].add(subject)
    return {file: (len(subjects[file]), facts[file]) for file in files}
