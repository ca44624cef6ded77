"""The pictures that a table's messages show, beside it: `problems.parquet` has its pictures in `problems.pictures.parquet`.

Each picture is there once, under its name (the hash of its content), as pixels: a stage that reads the table needs no
decoder and gets the same bytes. They are part of the stage's output, so DVC versions them with the table. Rows are
sorted by name, so the same pictures give the same file.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet

from tasks.core.errors import UserError
from synth.pictures import HELD, Pictures, name_of

SCHEMA = pyarrow.schema(
    [
        ("name", pyarrow.string()),
        ("height", pyarrow.int64()),
        ("width", pyarrow.int64()),
        ("rgb", pyarrow.binary()),
    ]
)
ROWS = 64  # pictures in memory twice while a file is read


def beside(table: Path) -> Path:
    """Where the pictures of a table are."""
    return table.with_name(f"{table.stem}.pictures.parquet")


def shown_by(values: Iterable[Any]) -> set[str]:
    """The names of the pictures in the messages of values (their `prompt` or `messages`)."""
    return {
        name
        for value in values
        for messages in (getattr(value, "prompt", ()), getattr(value, "messages", ()))
        for message in messages
        for name in getattr(message, "media", ())
    }


def write(table: Path, names: Iterable[str], held: Pictures = HELD) -> None:
    """Writes the pictures of these names beside the table; none: no file. Raises LookupError for one not held."""
    path, names = beside(table), sorted(set(names))
    if not names:
        path.unlink(missing_ok=True)
        return
    with pyarrow.parquet.ParquetWriter(path, SCHEMA, compression="zstd") as file:
        for lo in range(0, len(names), ROWS):
            part = [(n, held.of(n)) for n in names[lo : lo + ROWS]]
            rows = [{"name": n, "height": x.shape[0], "width": x.shape[1], "rgb": x.tobytes()} for n, x in part]
            file.write_table(pyarrow.Table.from_pylist(rows, schema=SCHEMA))


def load(table: Path, names: Iterable[str], held: Pictures = HELD) -> None:
    """Holds the pictures beside a table. Raises UserError where the file is missing, damaged or lacks one of `names`."""
    path, wanted = beside(table), set(names)
    if not wanted:
        return
    remedy = "re-run the stage that writes it (`dvc repro`)"
    if not path.exists():
        raise UserError(f"{table} shows {len(wanted)} pictures, and {path.name} is not beside it: {remedy}")
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            for part in file.iter_batches(ROWS):
                for row in part.to_pylist():
                    pixels = np.frombuffer(row["rgb"], np.uint8).reshape(row["height"], row["width"], 3)
                    if name_of(pixels) != row["name"]:
                        raise ValueError(f"the pixels of picture {row['name'][:13]} are not those of its name")
                    wanted.discard(held.add(pixels))
    except (pyarrow.ArrowException, OSError, ValueError, KeyError, TypeError) as e:
        if isinstance(e, OSError) and e.errno:
            raise
        raise UserError(f"{path} cannot be read ({e}): {remedy}") from None
    if wanted:
        raise UserError(f"{path} lacks the picture {min(wanted)[:13]} that a row of {table.name} shows: {remedy}")
