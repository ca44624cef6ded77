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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from synth.knowledge.rows import Reading, Row
from synth.knowledge.words import adjective, label_of, thing_of, wording
from synth.quantities import Quantity, date, quantity

_MOST = 0.9  # the share of the values that decides
_SHARED = 0.3  # the share of the records whose value occurs in another record
_PLAIN = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_PADDED = re.compile(r"0\d+")  # a code: 008
_TIME = re.compile(r"(\d{4}-\d{2}-\d{2})[T ]\d{2}:\d{2}(?::\d{2}(?:\.\d{1,9})?)?\s?(?:Z|UTC|[+-]\d{2}:?\d{2})?")
_FLAGS = {"yes": "yes", "no": "no", "true": "yes", "false": "no"}
_WORDS, _LETTERS = 6, 60  # of a name


def understand(reading: Reading, edited: Mapping[str, Mapping[str, object]] | None = None) -> None:
    """Settle the ranges and words of the relations of a table, in place. A range that the source or `edited` states is
    kept: values are only parsed accordingly."""
    columns: dict[str, list[int]] = defaultdict(list)
    for i, row in enumerate(reading.rows):
        columns[row.relation].append(i)
    gone: set[int] = set()
    keys = _keys(reading, columns)
    for relation, places in columns.items():
        rows = [reading.rows[i] for i in places]
        if not any(r.object_type for r in rows):
            given = {**reading.schema.get(relation, {}), **(edited or {}).get(relation, {})}
            gone |= _settle(reading, relation, places, rows, str(given.get("range", "")), keys)
    reading.rows = [row for i, row in enumerate(reading.rows) if i not in gone]


_CODE = re.compile(r"[A-Z0-9][A-Z0-9-]{1,9}")
Keys = Mapping[str, Mapping[str, Mapping[str, str]]]  # domain -> relation -> code -> the record that bears it


def _keys(reading: Reading, columns: Mapping[str, Sequence[int]]) -> Keys:
    """The columns that give each record a unique code."""
    keys: dict[str, dict[str, dict[str, str]]] = defaultdict(dict)
    for relation, places in columns.items():
        rows = [reading.rows[i] for i in places]
        codes = {r.object: r.subject for r in rows}
        bearers = len({r.subject for r in rows})
        number = label_of(relation).split()[-1] in ("id", "ID") and all(r.object.isdigit() for r in rows)
        if len(codes) == len(rows) == bearers > 1 and (number or all(_CODE.fullmatch(c) for c in codes)):
            keys[rows[0].subject_type][relation] = codes
    return keys


def _settle(
    reading: Reading, relation: str, places: Sequence[int], rows: Sequence[Row], stated: str, keys: Keys
) -> set[int]:
    """Rewrite the rows of a column; returns the indices of those that do not fit."""
    domain = Counter(r.subject_type for r in rows).most_common(1)[0][0]
    schema = reading.schema.setdefault(relation, {})
    schema["domain"] = domain
    column = reading.columns.get(relation, relation)

    def say(range_: str, **more: Any) -> None:
        given = {"range": range_, **wording(column, domain, range_, **more)}
        reading.schema[relation] = {**given, **schema}

    values = [r.object for r in rows]
    flags = {v.lower() for v in values}
    if stated in ("", "string") and (flags <= _FLAGS.keys() or flags == {"0", "1"}):
        say("string", flag=True)
        word = adjective(label_of(column))
        flag_words = {"yes": word or "yes", "no": f"not {word}" if word else "no"}
        for i in places:
            text = reading.rows[i].object.lower()
            flag = _FLAGS.get(text) or ("yes" if text == "1" else "no")
            reading.rows[i] = replace(reading.rows[i], object=flag_words[flag])
        return set()
    if stated in ("", domain):
        for other, codes in keys.get(domain, {}).items():
            known = [codes.get(v) for v in values]
            itself = sum(r.subject == x for r, x in zip(rows, known, strict=True))
            if other != relation and sum(map(bool, known)) >= _MOST * len(values) and 10 * itself <= len(values):
                return _refer(reading, relation, domain, places, known, say)
    days = [_day(v) for v in values] if stated in ("", "date") else []
    if days and sum(d is not None for d in days) >= _MOST * len(values):
        say("date")
        return _dates(reading, relation, domain, places, days)
    if stated not in ("", "number"):
        return set()
    if all(_PLAIN.fullmatch(v) for v in values) and (stated or not any(_PADDED.fullmatch(v) for v in values)):
        year = "year" in relation.lower() and all(re.fullmatch(r"\d{4}", v) for v in values)
        in_time = all(re.fullmatch(r"1[5-9]\d\d|20\d\d", v) for v in values)
        founded = wording(column, domain, "year")["label"]
        in_time = in_time and founded != f"{wording(column, domain, 'string')['label']} year"
        say("year" if year or in_time else "number")
        return set()
    quantities = [quantity(v) for v in values]
    units = Counter(q.unit for q in quantities if q)
    padded = not stated and any(_PADDED.fullmatch(v) for v in values)
    if units and not padded and sum(units.values()) >= _MOST * len(values):
        unit = units.most_common(1)[0][0]
        if units[unit] >= _MOST * sum(units.values()):
            say("number", unit=unit)
            return _numbers(reading, relation, unit, places, quantities)
    if stated:
        return set()
    subjects = reading.listed.get(domain, set())
    inside = [v in subjects for v in values]
    if 2 * sum(inside) > len(values):
        pairs = {(r.subject, r.object) for r in rows}
        say(domain, both=len(pairs) > 1 and all((y, x) in pairs for x, y in pairs))
        return set()
    times = Counter(values)
    names = all(re.match(r"[^\W\d_]", v) and len(v) <= _LETTERS and len(v.split()) <= _WORDS for v in times)
    shared = sum(n for n in times.values() if n > 1)
    if names and len(times) > 1 and shared >= max(2, _SHARED * len(values)):
        thing = thing_of(column)
        thing = thing if thing != domain else f"{thing}_{'kind' if thing != 'kind' else 'group'}"
        say(thing, single=len({r.subject for r in rows}) == len({(r.subject, r.object) for r in rows}))
        return set()
    say("string")
    return set()


