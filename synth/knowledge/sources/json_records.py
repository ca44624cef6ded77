"""JSON records: a list of objects, each about one entity; fields, nested objects and lists become facts."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from synth.knowledge.ingest import Reading, read_text
from synth.knowledge.missing import MISSING
from synth.knowledge.sources.records import mapping, read_records


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
    missing: Collection[str] = MISSING,
) -> Reading:
    """Read records: a file with a list of objects, lines of objects (*.jsonl), or a folder (its subfolders too) with
    one object in each *.json.

    type      entity type of the records
    id        path of the field that names a record; paths are keys joined by dots, `*` is every value, lists are
              traversed implicitly
    key       path of another field by which records refer to each other ("cca3"), for fields with `by_key: true`
    aliases   path of further names
    records   path to the list of records, if the file is an object
    fields    relation -> path, or {path, range, by_key, read, pattern, functional, label, passage, ...} (how a text is
              read: `Mapped` in synth/knowledge/sources/records.py; and any field of `Relation`). Without it every field
              is a relation: nested objects that have a name are entities of their own, other nested objects are
              flattened.

    missing   texts that say that a value is missing (synth/knowledge/missing.py)

    null and {} state nothing, nor do missing values; [] states that there is none. A record without a name, or with the name of an
    earlier one, is quarantined whole. Raises ValueError for a file that is not a list of objects, and for a wrong entry
    of `fields`.
    """
    wanted = mapping(name, fields)
    lines = path.suffix.lower() in (".jsonl", ".ndjson")
    elements = list(
        _folder(path, name)
        if path.is_dir()
        else _lines(read_text(path, name), name)
        if lines
        else _records(read_text(path, name), name, records)
    )
    if not elements:
        raise ValueError(
            f"{name} holds no file *.json: add some, or take it out of the list of sources"
            if path.is_dir()
            else f"{name} line 1 begins an empty list of records: add records, or take it out of the list of sources"
        )
    return read_records(elements, type=type, id=id, key=key, aliases=aliases, fields=wanted, missing=missing)


def _folder(path: Path, name: str) -> Iterator[tuple[str, Any]]:
    """(place, record) of every file of a folder."""
    for file in sorted(path.rglob("*.json")):
        label = f"{name.rstrip('/')}/{file.relative_to(path).as_posix()}"
        try:
            record = json.loads(read_text(file, label), object_pairs_hook=no_repeated_key)
        except json.JSONDecodeError as error:
            raise ValueError(
                f"{label} line {error.lineno} column {error.colno} is not JSON ({error.msg}): fix it there"
            ) from error
        yield label, record


def _lines(text: str, name: str) -> Iterator[tuple[str, Any]]:
    """(place, record) of every line that is not blank."""
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            try:
                yield f"{name} line {number}", json.loads(line, object_pairs_hook=no_repeated_key)
            except ValueError as error:
                raise ValueError(f"{name} line {number} is not JSON ({error}): fix it there") from error


def _records(text: str, name: str, records: str) -> Iterator[tuple[str, Any]]:
    """(place, record) of the list; the line is known where the list is the whole file, else the number."""
    decoder = json.JSONDecoder(object_pairs_hook=no_repeated_key)
    try:
        values = json.loads(text, object_pairs_hook=no_repeated_key)
    except json.JSONDecodeError as error:
        raise ValueError(
            f"{name} line {error.lineno} column {error.colno} is not JSON ({error.msg}): fix it there"
        ) from error
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
    """A JSON object. Raises ValueError for a key that is given twice: `json` would keep the last and lose the
    others."""
    out = dict(pairs)
    if len(out) != len(pairs):
        twice = next(k for i, (k, _) in enumerate(pairs) if any(k == other for other, _ in pairs[:i]))
        raise ValueError(f"gives the key {twice!r} twice in one object")
    return out
