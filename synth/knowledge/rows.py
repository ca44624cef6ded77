"""The result of a reader of a source: statements as rows of text, what could not be read, and what the source states
about itself."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from synth.types import Quarantined, digest

if TYPE_CHECKING:
    from synth.knowledge.documents import Document
    from synth.knowledge.names import Same

STAGE = "kb"


@dataclass(frozen=True, kw_only=True)
class Row:
    """One statement of a source: three names (or a literal object), types if stated, the place, and the text found
    there."""

    subject: str
    relation: str
    object: str
    subject_type: str = ""
    object_type: str = ""
    source: str
    span: str


@dataclass(kw_only=True)
class Reading:
    """What a reader read from one source.

    rows         statements, in order
    quarantined  rows that could not be read as a statement
    schema       relation name -> the fields of `Relation` that the source states
    closed       whether `schema` is the whole schema, so that another relation is a mistake
    aliases      (type, name) -> other names
    documents    the pages themselves, if the source has any: for the search engine
    titles       title -> type, of the pages
    listed       entity type -> the names of its records, if the source is a table: there are assumed to be no others
    none         relation -> subjects that the source states to have no object (an empty list)
    missing      how often each text marked a missing value
    skipped      files that were not read, and why
    columns      relation -> the column from which it was read, if its name differs
    guess        whether the source is a table whose columns have to be inferred (`columns.understand`)
    understood   whether they have been
    agreed       statements that another source makes too, and that are left to it
    doubtful     names that may be a name of another source
    by_model     what a model read off the paragraphs, in counts; empty if none was asked
    stopped      why it was not asked to the end
    """

    rows: list[Row] = field(default_factory=list)
    quarantined: list[Quarantined] = field(default_factory=list)
    schema: dict[str, dict[str, object]] = field(default_factory=dict)
    closed: bool = False
    aliases: dict[tuple[str, str], tuple[str, ...]] = field(default_factory=dict)
    documents: list[Document] = field(default_factory=list)
    titles: dict[str, str] = field(default_factory=dict)
    listed: dict[str, set[str]] = field(default_factory=dict)
    none: dict[str, set[str]] = field(default_factory=dict)
    missing: Counter[str] = field(default_factory=Counter)
    skipped: dict[str, str] = field(default_factory=dict)
    columns: dict[str, str] = field(default_factory=dict)
    guess: bool = False
    understood: bool = False
    agreed: int = 0
    doubtful: list[Same] = field(default_factory=list)
    by_model: Counter[str] = field(default_factory=Counter)
    stopped: str = ""

    def quarantine(self, reason: str, source: str, why: str, span: str) -> None:
        """Put a row into the quarantine."""
        self.quarantined.append(quarantine(reason, source, why, span))


def quarantine(reason: str, source: str, why: str, span: str) -> Quarantined:
    """A quarantined row; `why` is a sentence with the remedy, `span` the whole row."""
    return Quarantined(
        id=digest(reason, source, span)[:20], stage=STAGE, reason=reason, evidence=f"{source}: {why} | {span}"
    )
