"""Tables: rows of the types that stages exchange, as Parquet, checked by a pandera schema when written and when read.

One schema per type. A column that is missing, or a whole table of another version, is a mistake of the file and
raises UserError; a single bad *row* is quarantined by `check` with a reason code and evidence, never lost. Bytes are
deterministic: one row order (the caller's), one writer, no time stamp.

A table is written and read a part at a time (`Writer`, `each`), so memory does not grow with it but for 8 bytes a row,
by which a repeated id is found. A row group ends after GROUP_ROWS rows or GROUP_TEXT characters: a function of the rows alone.
"""

from __future__ import annotations

import json
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
import pandas as pd
import pandera.pandas as pa
import pyarrow
import pyarrow.parquet

from synth.lookup import Lookup
from synth.types import Quarantined, from_row, to_row
from tasks.core.errors import UserError
from tasks.storage import pictures

T = TypeVar("T")
Schema = pa.DataFrameSchema
GROUP_ROWS, GROUP_TEXT = 1 << 16, 1 << 26  # rows and characters after which a row group ends
READ = 1 << 13  # rows that are objects at once while a table is written or read
LEAST = 64  # values of a cell that are held beyond twice as many as are wanted
REDO = "re-run the stage that writes it (`dvc repro`)"


def text(
    *, empty: bool = True, unique: bool = False, among: Sequence[str] | None = None, nullable: bool = False
) -> pa.Column:
    """A text column; reason codes: empty, duplicate, not_in_set, missing, not_text."""
    checks = [pa.Check(lambda x: isinstance(x, str) or x is None, element_wise=True, error="not_text")]
    if not empty:
        checks.append(pa.Check(lambda x: not isinstance(x, str) or bool(x.strip()), element_wise=True, error="empty"))
    if among is not None:
        checks.append(pa.Check(lambda x: x in among, element_wise=True, error="not_in_set"))
    return pa.Column(object, checks, unique=unique, report_duplicates="exclude_first", nullable=nullable, coerce=True)


def number(low: float | None = None, *, whole: bool = False, nullable: bool = False) -> pa.Column:
    """A number column; reason code: out_of_range."""
    checks = (
        [] if low is None else [pa.Check(lambda x: x >= low, element_wise=True, error="out_of_range", ignore_na=True)]
    )
    return pa.Column("int64" if whole else "float64", checks, nullable=nullable, coerce=True)


def items() -> pa.Column:
    """A column of lists of texts; reason code: not_texts."""
    return pa.Column(
        object, pa.Check(lambda x: all(isinstance(y, str) for y in x), element_wise=True, error="not_texts")
    )


def _schemas() -> dict[str, Schema]:
    key = {"id": text(empty=False, unique=True)}
    split = {"split": text(among=("train", "valid", "test"))}
    flag = pa.Column(bool)
    text_column = text(empty=False)
    columns: dict[str, dict[str, pa.Column]] = {
        "Problem": key
        | split
        | {
            "prompt": text_column,
            "answer": text_column,
            "verifier": text_column,
            "env": text_column,
            "family": text_column,
        }
        | {"args": text(), "difficulty": text(), "lineage": text()},
        "PreferencePair": key
        | split
        | {"prompt": text_column, "chosen": text_column, "rejected": text(), "source": text_column, "problem": text()}
        | {"margin": number(nullable=True), "columns": text(), "decisions": text()},
        "Demonstration": key
        | split
        | {
            "problem": text_column,
            "messages": text_column,
            "calls": number(0, whole=True),
            "detours": number(0, whole=True),
        },
        "Planted": key
        | {
            "flip": flag,
            "copy": text(among=("", "exact", "near", "contradiction")),
            "of": text(),
            "error": text(),
            "margin": number(),
        },
        "Judgement": {
            "id": text_column,
            "step": text_column,
            "action": text(among=("keep", "weight", "ask", "remove", "flip")),
        }
        | {"reason": text_column, "score": number()},
        "OwnRow": key
        | {"file": text_column, "place": text_column, "weight": number(0), "loss": text(among=("all", "last"))},
        "Quarantined": {"id": text(), "stage": text_column, "reason": text_column, "evidence": text()},
        "Entity": key | {"name": text_column, "type": text_column, "aliases": items(), "source": text()},
        "Relation": {
            "name": text(empty=False, unique=True),
            "domain": text_column,
            "range": text_column,
            "label": text_column,
        }
        | {"functional": flag, "inverse_functional": flag, "complete": flag},
        "Fact": key
        | {
            "subject": text_column,
            "relation": text_column,
            "object": text(nullable=True),
            "literal": text(nullable=True),
        }
        | {"source": text(), "span": text()},
        "Page": key | {"title": text_column, "text": text(), "aliases": items(), "mentions": items()},
        "Passage": key | {"entity": text_column, "title": text_column, "text": text_column, "facts": items()},
    }
    return {name: Schema(c, strict=False, name=name) for name, c in columns.items()}


