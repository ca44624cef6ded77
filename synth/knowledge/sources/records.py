"""Records of any source: one entity each, its fields as relations. Shared by the readers of JSON and of
CSV."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from dataclasses import fields as dataclass_fields
from typing import Any

from synth.knowledge.documents import plain
from synth.knowledge.ingest import BLANK, Reading, Row
from synth.knowledge.kb import Relation
from synth.knowledge.missing import MISSING, says_nothing
from synth.knowledge.missing import missing as values_missing
from synth.knowledge.names import names, plain_value
from synth.knowledge.text import tidy
from synth.knowledge.words import singular
from synth.quantities import date, quantity, year

_STATED = {f.name for f in dataclass_fields(Relation)} - {"name", "domain"}
_OWN = {"path", "by_key", "read", "split", "pattern"}
READ = {  # how the text of a field becomes objects
    "text": lambda text: [tidy(text)],
    "plain": lambda text: plain_value(text),
    "quantity": lambda text: [q.number] if (q := quantity(text)) else [],
    "date": lambda text: [d] if (d := date(text)) else [],
    "year": lambda text: [y] if (y := year(text)) else [],
    "names": lambda text: names(text),
}


@dataclass(frozen=True)
class Mapped:
    """How a relation is read from a record.

    path      keys joined by dots, `*` is every value, lists are walked
    by_key    the value is the key of another record, not its name
    read      text (as it is), plain (without a note in brackets), quantity, date, year, or names (a list in one text)
    split     text between the values of one field, for CSV
    pattern   a regular expression; its first group (or the whole match), wherever it occurs, is a value
    """

    path: str
    by_key: bool = False
    read: str = "text"
    split: str = ""
    pattern: re.Pattern[str] | None = None

    def values(self, record: Mapping[str, Any]) -> Iterator[tuple[str, list[str]]]:
        """(text, objects read from it) of every value at the path."""
        for text in map(scalar, follow(record, self.path)):
            clean = plain(text) if self.read != "text" or self.pattern else text
            parts = clean.split(self.split) if self.split else [clean]
            if self.pattern:
                parts = [m[1] if self.pattern.groups else m[0] for part in parts for m in self.pattern.finditer(part)]
            yield text, [x for part in parts for x in READ[self.read](part)]


def mapped(name: str, relation: str, given: Any) -> tuple[Mapped, dict[str, Any]]:
    """An entry of `fields`: how it is read, and what it states about the relation. Raises ValueError for a wrong
    one."""
    field: dict[str, Any] = (
        {"path": given} if isinstance(given, str) else dict(given) if isinstance(given, Mapping) else {}
    )
    unknown = sorted(set(field) - _STATED - _OWN)
    where = f"the field {relation!r} of {name}"
    if unknown or not isinstance(field.get("path"), str):
        what = f"has an unknown key {unknown[0]!r}" if unknown else "has no path"
        raise ValueError(f"{where} {what}: write a path, or {{path: ..., range: ..., by_key: true}}")
    if field.get("read", "text") not in READ:
        raise ValueError(f"{where} has read: {field['read']!r}: write one of {', '.join(READ)}")
    try:
        pattern = re.compile(field["pattern"]) if field.get("pattern") else None
    except (re.error, TypeError) as error:
        raise ValueError(f"{where} has a pattern that is no regular expression ({error}): fix it") from error
    own = {k: v for k, v in field.items() if k in _OWN - {"pattern"}}
    return Mapped(**own, pattern=pattern), {k: v for k, v in field.items() if k in _STATED}


Fields = Mapping[str, tuple[Mapped, dict[str, Any]]]


def mapping(name: str, fields: Mapping[str, Any] | None) -> Fields | None:
    """The option `fields`, checked. Raises ValueError for a wrong entry."""
    return None if fields is None else {relation: mapped(name, relation, given) for relation, given in fields.items()}


class Lacks(ValueError):
    """A source does not have what an option names. option: where in the options, ("fields", "area")."""

    def __init__(self, message: str, option: Iterable[str | int]) -> None:
        super().__init__(message)
        self.option = tuple(option)


def read_records(
    records: Iterable[tuple[str, Any]],
    *,
    type: str,
    id: str,
    key: str,
    aliases: str,
    fields: Fields | None,
    missing: Collection[str] = MISSING,
) -> Reading:
    """The reading of (place, record) pairs; the options are those of `json_records`."""
    wanted = fields or {}
    reading = Reading(schema={r: {"domain": type, **stated} for r, (_, stated) in wanted.items()}, guess=fields is None)
    records = list(records)
    by_key = (
        {
            scalar(k): tidy(scalar(n))
            for _, r in records
            if isinstance(r, dict)
            for k in follow(r, key)
            for n in follow(r, id)
        }
        if key
        else {}
    )
    maps = _maps(r for _, r in records) if fields is None else frozenset()
    told: set[tuple[str, str, str]] = set()
    seen: dict[str, str] = {}
    named = [[tidy(plain(scalar(v))) for v in follow(r, id)] if isinstance(r, dict) else [] for _, r in records]
    nameless = values_missing((n for own in named for n in own), missing)
    for (place, record), own in zip(records, named, strict=True):
        if len(own) != 1 or own[0] in nameless or not own[0]:
            why = f"the record has no single name at {id!r}: give one, or state its path as `id`"
            reading.quarantine("missing_name", place, why, json.dumps(record, ensure_ascii=False))
            continue
        subject = own[0]
        if subject in seen:
            why = f"the name {subject!r} is already that of {seen[subject]}: merge the two records, or tell their names apart"
            reading.quarantine("duplicate_record", place, why, json.dumps(record, ensure_ascii=False))
            continue
        seen[subject] = place
        reading.listed.setdefault(type, set()).add(subject)
        paths = {how.path: r for r, (how, _) in wanted.items()} if fields is not None else {k: k for k in record}
        for path, relation in paths.items():
            if record.get(path) == []:
                reading.none.setdefault(relation, set()).add(subject)
        others = (
            tuple(n for n in dict.fromkeys(tidy(scalar(v)) for v in follow(record, aliases)) if n and n != subject)
            if aliases
            else ()
        )
        if others:
            reading.aliases[type, subject] = others
        if fields is None:
            for row in all_rows(record, subject, type, id, "", place, maps, aliases):
                if (fact := (row.subject, row.relation, row.object)) not in told:  # a nested thing is said again
                    told.add(fact)
                    reading.rows.append(row)
        for relation, (how, _) in wanted.items():
            _field(reading, relation, how, record, subject, type, place, by_key, key, missing)
    return reading


def _field(
    reading: Reading,
    relation: str,
    how: Mapped,
    record: Mapping[str, Any],
    subject: str,
    type: str,
    place: str,
    by_key: Mapping[str, str],
    key: str,
    missing: Collection[str],
) -> None:
    for text, objects in how.values(record):
        if says_nothing(text, missing) and (not objects or (how.by_key and text not in by_key)):
            reading.missing[text] += 1
            continue
        span = f"{subject} {how.path} = {text}"
        if not objects and text:
            reading.quarantine(
                f"not_{how.read}",
                place,
                f"{relation!r} cannot be read from this text as {how.read}: fix the text",
                span,
            )
        for x in objects:
            if how.by_key and x not in by_key:
                why = f"{relation!r} refers to {x!r}, which no record has at {key!r}: add that record, or fix the reference"
                reading.quarantine("unknown_reference", place, why, span)
                continue
            x = by_key[x] if how.by_key else x
            reading.rows.append(
                Row(subject=subject, relation=relation, object=x, subject_type=type, source=place, span=span)
            )


_LANGUAGE = re.compile(r"[a-z]{2,3}|[A-Z]{2,3}")
_CODES = 6  # keys of an object that is a map: fewer may be fields


def _maps(records: Iterable[Any]) -> frozenset[str]:
    """The paths of objects whose keys are codes, not fields ({"EUR": {...}, "USD": {...}}): there are many keys and
    none occurs in half of the objects, or all hold objects with the same fields."""
    keys: dict[str, Counter[str]] = defaultdict(Counter)
    times: Counter[str] = Counter()
    inside: dict[str, set[frozenset[str] | None]] = defaultdict(set)

    def walk(value: Any, path: str, deep: int) -> None:
        if isinstance(value, list):
            for item in value:
                walk(item, path, deep)
        elif isinstance(value, dict) and deep:
            times[path] += 1
            keys[path].update(value.keys())
            inside[path] |= {frozenset(v) if isinstance(v, dict) else None for v in value.values()}
            for key, item in value.items():
                walk(item, f"{path}.{key}" if path else key, deep - 1)

    for record in records:
        walk(record, "", 3)
    return frozenset(
        path
        for path, some in keys.items()
        if path
        and len(some) >= (2 if all(_LANGUAGE.fullmatch(k) for k in some) else _CODES)
        and (2 * max(some.values()) < times[path] or (len(inside[path]) == 1 and None not in inside[path]))
    )


def all_rows(
    record: Mapping[str, Any],
    subject: str,
    type: str,
    id: str,
    prefix: str,
    place: str,
    maps: Collection[str] = (),
    aliases: str = "",
    path: str = "",
) -> list[Row]:
    """A row for every leaf of a record (see `json_records`); names of relations of nested entities begin with the field
    that holds them. `maps`: paths of objects whose keys are codes."""
    rows: list[Row] = []
    for field, value in record.items():
        here = f"{path}{field}"
        if here in (id, aliases):
            continue
        relation = prefix + field
        if here in maps and isinstance(value, dict):  # the codes are no part of the relation
            value = [v for item in value.values() for v in (item if isinstance(item, list) else [item])]
        for item in value if isinstance(value, list) else [value]:
            row = {"subject": subject, "subject_type": type, "relation": relation, "source": place}
            own = next((item[k] for k in (id, "name") if _names(item, k)), None) if isinstance(item, dict) else None
            if own is not None:
                thing, entity = tidy(own), singular(field)
                rows.append(Row(object=thing, object_type=entity, span=f"{subject} {relation} = {thing}", **row))
                rest = {k: v for k, v in item.items() if v != own}
                rows += all_rows(rest, thing, entity, id, f"{field}_", place)
            elif isinstance(item, dict):
                rows += all_rows(item, subject, type, id, f"{relation}_", place, maps, path=f"{here}.")
            elif item is not None and not isinstance(item, list):
                rows.append(Row(object=tidy(scalar(item)), span=f"{subject} {relation} = {scalar(item)}", **row))
    return rows


def _names(item: Mapping[str, Any], key: str) -> bool:
    return isinstance(item.get(key), str) and bool(item[key].strip())


def scalar(value: Any) -> str:
    """The text of a JSON value: yes/no for booleans, whole floats as integers, "" for null."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def follow(value: Any, path: str) -> Iterator[Any]:
    """The scalars at a path; lists are walked wherever they stand, `*` walks the values of an object."""
    if isinstance(value, list):
        for item in value:
            yield from follow(item, path)
        return
    step, _, rest = path.partition(".")
    if not step:
        if value is not None and not isinstance(value, dict):
            yield value
    elif isinstance(value, dict):
        for item in value.values() if step == "*" else [value[step]] if step in value else []:
            yield from follow(item, rest)