def _reread(
    reading: Reading,
    places: Sequence[int],
    read: Sequence[Any],
    text: Callable[[Any], str],
    fault: Callable[[Row, Any], tuple[str, str] | None],
) -> set[int]:
    """Replace the cells at `places` by the `text` of what was `read` there. Returns the places where that is
    impossible: those with a `fault` (reason, and how to fix it) are quarantined."""
    gone = set()
    for i, value in zip(places, read, strict=True):
        row = reading.rows[i]
        if problem := fault(row, value):
            reading.quarantine(problem[0], row.source, problem[1], row.span)
            gone.add(i)
        else:
            reading.rows[i] = replace(row, object=text(value))
    return gone


def _refer(
    reading: Reading,
    relation: str,
    domain: str,
    places: Sequence[int],
    known: Sequence[str | None],
    say: Callable[..., None],
) -> set[int]:
    """Replace codes by the records that have them."""

    def fault(row: Row, name: str | None) -> tuple[str, str] | None:
        why = f"it refers to {row.object!r}, which is the code of no record: add that record, or fix the reference"
        return ("unknown_reference", why) if name is None else None

    gone = _reread(reading, places, known, str, fault)
    rows = [reading.rows[i] for i in places if i not in gone]
    pairs = {(r.subject, r.object) for r in rows}
    single = len({r.subject for r in rows}) == len(pairs)
    say(domain, both=len(pairs) > 1 and all((y, x) in pairs for x, y in pairs), single=single)
    return gone


def _day(text: str) -> str | None:
    time = _TIME.fullmatch(text)
    return date(time[1] if time else text)


def _dates(reading: Reading, relation: str, domain: str, places: Sequence[int], days: Sequence[str | None]) -> set[int]:
    label = str(reading.schema[relation]["label"])
    year = f"{relation}_year"
    reading.schema[year] = {"domain": domain, "range": "year", "label": f"{label.removesuffix(' date')} year"}
    why = f"{relation!r} is a date elsewhere, here it is not: write 1789-07-14"
    gone = _reread(reading, places, days, str, lambda row, day: ("not_a_date", why) if day is None else None)
    dated = [reading.rows[i] for i in places if i not in gone]
    reading.rows.extend(replace(row, relation=year, object=str(int(row.object[:4]))) for row in dated)
    return gone


def _numbers(
    reading: Reading, relation: str, unit: str, places: Sequence[int], quantities: Sequence[Quantity | None]
) -> set[int]:
    why = f"{relation!r} is in {unit or 'plain numbers'!r} elsewhere: convert it, or mark it as missing"

    def fault(row: Row, q: Quantity | None) -> tuple[str, str] | None:
        return ("not_a_quantity", why) if q is None else ("other_unit", why) if q.unit != unit else None

    return _reread(reading, places, quantities, lambda q: q.number, fault)