SCHEMAS = _schemas()


def schema_of(cls: type) -> Schema:
    if cls.__name__ not in SCHEMAS:
        raise LookupError(f"there is no table schema for {cls.__name__}: add one to tasks/storage/tables.py")
    return SCHEMAS[cls.__name__]


def check(frame: pd.DataFrame, schema: Schema, stage: str) -> tuple[pd.DataFrame, list[Quarantined]]:
    """The rows of `frame` that satisfy `schema`, and the others as Quarantined with the code of the first rule that
    each breaks.

    Raises UserError where a whole column is missing or of another type: then no row can be judged.
    """
    missing = [c for c in schema.columns if c not in frame.columns]
    if missing:
        raise UserError(
            f"the {schema.name or 'table'} read by {stage} has no column {missing[0]!r} "
            f"(it has {', '.join(map(str, frame.columns)) or 'none'}): add it"
        )
    frame = frame.reset_index(drop=True)
    try:
        return schema.validate(frame, lazy=True), []
    except pa.errors.SchemaErrors as e:
        failures = e.failure_cases
    whole = failures[failures["index"].isna()]
    if len(whole):
        first = whole.iloc[0]
        raise UserError(
            f"column {first['column']!r} of the {schema.name or 'table'} read by {stage} is not what it must be ({first['check']}): "
            f"{first['failure_case']}"
        )
    bad: dict[int, Quarantined] = {}
    for row in failures.itertuples():
        i = int(row.index)
        name = str(frame["id"].iloc[i]) if "id" in frame.columns else f"row {i}"
        bad.setdefault(
            i,
            Quarantined(
                id=name,
                stage=stage,
                reason=_code(str(row.check)),
                evidence=f"row {i}: {row.column} = {row.failure_case!r}",
            ),
        )
    good = schema.validate(frame.drop(index=list(bad)).reset_index(drop=True))
    return good, [bad[i] for i in sorted(bad)]


def _code(check: str) -> str:
    named = {"field_uniqueness": "duplicate", "not_nullable": "missing"}
    return named.get(check, "wrong_type" if check.startswith(("dtype", "coerce")) else check)


def arrow_schema(cls: type) -> pyarrow.Schema:
    """The Parquet schema of a type, from its annotations; nested fields are JSON text (synth.types.to_row)."""
    kinds = {str: pyarrow.string(), int: pyarrow.int64(), float: pyarrow.float64(), bool: pyarrow.bool_()}
    hints, columns = typing.get_type_hints(cls), [("schema_version", pyarrow.int64())]
    for f in fields(cls):  # type: ignore[arg-type]
        hint = hints[f.name]
        inner = (
            [a for a in typing.get_args(hint) if a is not type(None)] if isinstance(hint, types.UnionType) else [hint]
        )
        listed = hint == tuple[str, ...]
        columns.append((f.name, pyarrow.list_(pyarrow.string()) if listed else kinds.get(inner[0], pyarrow.string())))
    return pyarrow.schema(columns)