def read_grid(
    lines: Iterable[tuple[str, list[str]]],
    name: str,
    *,
    type: str,
    id: str,
    key: str,
    aliases: str,
    split: str,
    delimiter: str,
    fields: Mapping[str, tuple[Mapped, dict[str, Any]]] | None,
    missing: Collection[str],
) -> Reading:
    """Records of a table given as (place, cells): the first row that is not blank is the header. The options are those
    of `csv_records`; `delimiter` is only written between the cells of a row that is quarantined.

    Raises ValueError for a table without rows, with a column twice, or without a column that an option names.
    """
    wrong, columns, records = Reading(), [], []
    for place, cells in lines:
        if not any(c.strip() for c in cells):
            if columns and cells:
                wrong.quarantine("blank_row", place, BLANK, delimiter.join(cells))
        elif not columns:
            columns = [tidy(c) for c in cells]
            twice = next((c for c in columns if columns.count(c) > 1), None)
            if twice is not None:
                raise ValueError(f"{place} has the column {twice!r} twice: tell the two apart")
        elif len(cells) != len(columns):
            why = f"the row has {len(cells)} cells and the header {len(columns)}: quote a cell that holds {delimiter!r}"
            wrong.quarantine("wrong_columns", place, why, delimiter.join(cells))
        else:
            cut = {c: _cell(v, split, c == (id or columns[0])) for c, v in zip(columns, cells) if v.strip()}
            records.append((place, cut))
    if not records and not wrong.quarantined:
        raise ValueError(
            f"{name} is a source without rows: add rows below the header, or take it out of the list of sources"
        )
    named = {("id",): id, ("key",): key, ("aliases",): aliases}
    for option, column in (named | {("fields", r): how.path for r, (how, _) in (fields or {}).items()}).items():
        if column and column not in columns:
            raise Lacks(f"{name} has no column {column!r}: its columns are {', '.join(columns)}", option)
    reading = read_records(
        records, type=type, id=id or columns[0], key=key, aliases=aliases, fields=fields, missing=missing
    )
    reading.quarantined += wrong.quarantined
    return reading


def _cell(text: str, split: str, name: bool) -> Any:
    return tidy(text) if name or not split else [tidy(x) for x in text.split(split) if x.strip()]
