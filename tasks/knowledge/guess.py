"""Guesses the kind of source of a file or folder, and where its names are. `espalier kb build` writes the guess down
for editing."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from synth.knowledge.documents import SUFFIXES
from synth.knowledge.ingest import csv_lines
from synth.knowledge.sources import READERS
from synth.knowledge.sources.rdf_triples import FORMATS
from synth.knowledge.sources.sheet_records import rows as sheet_rows
from synth.knowledge.naming import named, unlike
from synth.knowledge.words import label_of, singular
from tasks.core.errors import UserError
from tasks.core.cells import delimiter
from tasks.knowledge.archives import parted, unpacked

DATABASES = (".sqlite", ".sqlite3", ".db", ".sql")
_TABULAR = {  # suffix -> the kind of source, if its file cannot be looked into
    **dict.fromkeys(DATABASES, "sqlite_tables"),
    **dict.fromkeys((".csv", ".tsv", ".tab"), "csv_records"),
    **dict.fromkeys((".jsonl", ".ndjson"), "json_records"),
    **dict.fromkeys((".parquet", ".arrow", ".feather"), "arrow_records"),
    **dict.fromkeys(FORMATS, "rdf_triples"),
    ".xlsx": "sheet_records",
}
_ABOUT = {"LICENSE", "LICENCE", "NOTICE", "COPYING"}  # as the reader of documents
_SOME = 2000  # records that are looked at
_BYTES = 1 << 22  # of a table, at most
_NAME_OF = re.compile(r"(?i)([^\W\d_]+)[ _-]names?")  # "Country name" names countries
_ALIASES = {
    "aliases",
    "alias",
    "altspellings",
    "alternativenames",
    "alternatenames",
    "aka",
    "alsoknownas",
    "othernames",
}
_PLAIN_LISTS = {"data", "items", "records", "results", "rows", "entries", "list", "values", "docs", "objects"}
_PROSE = {".md", ".markdown", ".txt", ".html", ".htm"}


def completed(source: str | Mapping[str, Any], path: Path) -> list[dict[str, Any]]:
    """A source with what was not written: of a bare path, or a mapping without `kind`, everything is guessed, and a folder
    may be several sources (`sources_at`): options that are written beside it are those of its documents, `missing` of all;
    of CSV the text between cells. path: where its file or folder is. Raises UserError if its kind cannot be guessed."""
    given = {"path": source} if isinstance(source, str) else dict(source)
    if "kind" not in given:
        sources = sources_at(path)
        if "folder" not in sources[0]:
            return [sources[0] | given]
        own = {k: v for k, v in given.items() if k == "missing"}
        place = str(given["path"]).rstrip("/")
        named_ = [
            s | own | {"path": place + s["path"].removeprefix(str(path)), "folder": given["path"]} for s in sources
        ]
        return [s | given if s["kind"] == "documents" else s for s in named_]
    return [given if "why" in given else _with_mark(given, unpacked(path))]


def _with_mark(given: dict[str, Any], path: Path) -> dict[str, Any]:
    if given["kind"] in ("csv_records", "csv_tables") and "delimiter" not in given:
        first = next(iter(sorted(path.glob("*.csv"))), None) if path.is_dir() else path
        return given | (_marked(delimiter(first)) if first is not None and first.is_file() else {})
    return given


def sources_at(path: Path) -> list[dict[str, Any]]:
    """The sources of a path: of a folder that mixes documents and tables, or tables of several kinds, its documents (if
    any) and each table, or each folder of CSV files, marked with the `folder` in which they were found; else one (`guess`).
    A .zip is the folder in it, and always marked. Raises UserError as `guess`."""
    if parted(path)[1] is not None and (folder := unpacked(path)).is_dir():
        within = [{**s, "path": f"{path}{str(s['path']).removeprefix(str(folder))}"} for s in sources_at(folder)]
        return [{**s, "folder": str(path)} for s in within]
    if not path.is_dir():
        return [guess(path)]
    files = [p for p in sorted(path.rglob("*")) if p.is_file() and not p.is_symlink() and _seen(p, path)]
    tables = [p for p in files if _suffix(p) in _TABULAR or (p.suffix.lower() == ".json" and _lists(p))]
    pages = [p for p in files if p.suffix.lower() in SUFFIXES and p not in set(tables)]
    prose = [p for p in pages if p.stem.upper() not in _ABOUT and not (p.suffix.lower() == ".md" and _readme(p))]
    flat = all(p.suffix.lower() == ".csv" and p.parent == path for p in tables)
    if not tables or (flat and not prose):
        return [guess(path)]
    sources: list[dict[str, Any]] = []
    if prose:
        left = [p.relative_to(path).as_posix() for p in tables]
        sources.append({**_documents(path, [p for p in pages if p.suffix.lower() == ".json"]), "leave": left})
    folders: dict[Path, list[Path]] = {}
    for p in tables:
        if p.suffix.lower() == ".csv":
            folders.setdefault(p.parent, []).append(p)
    for folder, some in folders.items():
        marks = {delimiter(p) for p in some}
        triples = [_triples(p) for p in some]
        if len(some) > 1 and len(marks) == 1 and len(set(triples)) == 1:
            kind = "csv_triples" if triples[0] else "csv_tables"
            sources.append({"kind": kind, "path": str(folder), **({} if triples[0] else _marked(marks.pop()))})
        else:
            sources += [guess(p) for p in some]
    for p in tables:
        if p.suffix.lower() != ".csv":
            try:
                sources.append(guess(p))
            except UserError as error:  # the reader says it again, where every file is accounted for
                sources.append({"kind": _TABULAR.get(_suffix(p), "json_records"), "path": str(p), "why": str(error)})
    return [{**source, "folder": str(path)} for source in sources]


def _suffix(file: Path) -> str:
    """The suffix of a file, or of what is packed in it."""
    return (file.with_suffix("") if file.suffix.lower() == ".gz" else file).suffix.lower()


def _seen(file: Path, folder: Path) -> bool:
    hidden = any(part.startswith(".") for part in file.relative_to(folder).parts)
    return not hidden and file.stem.upper() not in _ABOUT


def _readme(file: Path) -> bool:
    return file.stem.upper() in ("README", "INDEX")


def _triples(file: Path) -> bool:
    head = {c.lower() for c in (_rows(file, delimiter(file)) or [{}])[0]}
    return len(head) < 2 or {"subject", "relation", "object"} <= head


def _lists(file: Path) -> bool:
    """Whether a JSON file among documents is a table: a list of records, or an object of which a list of records is the
    most. A list of texts with titles is no table, nor is a page with a title that holds a list."""
    try:
        data = json.loads(file.read_bytes())
    except (ValueError, RecursionError):
        return False
    if isinstance(data, Mapping) and any(isinstance(data.get(k), str) for k in ("title", "text", "name")):
        return False
    listed = _list(data)
    if listed is None or len(listed[1]) < 2 or not all(isinstance(r, Mapping) for r in listed[1]):
        return False
    if any({"title", "text"} <= set(r) for r in listed[1][:1]):
        return False
    return not listed[0] or 2 * len(json.dumps(listed[1])) > len(json.dumps(data))


def guess(path: Path) -> dict[str, Any]:
    """{kind, path, and options}; of an archive those of what is in it. Raises UserError as `_guess`."""
    return _guess(unpacked(path)) | {"path": str(path)}


def _guess(path: Path) -> dict[str, Any]:
    """{kind, path, and options}. Raises UserError if the path is missing or of no known kind."""
    if not path.exists():
        raise UserError(f"{path} does not exist: fix the path of the source")
    source: dict[str, Any] = {"path": str(path)}
    suffix = path.suffix.lower()
    if path.is_dir():
        suffixes = {p.suffix.lower() for p in path.rglob("*") if p.is_file()}
        if ".csv" in suffixes and not suffixes & (
            _PROSE - {".md"}
        ):  # a README beside tables is not a collection of documents
            files = sorted(path.glob("*.csv"))
            heads = [{c.lower() for c in (_rows(f, delimiter(f)) or [{}])[0]} for f in files[:20]]
            triples = all(len(h) < 2 or {"subject", "relation", "object"} <= h for h in heads)
            marked = _marked(delimiter(files[0])) if files else {}
            return {"kind": "csv_triples", **source} if triples else {"kind": "csv_tables", **source, **marked}
        if not suffixes & set(SUFFIXES):
            kinds = ", ".join(SUFFIXES)
            raise UserError(
                f"{path} holds neither documents ({kinds}) nor triples (.csv): name a file, or say its kind in a schema.yaml"
            )
        return _documents(path, sorted(path.rglob("*.json")))
    if suffix in DATABASES:
        return {"kind": "sqlite_tables", **source}
    if suffix in (".jsonl", ".ndjson"):
        some = _lines(path)
        triples = not some or any(isinstance(r, Mapping) and {"subject", "relation"} <= set(r) for r in some)
        return {"kind": "jsonl_triples", **source} if triples else _table("json_records", source, path, some)
    if suffix in (".parquet", ".arrow", ".feather"):
        return _table("arrow_records", source, path, _first_rows(path))
    if suffix in FORMATS:
        return {"kind": "rdf_triples", **source}
    if suffix == ".xlsx":
        return _sheet(source, path)
    if suffix in (".csv", ".tsv", ".tab"):
        mark = delimiter(path)
        some = _rows(path, mark)
        if mark == "," and {"subject", "relation", "object"} <= {c.lower() for c in (some[0] if some else {})}:
            return {"kind": "csv_triples", **source}
        return _table("csv_records", source | _marked(mark), path, some)
    if suffix == ".json" and (listed := _list(_json(path))):
        where, records = listed
        first = records[0] if records else None
        if isinstance(first, Mapping) and not {"title", "text"} <= set(first):
            return _table("json_records", source | ({"records": where} if where else {}), path, records, where)
    if suffix in SUFFIXES:
        return {"kind": "documents", **source}
    raise UserError(
        f"nothing is known of files like {path}: the kinds of sources are {', '.join(READERS)} (docs/knowledge.md)"
    )


def _documents(path: Path, pages: Sequence[Path]) -> dict[str, Any]:
    """A folder of documents. `pages`: those that are JSON."""
    titles = named([_json(p) for p in pages[:200]])
    about = next((m[1] for t in titles[:2] for p in t.split(".") if (m := _NAME_OF.fullmatch(p))), "")
    type_ = {"type": singular(label_of(about)).lower().replace(" ", "_")} if about else {}
    return {"kind": "documents", "path": str(path), **type_, **({"title": titles[:2]} if titles else {})}


def _marked(mark: str) -> dict[str, str]:
    """The option of a reader of CSV for what stands between cells."""
    return {"delimiter": mark} if mark != "," else {}


def _table(kind: str, source: Mapping[str, Any], path: Path, records: Sequence[Any], where: str = "") -> dict[str, Any]:
    """A source of records: their type by the list that they stand in, or by the file, and what names them."""
    stem = where.rsplit(".", 1)[-1] if where and where not in _PLAIN_LISTS else path.stem
    type_ = re.sub(r"\W+", "_", label_of(re.sub(r"[\W_]*\d+[\W_]*$", "", stem) or stem).lower()).strip("_") or "thing"
    plain = kind == "json_records" and any(isinstance(r, Mapping) and "name" in r for r in records)
    ids = named(records, singular(type_)) or (["name"] if plain else unlike(records))
    columns = dict.fromkeys(k for r in records if isinstance(r, Mapping) for k in r)
    others = next((c for c in columns if re.sub(r"[\W_]+", "", c).lower() in _ALIASES), "")
    more = {**({"id": ids[0]} if ids else {}), **({"aliases": others} if others and kind == "json_records" else {})}
    return {"kind": kind, **source, "type": singular(type_), **more}


def _sheet(source: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """The first sheet of a spreadsheet; its name is the type unless it is one that programs give."""
    try:
        some = list(islice(sheet_rows(path, str(path)), _SOME))
    except ValueError as error:
        raise UserError(str(error)) from error
    cells = [row for *_, row in some if any(row)]
    title = some[0][0] if some else ""
    records = [dict(zip(cells[0], row)) for row in cells[1:]] if cells else []
    own = title if not re.fullmatch(r"(?i)(?:sheet|tabelle|feuille?|hoja|blad)\s*\d*", title) else ""
    return _table("sheet_records", {**source, **({"sheet": title} if own else {})}, path, records, own)


def _list(data: Any) -> tuple[str, list[Any]] | None:
    """(path, the longest list of objects) in a JSON value: the value itself, or below at most three keys."""
    if isinstance(data, list):
        return "", data
    candidates: list[tuple[int, str, list[Any]]] = []

    def walk(value: Any, path: str, deep: int) -> None:
        if isinstance(value, list) and len(value) > 1 and all(isinstance(v, Mapping) for v in value):
            candidates.append((len(value), path, value))
        elif isinstance(value, Mapping) and deep:
            for key, inside in value.items():
                if "." not in key:
                    walk(inside, f"{path}.{key}".lstrip("."), deep - 1)

    walk(data, "", 3)
    if not candidates:
        return None
    _, path, records = max(candidates, key=lambda f: f[0])
    return path, records


def _lines(path: Path) -> list[Any]:
    """The first objects of lines of JSON."""
    out = []
    with path.open(encoding="utf-8-sig", errors="replace") as lines:
        for line in islice((x for x in lines if x.strip()), _SOME):
            try:
                out.append(json.loads(line))
            except (ValueError, RecursionError):
                continue
    return out


def _first_rows(path: Path) -> list[dict[str, Any]]:
    """The first rows of a Parquet file; of an Arrow file none, since it has no cheap beginning."""
    if path.suffix.lower() != ".parquet":
        return []
    try:
        batch = next(parquet.ParquetFile(path).iter_batches(_SOME), None)
    except (pa.ArrowInvalid, OSError):  # the reader says it
        return []
    return batch.to_pylist() if batch is not None else []


def _rows(path: Path, mark: str) -> list[dict[str, str]]:
    """The first rows of a table, by column."""
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as lines:
        head = lines.read(_BYTES)
    try:
        rows = [[c.strip() for c in row] for _, row in islice(csv_lines(head, str(path), delimiter=mark), _SOME)]
    except ValueError:  # the reader says it, with its place
        return []
    rows = [row for row in rows if row]
    if len(rows) < 2:
        return [dict.fromkeys(rows[0], "")] if rows else []
    return [dict(zip(rows[0], row)) for row in rows[1:]]


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is not JSON ({error}): fix it") from error
