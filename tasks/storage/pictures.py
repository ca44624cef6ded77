"""The pictures that a table's messages show, beside it: `problems.parquet` has its pictures in `problems.pictures.parquet`.

Each picture is there once, under its name (the hash of its content), as pixels: a stage that reads the table needs no
decoder and gets the same bytes. They are part of the stage's output, so DVC versions them with the table. Rows are
sorted by name, so the same pictures give the same file.
"""

from __future__ import annotations

import base64
import struct
import zlib
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
SIDE = 128  # pixels of the longer side of a picture in a conversation that is kept for people to read


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


def data_url(pixels: np.ndarray, side: int = SIDE) -> str:
    """A picture [H, W, 3] uint8 as a PNG in a data URL, for the pages of a report and for traces; a larger one by every k-th pixel, so that
    no side has more than `side`. No decoder is needed for it (the extra `vision`)."""
    k = -(-max(pixels.shape[:2]) // side)
    small = np.ascontiguousarray(pixels[::k, ::k])
    height, width, _ = small.shape
    lines = np.concatenate([np.zeros((height, 1), np.uint8), small.reshape(height, -1)], axis=1)  # 0: no filter
    chunks = (
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)),  # 8 bits of red, green and blue
        (b"IDAT", zlib.compress(lines.tobytes(), 9)),
        (b"IEND", b""),
    )
    told = (struct.pack(">I", len(x)) + name + x + struct.pack(">I", zlib.crc32(name + x)) for name, x in chunks)
    whole = b"\x89PNG\r\n\x1a\n" + b"".join(told)
    return f"data:image/png;base64,{base64.b64encode(whole).decode()}"