class Writer(Generic[T]):
    """Writes a table row by row: `with Writer(path, Problem) as out: out.add(problem)`. `n` is the number of rows so far.

    Raises ValueError if a row breaks the schema, which is a bug of the stage that made it. The file is complete once the
    block has ended without an exception; the pictures that rows show are then beside it.
    """

    def __init__(self, path: Path, cls: type[T], *, checked: bool = False) -> None:
        """checked: the rows were checked against the schema before."""
        self.path, self.cls, self.n, self.checked = path, cls, 0, checked
        self._schema, self._names = arrow_schema(cls), set[str]()
        self._rows: list[dict[str, Any]] = []
        self._parts: list[pyarrow.Table] = []  # of the row group, as columns
        self._group_rows = self._text = 0
        self._keys = _Keys(cls)
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = pyarrow.parquet.ParquetWriter(path, self._schema, compression="zstd")

    def __enter__(self) -> Writer[T]:
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        try:
            if kind is None and (self._group_rows or not self.n):
                self._group()
        finally:
            self._file.close()
        if kind is None:
            self._keys.check(self.path, "was about to be written")
            pictures.write(self.path, self._names)

    def add(self, value: T) -> None:
        row = to_row(value)
        self._rows.append(row)
        self._names |= pictures.shown_by((value,))
        self._text += sum(len(x) for x in row.values() if isinstance(x, str))
        self.n, self._group_rows = self.n + 1, self._group_rows + 1
        if len(self._rows) >= READ:
            self._part()
        if self._group_rows >= GROUP_ROWS or self._text >= GROUP_TEXT:
            self._group()

    def _part(self) -> None:
        table = pyarrow.Table.from_pylist(self._rows, schema=self._schema)
        if not self.checked:
            _sound(table, self.cls, self.path, "was about to be written")
            self._keys.add(table)
        self._parts.append(table)
        self._rows = []

    def _group(self) -> None:
        if self._rows or not self._parts:
            self._part()
        self._file.write_table(pyarrow.concat_tables(self._parts).combine_chunks())
        self._parts, self._group_rows, self._text = [], 0, 0


def write(path: Path, values: Iterable[T], cls: type[T]) -> int:
    """Writes `values`, all of type `cls`, and returns their number; the pictures that they show beside them. Raises
    ValueError if one breaks the schema, which is a bug of the stage that made it."""
    with Writer(path, cls) as out:
        for v in values:
            out.add(v)
    return out.n


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """What pyarrow says of a file becomes a sentence."""
    try:
        yield
    except FileNotFoundError:
        raise UserError(f"{path} does not exist: run the stage that writes it (`dvc repro`)") from None
    except (pyarrow.ArrowException, OSError) as e:  # pages that were changed are an OSError without a number
        if getattr(e, "errno", None):
            raise
        raise UserError(f"{path} is not a Parquet file ({e}): {REDO}") from None


def raw(path: Path, columns: list[str] | None = None) -> pyarrow.Table:
    """A Parquet file, unchecked. Raises UserError if it is missing or unreadable."""
    with _readable(path):
        return pyarrow.parquet.read_table(path, columns=columns)


def parts(path: Path, columns: list[str] | None = None, rows: int = READ) -> Iterator[pyarrow.Table]:
    """A Parquet file, unchecked, `rows` rows at a time. Raises UserError if it is missing or unreadable."""
    with _readable(path):
        file = pyarrow.parquet.ParquetFile(path)
    with file:
        batches = file.iter_batches(rows, columns=columns)
        while True:
            with _readable(path):
                batch = next(batches, None)
            if batch is None:
                return
            yield pyarrow.Table.from_batches([batch])


def each(path: Path, cls: type[T], *, checked: bool = False) -> Iterator[T]:
    """The values of a file written by `write`, a part at a time; this process then holds the pictures that they show
    (synth.pictures.HELD). checked: the rows were checked against the schema before. Raises UserError if the file is
    missing, unreadable, of another version, or breaks the schema, once it comes there."""
    keys, shown = _Keys(cls), set[str]()
    for table in parts(path):
        if not checked:
            _sound(table, cls, path, "was read")
            keys.add(table)
        values = _values(table, cls, path)
        if new := pictures.shown_by(values) - shown:
            pictures.load(path, new)
            shown |= new
        yield from values
    keys.check(path, "was read")


