"""Readers of sources, one file and one function each: `READERS` lists the kinds there are."""

from __future__ import annotations

import difflib
import inspect
from pathlib import Path
from typing import Any, Protocol

from synth.knowledge.ingest import Reading
from synth.knowledge.missing import MISSING, drop_missing
from synth.knowledge.sources.arrow_records import arrow_records
from synth.knowledge.sources.csv_records import csv_records
from synth.knowledge.sources.csv_tables import csv_tables
from synth.knowledge.sources.csv_triples import csv_triples
from synth.knowledge.sources.documents import documents
from synth.knowledge.sources.json_records import json_records
from synth.knowledge.sources.jsonl_triples import jsonl_triples
from synth.knowledge.sources.rdf_triples import rdf_triples
from synth.knowledge.sources.sheet_records import sheet_records
from synth.knowledge.sources.sqlite_tables import sqlite_tables


class SourcePiece(Protocol):
    """Reads a user's facts or documents.

    Args:
        path: the file or folder
        name: its name in all messages

    Returns:
        what was read, and what was quarantined, with the reasons. Raises ValueError for a file that is missing, empty
            or of another kind
    """

    def __call__(self, path: Path, name: str) -> Reading: ...


READERS = {
    reader.__name__: reader
    for reader in (
        csv_triples,
        jsonl_triples,
        rdf_triples,
        csv_records,
        json_records,
        arrow_records,
        sheet_records,
        sqlite_tables,
        csv_tables,
        documents,
    )
}


def read_source(path: Path | str, kind: str, *, name: str = "", **options: Any) -> Reading:
    """Read one source of a kind in READERS. `options`: the reader's keyword-only arguments; `name` replaces the path in
    all messages.

    `missing`: the texts that mark a missing value, instead of `synth.knowledge.missing.MISSING`; for any kind.

    Raises ValueError for an unknown kind or option, and for a source that is missing, empty, not UTF-8, or not of its
    kind.
    """
    words = words_of(options.pop("missing", MISSING))
    reader = READERS.get(kind)
    if reader is None:
        near = difflib.get_close_matches(kind, READERS, 1, 0.0)[0]
        raise ValueError(f"there is no kind of source {kind!r} (nearest: {near!r}): the kinds are {', '.join(READERS)}")
    allowed = [p.name for p in inspect.signature(reader).parameters.values() if p.kind is p.KEYWORD_ONLY]
    for option in options:
        if option not in allowed:
            listed = ", ".join(dict.fromkeys((*allowed, "missing")))
            raise ValueError(f"a source of kind {kind!r} has no option {option!r}: its options are {listed}")
    if "missing" in allowed:
        options["missing"] = words
    reading = reader(Path(path), name or str(path), **options)
    drop_missing(reading, words)
    return reading


def words_of(given: Any) -> frozenset[str]:
    """The option `missing`, checked. Raises ValueError for anything but a list of texts."""
    if isinstance(given, str) or not all(isinstance(w, str) for w in given):
        raise ValueError(f"`missing` of a source is {given!r}: write a list of texts, with quotes: ['', '-', 'n/a']")
    return frozenset(w.strip().casefold() for w in given)
