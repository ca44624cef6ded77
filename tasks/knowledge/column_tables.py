"""A large table as a knowledge base on disk, from its columns (`synth.knowledge.column_base`): the same tables, SQL,
postings, pages and card as `bases.write` makes of objects, a few thousand facts at a time."""

from __future__ import annotations

import ctypes
import json
import math
import sqlite3
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from synth.knowledge.arrow_texts import TEXT, ArrowTexts, joined
from synth.knowledge.column_base import ColumnBase, hashed
from synth.knowledge.ingest import write_schema
from synth.knowledge.kb import KB, Entity, Fact, Passage, Relation
from synth.knowledge.orders import inverse
from synth.knowledge.postings import as_number
from synth.knowledge.sqlite_pages import SqlitePages
from synth.search.blocks import Block, in_pieces, listed
from synth.search.index import build_index, table_title
from synth.types import SCHEMA_VERSION, Quarantined
from tasks.runtime.beside import beside
from tasks.storage import tables

_GROUP = 131_072  # rows of a table that are written together
_REPEATED = ("relation", "type", "schema_version")  # columns of few values
_MMAP_THRESHOLD, _LARGE = -3, 4 << 20  # as malloc.h calls it; bytes
_PAGES, _FEW = 8192, 64  # pages that are made together; lines of other pages that are made with all of theirs


@contextmanager
def lean() -> Iterator[None]:
    """Arrow's memory from the system while a base is built: an allocator of its own keeps half as much again in reserve. The
    C library gives back what is larger than _LARGE once it is freed, where it would keep up to 32 MB of each size."""
    if sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "mallopt"):
        libc.mallopt(_MMAP_THRESHOLD, _LARGE)
    pool = pa.default_memory_pool()
    pa.set_memory_pool(pa.system_memory_pool())
    try:
        yield
    finally:
        pa.set_memory_pool(pool)


class _Table:
    """A Parquet file that rows are added to, written as `tables.write` writes it, in groups of rows."""

    def __init__(self, path: Path, cls: type) -> None:
        self._schema = tables.arrow_schema(cls)
        # Columns (the stubs know a bool alone): looking for repeated values in all takes longer.
        few: Any = [f.name for f in self._schema if f.name in _REPEATED]
        self._writer = parquet.ParquetWriter(path, self._schema, compression="zstd", use_dictionary=few)
        self._waiting: list[pa.Table] = []

    def add(self, columns: Mapping[str, Any]) -> None:
        n = len(next(iter(columns.values())))
        arrays = [
            pa.array([SCHEMA_VERSION] * n, f.type)
            if f.name == "schema_version"
            else columns[f.name].cast(f.type)
            if isinstance(columns[f.name], pa.Array)
            else pa.array(columns[f.name], f.type)
            for f in self._schema
        ]
        self._waiting.append(pa.Table.from_arrays(arrays, schema=self._schema))
        if sum(map(len, self._waiting)) >= _GROUP:
            self._flush()

    def _flush(self) -> None:
        if self._waiting:
            self._writer.write_table(pa.concat_tables(self._waiting), row_group_size=_GROUP * 2)
            self._waiting = []

    def close(self) -> None:
        self._flush()
        self._writer.close()


def write_tables(folder: Path, base: ColumnBase) -> None:
    """entities, relations, facts, passages and quarantine .parquet, relations.csv, postings.npz."""
    entities = _Table(folder / "entities.parquet", Entity)
    for columns in base.entity_columns():
        entities.add(columns)
    entities.close()
    facts, passages = _Table(folder / "facts.parquet", Fact), _Table(folder / "passages.parquet", Passage)
    for columns in base.fact_columns():
        facts.add(columns)
        stated = pa.ListArray.from_arrays(range(len(columns["id"]) + 1), columns["id"].cast(pa.string()))  # one each
        ids = hashed('["passage","', columns["id"], '"]')
        of = {"id": ids, "entity": columns["subject"], "title": columns["title"], "text": columns["text"]}
        passages.add(of | {"facts": stated})
    facts.close()
    passages.close()
    tables.write(folder / "relations.parquet", base.relations.values(), Relation)
    tables.write(folder / "quarantine.parquet", base.quarantined, Quarantined)
    write_schema(folder / "relations.csv", base.relations.values())
    base.forget(ids=False)
    base.postings().save(folder / "postings.npz")


def write(folder: Path, base: ColumnBase, missing: Mapping[str, int]) -> dict[str, Any]:
    """Everything but schema and card; the card is returned."""

    def told() -> str:
        write_tables(folder, base)
        write_sql(folder, base)
        digest = base.digest()
        base.forget()
        return digest

    base.forget()  # a copy shares what is in memory now
    with beside("the tables of the knowledge base", told) as written:  # neither reads what the other writes
        index = build_index(pages(base), folder / "index")
        digest = written()
    return {
        "entities": len(base.order),
        "facts": base.accepted,
        "passages": base.accepted,
        "quarantined": tables.counts(base.quarantined),
        "missing": dict(missing),
        "skipped": {},
        "documents": 0,
        "encodings": {},
        "index": index.size(),
        "density": base.density(),
        "kb": digest,
    }