def read(path: Path, cls: type[T]) -> list[T]:
    """The values of a file written by `write`, all of them; as `each`."""
    return list(each(path, cls))


class ById(Mapping[str, T]):
    """The values of files written by `write`, by id; they lie on disk and are made anew each time. Of one id the last counts."""

    def __init__(self, paths: Iterable[Path], cls: type[T]) -> None:
        self.cls, self._rows = cls, Lookup[str]()
        for path in paths:
            for value in each(path, cls):
                self._rows[value.id] = json.dumps(to_row(value))  # type: ignore[attr-defined]

    def __getitem__(self, name: str) -> T:
        return from_row(self.cls, json.loads(self._rows[name]))

    def __contains__(self, name: object) -> bool:
        return name in self._rows

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)


def least(
    values: Iterable[T], n: Callable[[Any], int], key: Callable[[T], Any], cell: Callable[[T], Any] = lambda value: ""
) -> dict[Any, list[T]]:
    """Cell -> the first n(cell) of its values in the order of `key` (of equal ones the earlier first), cells in their order. At most
    twice as many are held, and LEAST more."""
    some: dict[Any, list[tuple[Any, int, T]]] = {}
    for i, value in enumerate(values):
        mine = some.setdefault(where := cell(value), [])
        mine.append((key(value), i, value))
        if len(mine) >= 2 * n(where) + LEAST:
            mine.sort()
            del mine[n(where) :]
    return {where: [value for _, _, value in sorted(some[where])[: n(where)]] for where in sorted(some)}


def _values(table: pyarrow.Table, cls: type[T], path: Path) -> list[T]:
    try:
        return [from_row(cls, row) for row in table.to_pylist()]
    except (ValueError, TypeError, KeyError) as e:
        raise UserError(f"{path}: {e}: it is damaged or of another version; {REDO}") from None


class _Keys:
    """Finds a value of a unique column that two parts of a table have: within one, `_sound` does."""

    def __init__(self, cls: type) -> None:
        self.cls = cls
        self.columns = [name for name, c in schema_of(cls).columns.items() if c.unique]
        self.hashes: dict[str, list[np.ndarray]] = {name: [] for name in self.columns}

    def add(self, table: pyarrow.Table) -> None:
        for name in self.columns:
            self.hashes[name].append(np.array([hash(x) for x in table[name].to_pylist()], np.int64))

    def check(self, path: Path, when: str) -> None:
        for name, hashes in self.hashes.items():
            if len(hashes) < 2:
                continue
            every = np.sort(np.concatenate(hashes))
            alike = every[1:][every[1:] == every[:-1]]
            if not len(alike):
                continue
            suspects, seen = set(alike.tolist()), set[str]()  # two values may have the same hash
            for part in parts(path, [name]):
                for x in part[name].to_pylist():
                    if hash(x) in suspects:
                        if x in seen:
                            raise UserError(
                                f"{path} {when} with two rows of {self.cls.__name__} of the same {name}, {x}"
                            )
                        seen.add(x)


def _sound(table: pyarrow.Table, cls: type, path: Path, when: str) -> None:
    if not table.num_rows:
        return
    _, bad = check(table.to_pandas(), schema_of(cls), path.stem)
    if bad:
        raise UserError(
            f"{path} {when} with {len(bad)} bad rows of {cls.__name__}, the first: {bad[0].id}: {bad[0].reason} ({bad[0].evidence})"
        )


def counts(quarantined: Iterable[Quarantined]) -> Mapping[str, int]:
    """Reason code -> number of rows, sorted by code: the part of a card about quarantined rows."""
    out: dict[str, int] = {}
    for q in quarantined:
        out[q.reason] = out.get(q.reason, 0) + 1
    return dict(sorted(out.items()))
