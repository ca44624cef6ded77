"""Infers the type of the columns of a table if nothing states it: numbers with units, points in time, flags, things
that several records share.

The values of a column decide together; a value that does not fit is quarantined.

    number   nine tenths are numbers, of one unit where they have any ("1,234 km", "$5"): plain numbers, the unit in
             the words
    date     nine tenths are dates, or times that begin with one ("2024-05-06T12:30:00Z"); the year is a relation too
    flag     nothing but yes and no, true and false, or 0 and 1; an adjective gives the wording ("not discontinued")
    link     names of other records, or codes that another column gives each record ("borders": ["FRA", "DEU"])
    thing    short texts that are not sentences, of which three in ten or more occur in a second record: one entity each
    text     anything else, as it is
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from synth.knowledge.names import plain_value
from synth.knowledge.rows import Reading
from synth.knowledge.words import adjective, code_of, label_of, role, thing_of, wording, unit_of
from synth.quantities import date, quantity

_MOST = 0.9  # the share of the values that decides
_SHARED = 0.3  # the share of the records whose value occurs in another record
_PLAIN = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_PADDED = re.compile(r"0\d+")  # a code: 008
_DOTTED = re.compile(r"(\d{1,2})\. ?(\d{1,2})\. ?(\d{4})")  # 14.7.1789: the day is first wherever dots are written
_TIME = re.compile(r"(\d{4}-\d{2}-\d{2})[T ]\d{2}:\d{2}(?::\d{2}(?:\.\d{1,9})?)?\s?(?:Z|UTC|[+-]\d{2}:?\d{2})?")
_FLAGS = {"yes": "yes", "no": "no", "true": "yes", "false": "no"}
_LETTER = re.compile(r"[^\W\d_]")
_WORDS, _LETTERS = 6, 60  # of a name
_ENDING = re.compile(r"\w\((?:e?s|n|in|en|er|a|es)\)")  # "Norvian(s)"
_MEASURED = re.compile(r"[^\W\d_][^\d;]*\s\d[\d.,]*\s?(?:km|m|mi|ft|metres|meters|feet|miles|ha|sq km)")
_CODE = re.compile(r"[A-Z0-9][A-Z0-9-]{1,9}")
T = TypeVar("T")
Keys = Mapping[str, Mapping[str, Mapping[str, str]]]  # domain -> relation -> code -> the record that bears it


@dataclass
class Column:
    """The cells of one column that say something.

    values     each different value once, in the order of the first rows that have them
    codes      [rows] int, which value a row has
    subjects   [rows], of what the row speaks
    apart      whether it is known that these are all different
    """

    relation: str
    domain: str
    values: Sequence[str]
    codes: np.ndarray
    subjects: Sequence[str]
    apart: bool = False

    @staticmethod
    def of(relation: str, domain: str, subjects: Sequence[str], cells: Sequence[str]) -> Column:
        values, codes = distinct(cells)
        return Column(relation, domain, values, codes, subjects)

    def __len__(self) -> int:
        return len(self.codes)

    @cached_property
    def times(self) -> list[int]:
        """[values] in how many rows each occurs."""
        return np.bincount(self.codes, minlength=len(self.values)).tolist()

    def count(self, which: Sequence[Any]) -> int:
        """In how many rows the values are for which `which` [values] is true."""
        return sum(n for n, yes in zip(self.times, which, strict=True) if yes)

    def most(self, read: Callable[[str], T | None]) -> list[T | None] | None:
        """[values] what `read` makes of each; None as soon as it makes nothing of so many that too few rows are left."""
        out: list[T | None] = []
        left = len(self)
        for value, n in zip(self.values, self.times, strict=True):
            out.append(some := read(value))
            if some is None:
                left -= n
                if left < _MOST * len(self):
                    return None
        return out

    @cached_property
    def different(self) -> int:
        """The number of different subjects."""
        return len(self) if self.apart else len(set(self.subjects))

    @property
    def key(self) -> bool:
        """Whether every row has another value, and another subject."""
        return len(self.values) == len(self) == self.different > 1

    def pairs(self, ends: Sequence[str | None] | None = None) -> set[tuple[str, str]]:
        """(subject, value) of all rows; with `ends` [values], those instead of the values, but for None."""
        texts: Sequence[str | None] = self.values if ends is None else ends
        rows = zip(self.subjects, self.codes.tolist(), strict=True)
        return {(x, end) for x, code in rows if isinstance(end := texts[code], str)}


def distinct(cells: Sequence[str]) -> tuple[list[str], np.ndarray]:
    """(each different cell once, in the order of the first; [cells] int32, which of them each is)."""
    place: dict[str, int] = {}
    codes = np.fromiter((place.setdefault(x, len(place)) for x in cells), np.int32, len(cells))
    return list(place), codes


@dataclass
class Settled:
    """What a column is: the fields of its relation; what stands for each of its values: a text, a list of several, or
    (reason, how to fix it) where a value does not fit (None: the values stand for themselves); the fields of the relation
    of its years, for dates."""

    schema: dict[str, object]
    values: list[str | list[str] | tuple[str, str]] | None = None
    years: dict[str, object] | None = None


def understand(
    reading: Reading,
    edited: Mapping[str, Mapping[str, object]] | None = None,
    *,
    elsewhere: Callable[[str], str] | None = None,
    keys: Keys | None = None,
) -> None:
    """Settle the ranges and words of the relations of a table, in place, once. A range that the source or `edited` states
    is kept: values are only parsed accordingly. elsewhere: name -> the type of the record that another source has of it, or
    ""; keys: the codes of its records (`keys_in`)."""
    if reading.understood:
        return
    reading.understood = True
    places = places_of(reading)
    columns = {relation: column_at(reading, relation, some) for relation, some in places.items()}
    own = keys_of(columns.values(), {relation: reading.rows[some[0]].subject_type for relation, some in places.items()})
    gone: set[int] = set()
    for relation, column in columns.items():
        if not any(reading.rows[i].object_type for i in places[relation]):
            stated, given = reading.schema.get(relation, {}), (edited or {}).get(relation, {})
            settled = settle(column, stated, given, reading, {**(keys or {}), **own}, elsewhere)
            gone |= _rewrite(reading, places[relation], column, settled)
    reading.rows = [row for i, row in enumerate(reading.rows) if i not in gone]


def places_of(reading: Reading) -> dict[str, list[int]]:
    """Relation -> the numbers of its rows."""
    places: dict[str, list[int]] = defaultdict(list)
    for i, row in enumerate(reading.rows):
        places[row.relation].append(i)
    return places


def column_at(reading: Reading, relation: str, places: Sequence[int]) -> Column:
    """The column of a relation; `places`: the numbers of its rows."""
    rows = [reading.rows[i] for i in places]
    domain = Counter(r.subject_type for r in rows).most_common(1)[0][0]
    return Column.of(relation, domain, [r.subject for r in rows], [r.object for r in rows])


def keys_in(reading: Reading) -> Keys:
    """`keys_of` of all columns of a table."""
    places = places_of(reading)
    domains = {relation: reading.rows[some[0]].subject_type for relation, some in places.items()}
    return keys_of([column_at(reading, relation, some) for relation, some in places.items()], domains)


def _rewrite(reading: Reading, places: Sequence[int], column: Column, settled: Settled) -> set[int]:
    """Rewrite the rows of a column, and add those of its years; returns the indices of those that do not fit."""
    reading.schema[column.relation] = settled.schema
    gone: set[int] = set()
    for i, code in zip(places, column.codes.tolist(), strict=True) if settled.values is not None else ():
        text, row = settled.values[code], reading.rows[i]  # type: ignore[index]
        if isinstance(text, str):
            reading.rows[i] = replace(row, object=text)
        elif isinstance(text, list):
            reading.rows[i] = replace(row, object=text[0])
            reading.rows.extend(replace(row, object=more) for more in text[1:])
        else:
            reading.quarantine(text[0], row.source, text[1], row.span)
            gone.add(i)
    if settled.years is not None:
        year = years_of(column.relation)
        reading.schema[year] = settled.years
        dated = [reading.rows[i] for i in places if i not in gone]
        reading.rows.extend(replace(row, relation=year, object=year_of(row.object)) for row in dated)
    return gone


def years_of(relation: str) -> str:
    """The relation of the years of dates."""
    return f"{relation}_year"


def year_of(day: str) -> str:
    return str(int(day[:4]))


def keys_of(columns: Collection[Column], domains: Mapping[str, str]) -> Keys:
    """The columns that give each record a unique code. `domains`: relation -> the type of the record that bears it."""
    keys: dict[str, dict[str, dict[str, str]]] = defaultdict(dict)
    for c in columns:
        if not c.key:
            continue
        number = label_of(c.relation).split()[-1] in ("id", "ID") and all(v.isdigit() for v in c.values)
        if number or all(_CODE.fullmatch(v) for v in c.values):
            order = dict(zip(c.codes.tolist(), c.subjects, strict=True))
            keys[domains[c.relation]][c.relation] = {v: order[i] for i, v in enumerate(c.values)}
    return keys


Say = Callable[..., Settled]


def settle(
    column: Column,
    own: Mapping[str, object],
    edited: Mapping[str, object],
    reading: Reading,
    keys: Keys,
    elsewhere: Callable[[str], str] | None = None,
) -> Settled:
    """What a column is. `own`: the fields of its relation that the source states, `edited`: those that a person states;
    `reading`: its records and the names of its columns; `keys`: of all columns (`keys_of`); `elsewhere`: name -> the type
    of the record that another source has of it, or ""."""
    domain = column.domain
    own, stated = {**own, "domain": domain}, str({**own, **edited}.get("range", ""))
    label = reading.columns.get(column.relation, column.relation)

    def say(range_: str, texts: list[Any] | None = None, **more: Any) -> Settled:
        return Settled({"range": range_, **wording(label, domain, range_, **more), **own}, texts)

    if stated in ("", "string") and (settled := _flags(column, label, say)):
        return settled
    if stated in ("", domain) and (settled := _references(column, keys, say)):
        return settled
    if not stated and (settled := _codes_elsewhere(column, label, keys)):
        return Settled({**settled.schema, **own}, settled.values)
    if stated in ("", "date") and (settled := _dates(column, say)):
        return settled
    if stated in ("", "number") and (settled := _numbers(column, label, stated, say)):
        return settled
    texts = None if stated in ("number", "year", "date") else _clean(column)
    if stated:
        return Settled(own, texts)
    if texts is not None:  # what the answers are decides, not how they were written
        pairs = zip(column.subjects, (texts[i] for i in column.codes.tolist()), strict=True)
        rows = [
            (x, t)
            for x, some in pairs
            if not isinstance(some, tuple)
            for t in ([some] if isinstance(some, str) else some)
        ]
        column = Column.of(column.relation, domain, [x for x, _ in rows], [t for _, t in rows])
    return replace(_things(column, label, reading.listed.get(domain, set()), say, elsewhere), values=texts)


def _clean(column: Column) -> list[Any] | None:
    """The answers in a column of names that are written as lists ("Pretoria (administrative); Cape Town (legislative)"),
    with their measures ("Mafadi 3,450 m") or endings in brackets ("Norvian(s)"): a text, several, or none where it is not
    clear ("Lao(s) or Laotian"). None for any other column, whose texts stay as they are: a note may tell two names apart."""
    lists = [";" in v for v in column.values]
    endings = [_ENDING.search(v) is not None for v in column.values]
    measured = [_MEASURED.fullmatch(v) is not None for v in column.values]
    if not (any(lists) or any(endings) or column.count(measured) >= _MOST * len(column)):
        return None
    parts = [plain_value(v) for v in column.values]
    if not are_names([p for some in parts for p in some]) or 2 * column.count([not p for p in parts]) > len(column):
        return None
    why = f"{column.relation!r} does not say one answer: write the name alone"
    return [("unclear", why) if not p else p[0] if len(p) == 1 else p for p in parts]


def _flags(column: Column, label: str, say: Say) -> Settled | None:
    flags = {v.lower() for v in column.values}
    if not (flags <= _FLAGS.keys() or flags == {"0", "1"}):
        return None
    word = adjective(label_of(label))
    words = {"yes": word or "yes", "no": f"not {word}" if word else "no"}
    words |= {text: words[flag] for text, flag in _FLAGS.items()} | {"1": words["yes"], "0": words["no"]}
    return say("string", [words[v.lower()] for v in column.values], flag=True)


def _references(column: Column, keys: Keys, say: Say) -> Settled | None:
    """Codes are replaced by the records that have them."""
    for other, codes in keys.get(column.domain, {}).items():
        known = [codes.get(v) for v in column.values]
        if other == column.relation or column.count([k is not None for k in known]) < _MOST * len(column):
            continue
        rows = zip(column.subjects, column.codes.tolist(), strict=True)
        if 10 * sum(subject == known[code] for subject, code in rows) <= len(column):
            pairs = column.pairs(known)
            why = "it refers to {!r}, which is the code of no record: add that record, or fix the reference"
            texts = [
                ("unknown_reference", why.format(v)) if k is None else k
                for v, k in zip(column.values, known, strict=True)
            ]
            return say(column.domain, texts, both=_both_ways(pairs), single=len({x for x, _ in pairs}) == len(pairs))
    return None


def _codes_elsewhere(column: Column, label: str, keys: Keys) -> Settled | None:
    """Codes of the records of another table that the name of the column names ("team_id")."""
    words = label_of(label).lower().split()
    for other, relations in keys.items():
        if other == column.domain or not set(other.split("_")) <= set(words):
            continue
        for codes in relations.values():
            known = [codes.get(v) for v in column.values]
            if column.count([k is not None for k in known]) >= _MOST * len(column):
                why = "it refers to {!r}, which is the code of no record: add that record, or fix the reference"
                texts: list[Any] = [
                    ("unknown_reference", why.format(v)) if k is None else k
                    for v, k in zip(column.values, known, strict=True)
                ]
                return Settled({"domain": column.domain, "range": other, **role(label, column.domain, other)}, texts)
    return None


def _single(column: Column) -> bool:
    """Whether a subject has one value."""
    return column.different == len(column) or column.different == len(column.pairs())


def _dates(column: Column, say: Say) -> Settled | None:
    days = column.most(_day)
    if days is None:
        return None
    why = f"{column.relation!r} is a date elsewhere, here it is not: write 1789-07-14"
    settled = say("date", [d or ("not_a_date", why) for d in days])
    name = str(settled.schema["label"])
    of = name.startswith("date of ")
    year = f"year {name.removeprefix('date ')}" if of else f"{name.removesuffix(' date')} year"
    settled.years = {"domain": column.domain, "range": "year", "label": year}
    return settled


def _numbers(column: Column, label: str, stated: str, say: Say) -> Settled | None:
    relation, values = column.relation, column.values
    padded = not stated and (any(_PADDED.fullmatch(v) for v in values) or all(v.startswith("+") for v in values))
    if not padded and all(_PLAIN.fullmatch(v) for v in values):
        year = "year" in relation.lower() and all(re.fullmatch(r"\d{4}", v) for v in values)
        in_time = all(re.fullmatch(r"1[5-9]\d\d|20\d\d", v) for v in values)
        founded = wording(label, column.domain, "year")["label"]
        in_time = in_time and founded != f"{wording(label, column.domain, 'string')['label']} year"
        return say("year" if year or in_time else "number", unit="" if year or in_time else unit_of(label))
    quantities = None if padded else column.most(quantity)
    if quantities is None:
        return None
    units: Counter[str] = Counter()
    for q, n in zip(quantities, column.times):
        if q:
            units[q.unit] += n
    if not units:
        return None
    unit = units.most_common(1)[0][0]
    if units[unit] < _MOST * sum(units.values()):
        return None
    why = f"{relation!r} is in {unit or 'plain numbers'!r} elsewhere: convert it, or mark it as missing"
    numbers: list[Any] = [
        ("not_a_quantity", why) if q is None else q.number if q.unit == unit else ("other_unit", why)
        for q in quantities
    ]
    return say("number", numbers, unit=unit)


def _things(
    column: Column, label: str, subjects: Collection[str], say: Say, elsewhere: Callable[[str], str] | None
) -> Settled:
    """Other records, those of other sources too, things that several records share, or text."""
    values, domain = column.values, column.domain
    if 2 * column.count([v in subjects for v in values]) > len(column):
        return say(domain, both=_both_ways(column.pairs()))
    if elsewhere is not None and (range_ := range_of(column, elsewhere)):
        return say(range_, single=_single(column))
    shared = sum(n for n in column.times if n > 1)
    if are_names(values) and len(values) > 1 and shared >= max(2, _SHARED * len(column)):
        thing = thing_of(label)
        thing = thing if thing != domain else f"{thing}_{'kind' if thing != 'kind' else 'group'}"
        return say(thing, single=_single(column))
    if column.key and all(re.fullmatch(r"[A-Z]{2,4}", v) for v in values) and len({len(v) for v in values}) == 1:
        words = wording(code_of(label), domain, "string", single=True)
        return Settled({**say("string", single=True).schema, **words})
    return say("string", single=_single(column))


def range_of(column: Column, type_of: Callable[[str], str]) -> str:
    """The type of most of those values for which `type_of` gives one, if it gives one for more than half; else ""."""
    counts: Counter[str] = Counter()
    for value, n in zip(column.values, column.times, strict=True):
        if type_ := type_of(value):
            counts[type_] += n
    return counts.most_common(1)[0][0] if 2 * sum(counts.values()) > len(column) else ""


def are_names(values: Sequence[str]) -> bool:
    """Whether all of these texts may be names: short, and beginning with a letter."""
    return all(_LETTER.match(v) and len(v) <= _LETTERS and len(v.split()) <= _WORDS for v in values)


def _both_ways(pairs: Collection[tuple[str, str]]) -> bool:
    return len(pairs) > 1 and all((y, x) in pairs for x, y in pairs)


def _day(text: str) -> str | None:
    if text.isdigit():  # most columns that are asked are of numbers
        return None
    time, dotted = _TIME.fullmatch(text), _DOTTED.fullmatch(text)
    return date("-".join(p.zfill(2) for p in dotted.group(3, 2, 1)) if dotted else time[1] if time else text)
