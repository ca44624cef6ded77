"""Records of a Parquet, Arrow (IPC) or Feather file: one entity in each row, a relation in each column."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import ipc, parquet

from synth.knowledge.missing import MISSING
from synth.knowledge.rows import Reading
from synth.knowledge.sources.records import mapping, read_records


def arrow_records(
    path: Path,
    name: str,
    *,
    type: str = "thing",
    id: str = "name",
    key: str = "",
    aliases: str = "",
    fields: Mapping[str, Any] | None = None,
    missing: Collection[str] = MISSING,
) -> Reading:
    """Read a table; the options are those of `json_records`. Lists and structures are read like those of JSON, bytes
    state nothing. Raises ValueError for a file that is none of these formats, and for one without rows."""
    wanted = mapping(name, fields)
    try:
        table = parquet.read_table(path) if path.suffix.lower() == ".parquet" else _ipc(path)
    except (pa.ArrowInvalid, OSError) as error:
        what = " ".join(str(error).split())[:200]
        raise ValueError(f"{name} is no Parquet or Arrow file ({what}): fix it, or the path of this source") from error
    if not table.num_rows:
        raise ValueError(f"{name} is a source without rows: add rows, or take it out of the list of sources")
    records = [(f"{name} row {i}", _plain(row)) for i, row in enumerate(table.to_pylist(), 1)]
    return read_records(records, type=type, id=id, key=key, aliases=aliases, fields=wanted, missing=missing)


def _ipc(path: Path) -> pa.Table:
    with pa.memory_map(str(path)) as source:
        try:
            return ipc.open_file(source).read_all()
        except pa.ArrowInvalid:
            source.seek(0)
            return ipc.open_stream(source).read_all()


def _plain(value: Any) -> Any:
    """A value as JSON would have it."""
    if isinstance(value, Mapping):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_plain(v) for v in value]
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return f"{value:f}"
    return None if isinstance(value, bytes) else value
