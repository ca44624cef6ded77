"""Records of a spreadsheet (XLSX): one entity in each row, a relation in each column."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from datetime import date, datetime
from pathlib import Path
from typing import Any

from synth.knowledge.missing import MISSING
from synth.knowledge.office import library, whole
from synth.knowledge.rows import Reading
from synth.knowledge.sources.records import mapping, read_grid


def sheet_records(
    path: Path,
    name: str,
    *,
    sheet: str = "",
    type: str = "thing",
    id: str = "",
    key: str = "",
    aliases: str = "",
    split: str = "",
    fields: Mapping[str, Any] | None = None,
    missing: Collection[str] = MISSING,
) -> Reading:
    """Read one sheet; the first row that holds anything is the header, columns without a heading are left out. Of a
    formula the value that was last computed counts. An empty cell states nothing.

    sheet  name of the sheet ("": the first); the other options are those of `csv_records`

    Raises ValueError for a file that is no XLSX, a sheet that is not there, a sheet without rows, or without openpyxl.
    """
    wanted = mapping(name, fields)
    lines = ((place, cells) for _, place, cells in rows(path, name, sheet))
    options = {"type": type, "id": id, "key": key, "aliases": aliases, "split": split, "missing": missing}
    return read_grid(lines, name, delimiter=";", fields=wanted, **options)


def rows(path: Path, name: str, sheet: str = "") -> Iterator[tuple[str, str, list[str]]]:
    """(sheet, place, cells) of the rows of one sheet."""
    openpyxl = library("openpyxl", "a spreadsheet")
    whole(path, name)
    try:
        book = openpyxl.load_workbook(path, read_only=True, data_only=True)
    except (OSError, ValueError, KeyError, openpyxl.utils.exceptions.InvalidFileException) as error:
        raise ValueError(f"{name} is no spreadsheet ({error}): save it as .xlsx, or as CSV") from error
    try:
        if sheet and sheet not in book.sheetnames:
            raise ValueError(f"{name} has no sheet {sheet!r}: its sheets are {', '.join(book.sheetnames)}")
        page = book[sheet or book.sheetnames[0]]
        kept: list[int] = []  # columns with a heading
        for number, cells in enumerate(page.iter_rows(values_only=True), 1):
            texts = [text(c) for c in cells]
            kept = kept or [i for i, t in enumerate(texts) if t.strip()]
            texts += [""] * (max(kept, default=0) + 1 - len(texts))
            yield page.title, f"{name} row {number}", [texts[i] for i in kept]
    finally:
        book.close()


def text(value: Any) -> str:
    """A cell as it would stand in a CSV file."""
    if value is None:
        return ""
    if isinstance(value, datetime) and not (value.hour or value.minute or value.second):
        value = value.date()
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return str(int(value))
    return str(value).lower() if isinstance(value, bool) else str(value)
