"""What kind of source a file or folder is, and where in it the names stand. A guess that `espalier kb build` writes
down, to be edited."""

from __future__ import annotations

import csv
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from synth.knowledge.documents import SUFFIXES
from synth.knowledge.sources import READERS
from tasks.errors import UserError

DATABASES = (".sqlite", ".sqlite3", ".db", ".sql")
_PROSE = {".md", ".markdown", ".txt", ".html", ".htm"}


def guess(path: Path) -> dict[str, Any]:
    """{kind, path, and options}. Raises UserError where the path is missing or nothing can be made of it."""
    if not path.exists():
        raise UserError(f"{path} does not exist: fix the path of the source")
    source: dict[str, Any] = {"path": str(path)}
    suffix = path.suffix.lower()
    if path.is_dir():
        suffixes = {p.suffix.lower() for p in path.rglob("*") if p.is_file()}
        if ".csv" in suffixes and not suffixes & (
            _PROSE - {".md"}
        ):  # a README beside tables is no collection of documents
            return {"kind": "csv_triples", **source}
        if not suffixes & set(SUFFIXES):
            kinds = ", ".join(SUFFIXES)
            raise UserError(
                f"{path} holds neither documents ({kinds}) nor triples (.csv): name a file, or say its kind in a schema.yaml"
            )
        titles = named([_json(p) for p in sorted(path.rglob("*.json"))[:200]])
        return {"kind": "documents", **source, **({"title": titles[:2]} if titles else {})}
    if suffix in DATABASES:
        return {"kind": "sqlite_tables", **source}
    if suffix == ".jsonl":
        return {"kind": "jsonl_triples", **source}
    if suffix == ".csv":
        return {
            "kind": "csv_triples" if {"subject", "relation", "object"} <= set(_header(path)) else "csv_records",
            **source,
        }
    if suffix == ".json" and isinstance(records := _json(path), list):
        first = records[0] if records else None
        if isinstance(first, Mapping) and not {"title", "text"} <= set(first):
            ids = named(records)
            return {"kind": "json_records", **source, "type": _singular(path.stem), **({"id": ids[0]} if ids else {})}
    if suffix in SUFFIXES:
        return {"kind": "documents", **source}
    raise UserError(
        f"nothing is known of files like {path}: the kinds of sources are {', '.join(READERS)} (docs/knowledge.md)"
    )


def _singular(stem: str) -> str:
    """ "countries" -> "country", "songs" -> "song"."""
    return (
        f"{stem[:-3]}y"
        if stem.endswith("ies")
        else stem[:-1]
        if stem.endswith("s") and not stem.endswith("ss")
        else stem
    )


def _header(path: Path) -> list[str]:
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as lines:
        return [c.strip().lower() for c in next(csv.reader(lines), [])]


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is not JSON ({error}): fix it") from error


def named(records: Sequence[Any]) -> list[str]:
    """The paths at which records have a name: short texts that differ, in nearly all records, under a key that says
    name or title. The plainest path first, then the shortest texts."""
    values: dict[str, list[str]] = defaultdict(list)
    some = [r for r in records if isinstance(r, Mapping)]
    for record in some:
        for path, text in _texts(record):
            values[path].append(text)
    names = []
    for path, texts in values.items():
        parts = [p for p in path.lower().split(".") if p != "text"]
        place = 0 if parts in (["name"], ["title"]) else 1 if any("name" in p or "title" in p for p in parts) else 2
        mean = sum(map(len, texts)) / len(texts)
        if place < 2 and len(texts) >= 0.9 * len(some) and len(set(texts)) >= 0.9 * len(texts) and 2 < mean <= 60:
            names.append((place, "short" not in path, len(parts), mean, path))
    return [path for *_, path in sorted(names)]


def _texts(record: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, str]]:
    for key, value in record.items():
        if "." in key:  # a dot joins keys
            continue
        if isinstance(value, Mapping):
            yield from _texts(value, f"{path}{key}.")
        elif isinstance(value, str) and value.strip():
            yield f"{path}{key}", value.strip()
