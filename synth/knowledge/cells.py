"""A CSV table read by columns: each different cell once, and which of them every record has.

The same table as `csv_records` reads, without an object for every cell: a million records need a hundred megabytes
instead of gigabytes. What it does not do (lists in a cell, `fields`, aliases) and what it cannot read is left to
`csv_records`, which says what is wrong: then `read_cells` gives None.
"""

from __future__ import annotations

import csv
import json
from array import array
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow as pa

from synth.knowledge.arrow_texts import TEXT, ArrowTexts, encoded, pc
from synth.knowledge.documents import plain
from synth.knowledge.ingest import BLANK
from synth.knowledge.missing import MISSING
from synth.knowledge.missing import missing as values_missing
from synth.knowledge.missing import says_nothing
from synth.knowledge.rows import quarantine
from synth.knowledge.text import tidy
from synth.types import Quarantined

NONE = -1  # the code of a cell that says nothing
_BATCH = 4096  # rows


@dataclass
class Cells:
    """A table.

    subjects      [records] their names, all different          lines      [records] int32, where each ends in the file
    columns       column -> (different texts, codes [records] int32, NONE where a record says nothing)
    quarantined   rows that are no records          missing    how often each text marked a missing value
    """

    name: str
    type: str
    subjects: ArrowTexts
    lines: np.ndarray
    columns: dict[str, tuple[ArrowTexts, np.ndarray]]
    quarantined: list[Quarantined] = field(default_factory=list)
    missing: Counter[str] = field(default_factory=Counter)

    def place(self, record: int) -> str:
        return f"{self.name} line {self.lines[record]}"


def read_cells(
    path: Path,
    name: str,
    *,
    type: str = "thing",
    id: str = "",
    delimiter: str = ",",
    missing: Collection[str] = MISSING,
) -> Cells | None:
    """The table in a file, with the options of `csv_records`; None where it is not one that can be read by columns."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            table = _read(csv.reader(file, delimiter=delimiter, strict=True), name, delimiter)
    except (OSError, UnicodeDecodeError, csv.Error, ValueError):
        return None
    if table is None:
        return None
    columns, lines, wrong = table
    id = id or next(iter(columns))
    if id not in columns or not len(lines) or "" in columns or "." in id or "*" in id:
        return None
    spellings, codes = columns[id]
    names = spellings.replaced("[<&]", lambda text: tidy(plain(text)))
    told = names.array.dictionary_encode()
    empty = pc.index(told.dictionary, pa.scalar("", TEXT)).as_py()
    nameless = np.isin(told.indices.to_numpy(), [*_gone(ArrowTexts(told.dictionary), missing), *{empty} - {-1}])
    bare = (codes == NONE) | np.append(nameless, True)[codes]
    of = np.append(told.indices.to_numpy(), NONE)[codes]  # which name each record has
    _, first, which = np.unique(of, return_index=True, return_inverse=True)
    kept = ~bare & (first[which] == np.arange(len(of)))
    quarantined = []
    for i in np.flatnonzero(~kept).tolist():
        if bare[i]:
            why = f"the record has no single name at {id!r}: give one, or state its path as `id`"
            quarantined.append(("missing_name", i, why))
        else:
            at = f"{name} line {lines[first[which[i]]]}"
            why = f"the name {names[codes[i]]!r} is already that of {at}: merge the two records, or tell their names apart"
            quarantined.append(("duplicate_record", i, why))
    subjects = names.take(codes[kept])

    def row(i: int) -> str:
        record = {c: texts[codes[i]] for c, (texts, codes) in columns.items() if codes[i] != NONE}
        return json.dumps(record, ensure_ascii=False)

    refused = [quarantine(reason, f"{name} line {lines[i]}", why, row(i)) for reason, i, why in quarantined]
    del first, which, of, bare, told, names, spellings
    cells = Cells(name, type, subjects, lines[kept], {}, refused + wrong)
    gaps: list[tuple[int, int, str, int]] = []  # first record, column, text, how often
    for number, (column, (texts, codes)) in enumerate(columns.items()):
        if column != id:
            texts, codes = compact(texts, codes[kept])
            gone = _gone(texts, missing)
            for code in gone:
                where = np.flatnonzero(codes == code)
                gaps.append((int(where[0]), number, texts[code], len(where)))
                codes[where] = NONE
            if gone:
                texts, codes = compact(texts, codes)
            cells.columns[column] = (texts, codes)
    for _, _, text, times in sorted(gaps):
        cells.missing[text] += times
    return cells


def _gone(texts: ArrowTexts, words: Collection[str]) -> list[int]:
    """The places of the texts of a column that are missing values (`missing.missing`). Only short ones can be: no letter
    becomes fewer in lower case."""
    short = np.flatnonzero(~texts.longer(max(map(len, words), default=0)))
    some = [(i, t) for i, t in zip(short.tolist(), texts.take(short), strict=True) if says_nothing(t, words)]
    gone = values_missing(texts, words) if some else set[str]()
    return [i for i, t in some if t in gone]


def compact(texts: ArrowTexts, codes: np.ndarray) -> tuple[ArrowTexts, np.ndarray]:
    """The texts that occur, in the order of their first records, and the codes for them."""
    some, first = np.unique(codes, return_index=True)
    order = np.argsort(first[some != NONE])
    some = some[some != NONE][order]
    new = np.full(len(texts) + 1, NONE, np.int32)  # the last stands for NONE
    new[some] = np.arange(len(some), dtype=np.int32)
    return texts.take(some), new[codes]


def _read(
    rows: Iterator[list[str]], name: str, delimiter: str
) -> tuple[dict[str, tuple[ArrowTexts, np.ndarray]], np.ndarray, list[Quarantined]] | None:
    """(column -> (texts, codes), the line of every record, rows that are none) of a table."""
    header: list[str] = next((cells for cells in rows if any(map(str.strip, cells))), [])
    columns = [tidy(c) for c in header]
    if not columns or len(set(columns)) < len(columns):
        return None
    lines, wrong, width = array("i"), list[Quarantined](), len(columns)
    parts: list[list[pa.Array]] = [[] for _ in columns]

    def good() -> Iterator[list[str]]:
        for cells in rows:
            line: int = rows.line_num  # type: ignore[attr-defined]
            if len(cells) == width and any(map(str.strip, cells)):
                lines.append(line)
                yield cells
            elif not any(map(str.strip, cells)):
                if cells:
                    wrong.append(quarantine("blank_row", f"{name} line {line}", BLANK, delimiter.join(cells)))
            else:
                why = f"the row has {len(cells)} cells and the header {width}: quote a cell that holds {delimiter!r}"
                wrong.append(quarantine("wrong_columns", f"{name} line {line}", why, delimiter.join(cells)))

    records = good()
    while batch := list(islice(records, _BATCH)):
        for some, cells in zip(parts, zip(*batch, strict=True), strict=True):
            some.append(pa.array(cells, TEXT))
    out = {}
    for column, some in zip(columns, parts, strict=True):
        out[column] = encoded(some, NONE)
        some.clear()
    return out, np.frombuffer(lines, np.int32) if lines else np.zeros(0, np.int32), wrong
