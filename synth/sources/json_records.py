"""JSON records: a list of objects, each about one entity; fields, nested objects and lists become facts."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import fields as dataclass_fields
from pathlib import Path
from typing import Any

from synth.ingest import Reading, Row, read_text, tidy
from synth.kb import Relation

_STATED = {f.name for f in dataclass_fields(Relation)} - {"name", "domain"}


def json_records(
    path: Path,
    name: str,
    *,
    type: str = "thing",
    id: str = "name",
    key: str = "",
    aliases: str = "",
    records: str = "",
    fields: Mapping[str, Any] | None = None,
) -> Reading:
    """Read records.

    type      entity type of the records
    id        path of the field that names a record; paths are keys joined by dots, `*` is every value, a list is walked on its own
    key       path of another field by which records refer to each other ("cca3"), for fields with `by_key: true`
    aliases   path of further names
    records   path to the list of records, where the file is an object
    fields    relation -> path, or {path, range, by_key, functional, label, passage, ...} (any field of `Relation`). Without it every
              field is a relation: nested objects that have a name are entities of their own, other nested objects are flattened.

    null, [] and {} state nothing; an empty string is a missing object. A record without a name, or with the name of an earlier one, is set
    aside whole. Raises ValueError for a file that is not a list of objects, and for a wrong entry of `fields`.
    """
    wanted = {relation: _field(name, relation, given) for relation, given in (fields or {}).items()}
    reading = Reading(schema={r: {"domain": type, **{k: v for k, v in f.items() if k in _STATED}} for r, f in wanted.items()})
    found = list(_records(read_text(path, name), name, records))
    if not found:
        raise ValueError(f"{name} line 1 begins an empty list of records: add records, or take it out of the list of sources")
    by_key = (
        {scalar(k): tidy(scalar(n)) for _, r in found if isinstance(r, dict) for k in _follow(r, key) for n in _follow(r, id)}
        if key
        else {}
    )
    seen: dict[str, str] = {}
    for place, record in found:
        text = json.dumps(record, ensure_ascii=False)
        names = [tidy(scalar(v)) for v in _follow(record, id)] if isinstance(record, dict) else []
        if len(names) != 1 or not names[0]:
            reading.aside("missing_name", place, f"the record has no single name at {id!r}: give one, or state its path as `id`", text)
            continue
        if names[0] in seen:
            reading.aside(
                "duplicate_record",
                place,
                f"the name {names[0]!r} is already that of {seen[names[0]]}: merge the two records, or tell their names apart",
                text,
            )
            continue
        seen[names[0]] = place
        others = (
            tuple(n for n in dict.fromkeys(tidy(scalar(v)) for v in _follow(record, aliases)) if n and n != names[0]) if aliases else ()
        )
        if others:
            reading.aliases[type, names[0]] = others
        if fields is None:
            reading.rows += _all_rows(record, names[0], type, id, "", place)
            continue
        for relation, f in wanted.items():
            for value in map(scalar, _follow(record, f["path"])):
                row = {
                    "subject": names[0],
                    "relation": relation,
                    "subject_type": type,
                    "source": place,
                    "span": f"{names[0]} {f['path']} = {value}",
                }
                if not f.get("by_key"):
                    reading.rows.append(Row(object=tidy(value), **row))
                elif value in by_key:
                    reading.rows.append(Row(object=by_key[value], **row))
                else:
                    reading.aside(
                        "unknown_reference",
                        place,
                        f"{relation!r} refers to {value!r}, which no record has at {key!r}: add that record, or mend the reference",
                        row["span"],
                    )
    return reading


def _field(name: str, relation: str, given: Any) -> dict[str, Any]:
    field = {"path": given} if isinstance(given, str) else dict(given) if isinstance(given, Mapping) else {}
    unknown = sorted(set(field) - _STATED - {"path", "by_key"})
    if unknown or not isinstance(field.get("path"), str):
        raise ValueError(
            f"the field {relation!r} of {name} {f'has an unknown key {unknown[0]!r}' if unknown else 'has no path'}: write a "
            f"path, or {{path: ..., range: ..., by_key: true}}"
        )
    return field


def _records(text: str, name: str, records: str) -> Iterator[tuple[str, Any]]:
    """(place, record) of the list; the line is known where the list is the whole file, else the number."""
    decoder = json.JSONDecoder(object_pairs_hook=no_repeated_key)
    try:
        values = json.loads(text, object_pairs_hook=no_repeated_key)
    except json.JSONDecodeError as error:
        raise ValueError(f"{name} line {error.lineno} column {error.colno} is not JSON ({error.msg}): mend it there") from error
    except ValueError as error:
        raise ValueError(f"{name} {error}: keep one of the two") from error
    if records:
        for step in records.split("."):
            values = values.get(step) if isinstance(values, dict) else None
    if not isinstance(values, list):
        raise ValueError(
            f"{name} line 1 is not a list of records{f' at {records!r}' if records else ''}: write [{{...}}, {{...}}], or "
            "state the path to the list as `records`"
        )
    position, line = text.index("[") + 1, 1
    counted = 0
    for number, value in enumerate(values, start=1):
        if records:
            yield f"{name} record {number}", value
            continue
        while text[position] in " \t\r\n,":
            position += 1
        line += text.count("\n", counted, position)
        counted = position
        _, position = decoder.raw_decode(text, position)
        yield f"{name} line {line} record {number}", value


def no_repeated_key(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object. Raises ValueError for a key that is given twice: `json` would keep the last and lose the others."""
    out = dict(pairs)
    if len(out) != len(pairs):
        twice = next(k for i, (k, _) in enumerate(pairs) if any(k == other for other, _ in pairs[:i]))
        raise ValueError(f"gives the key {twice!r} twice in one object")
    return out


def scalar(value: Any) -> str:
    """The text of a JSON value: yes/no for booleans, whole floats as integers, "" for null."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _follow(value: Any, path: str) -> Iterator[Any]:
    """The scalars at a path; lists are walked wherever they stand, `*` walks the values of an object."""
    if isinstance(value, list):
        for item in value:
            yield from _follow(item, path)
        return
    step, _, rest = path.partition(".")
    if not step:
        if value is not None and not isinstance(value, dict):
            yield value
    elif isinstance(value, dict):
        for item in value.values() if step == "*" else [value[step]] if step in value else []:
            yield from _follow(item, rest)


def _all_rows(record: Mapping[str, Any], subject: str, type: str, id: str, prefix: str, place: str) -> list[Row]:
    """A row for every leaf of a record (see `json_records`); relations of nested entities begin with the field that holds them."""
    rows: list[Row] = []
    for field, value in record.items():
        if field == id:
            continue
        relation = prefix + field
        for item in value if isinstance(value, list) else [value]:
            row = {"subject": subject, "subject_type": type, "relation": relation, "source": place}
            if isinstance(item, dict) and isinstance(item.get(id), str) and item[id].strip():
                named = tidy(item[id])
                rows.append(Row(object=named, object_type=field, span=f"{subject} {relation} = {named}", **row))
                rows += _all_rows(item, named, field, id, f"{field}_", place)
            elif isinstance(item, dict):
                rows += _all_rows(item, subject, type, id, f"{relation}_", place)
            elif item is not None and not isinstance(item, list):
                rows.append(Row(object=tidy(scalar(item)), span=f"{subject} {relation} = {scalar(item)}", **row))
    return rows