def write_sql(folder: Path, base: ColumnBase) -> None:
    """kb.sqlite: the tables and indexes that `KB.sqlite` makes, filled in the order of their keys."""
    connection = sqlite3.connect(folder / "kb.sqlite")
    with connection:
        KB((), base.relations.values(), ()).sqlite(connection)
    connection.close()
    with SqlitePages(folder / "kb.sqlite") as file:
        with file.fill("entity") as entities:
            for some in base.entity_columns(by_id=True):
                some["aliases"] = [json.dumps(a, ensure_ascii=False) if a else "[]" for a in some["aliases"]]
                entities.add([pa.array(column, TEXT) for column in some.values()])
        names = [f.name for f in fields(Fact)]
        with file.fill("fact") as facts:
            for some in base.fact_columns(names, by_id=True):
                facts.add([some[name] for name in names])
        for index, end in (("fact_forward", ""), ("fact_to_object", "object"), ("fact_to_literal", "literal")):
            with file.fill(index) as rows:
                for some in base.index_columns(end):
                    rows.add(some)


def pages(base: ColumnBase) -> Iterator[Block]:
    """As `synth.search.index.pages_of_kb`."""
    records = len(base.subjects)
    order = [k for k, s in enumerate(base.stated) if not s.late] + [k for k, s in enumerate(base.stated) if s.late]
    to, mentioned_by, which = _mentions(base, order)
    for at in range(0, len(base.order), _PAGES):
        some = base.order[at : at + _PAGES]
        (place,) = np.nonzero(some < records)
        own = some[place]
        row, column = np.nonzero(np.stack([base.stated[k].codes[own] >= 0 for k in order], 1))
        a, b = to.searchsorted(some), to.searchsorted(some, "right")
        few = np.where(b - a <= _FEW, b - a, 0)
        starts = np.cumsum(few) - few
        places = np.arange(few.sum()) + np.repeat(a - starts, few)
        data, ends = listed(base.said(mentioned_by[places], which[places]))
        names, types = base.entities.take(some).array.to_pylist(), base.types[some].tolist()
        yield Block.of(
            [f"{base.type_names[t]}:{x}" for x, t in zip(names, types, strict=True)],
            names,
            [base.aliases.get(e, ()) for e in some.tolist()],
            base.said(own[row], np.array(order)[column]),
            np.bincount(place[row], minlength=len(some)),
            [
                ([(n, str(data[ends[i] : ends[i + n] - 1], "utf-8"))] if n else ())
                if j - k <= _FEW
                else in_pieces(_said(base, mentioned_by[k:j], which[k:j]))
                for i, n, k, j in zip(starts.tolist(), few.tolist(), a.tolist(), b.tolist(), strict=True)
            ],
            a < b,
        )
    by_name = inverse(base.subjects.ranked(), np.int32)
    ranked = sorted(
        (k for k, s in enumerate(base.stated) if s.relation.literal),
        key=lambda k: (
            order.index(k) >= len(order) - sum(s.late for s in base.stated),
            _first(base, k),
            order.index(k),
        ),
    )
    for k in ranked:
        s = base.stated[k]
        kind = s.relation.range
        rank = inverse(s.values.ranked(), np.int32)
        if kind != "string":
            numbers = np.fromiter((as_number(v, date=kind == "date") for v in s.values), np.float64, len(rank))
            numbers[np.isnan(numbers)] = math.inf
            rank = inverse(np.lexsort((rank, numbers)), np.int32)
        rows = np.flatnonzero(s.codes >= 0)
        if len(rows) > 2:
            of = s.new[s.codes[rows]]
            sort = np.lexsort((by_name[rows], rank[of]))
            lines = _told(base.subjects, s.values, rows[sort].astype(np.int32), of[sort])
            title = [f"table:{s.relation.name}"], [table_title(s.relation)]
            yield Block.of(
                *title, [()], pa.array([], TEXT), np.zeros(1, np.int64), [in_pieces(lines)], np.ones(1, bool)
            )


def _told(subjects: ArrowTexts, values: ArrowTexts, rows: np.ndarray, of: np.ndarray) -> Iterator[pa.Array]:
    """The lines "subject: value" of a table, some at a time: a line for each record at once is large."""
    for at in range(0, len(rows), _GROUP):
        names, texts = subjects.take(rows[at : at + _GROUP]), values.take(of[at : at + _GROUP])
        yield joined(names.array, ": ", texts.array)


def _said(base: ColumnBase, rows: np.ndarray, which: np.ndarray) -> Iterator[pa.Array]:
    """`ColumnBase.said`, some at a time."""
    for at in range(0, len(rows), _GROUP):
        yield base.said(rows[at : at + _GROUP], which[at : at + _GROUP])


def _first(base: ColumnBase, k: int) -> int:
    return int(np.flatnonzero(base.stated[k].codes >= 0)[0])


def _mentions(base: ColumnBase, order: list[int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(entities, rising; a record whose fact mentions it, in the order of the facts; which of `stated` that is)."""
    none = np.zeros(0, np.int64)
    objects, records, of, keys = [none], [none], [none], [none]
    width, late = len(order), {k for k, s in enumerate(base.stated) if s.late}
    for k, s in enumerate(base.stated):
        if not s.relation.literal:
            rows = np.flatnonzero(s.codes >= 0)
            to = base.ends[s.relation.name][s.new[s.codes[rows]]]
            rows, to = rows[to != rows], to[to != rows]
            objects.append(to)
            records.append(rows)
            of.append(np.full(len(rows), k))
            keys.append(rows * width + order.index(k) + (len(base.subjects) * width * (1 + k) if k in late else 0))
    to, rows, which, key = (np.concatenate(x) for x in (objects, records, of, keys))
    sort = np.lexsort((key, to))
    return to[sort].astype(np.int32), rows[sort].astype(np.int32), which[sort].astype(np.int16)
