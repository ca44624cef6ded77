"""The stage `kb`: the user's sources and a fictional world become entities, relations, facts and passages."""

from __future__ import annotations

import sys
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeVar

from synth.knowledge.compact import CompactKB
from synth.knowledge.ingest import Built, Reading, build, write_schema
from synth.knowledge.kb import KB, Entity, Fact, Passage, Relation, each_passage, merge
from synth.knowledge.postings import Postings
from synth.knowledge.world import RELATIONS, told, world
from synth.search.index import Page, pages_of
from synth.types import Quarantined
from tasks.core.errors import UserError
from tasks.knowledge import bases
from tasks.knowledge.archives import parted
from tasks.knowledge.guess import completed
from tasks.knowledge.schema import read_inverses, read_names, read_schema
from tasks.runtime.stage import Stage
from tasks.storage import tables

T = TypeVar("T")


def kb(
    stage: Stage,
    *,
    sources: list = [{"kind": "csv_triples", "path": "data/atlas"}],
    world_countries: int = 120,  # noqa: B006 (read by ast)
    passage_objects: int = 4,
    bad_rows: int = 0,
    schema: str = "",
) -> None:
    """Reads the sources and makes the knowledge base.

    Args:
        sources: sources to read: paths, or {path, kind, and the options of that reader in synth/knowledge/sources};
            without `kind` it is guessed from the file
        world_countries: size of the fictional world in countries; 0: no world
        passage_objects: most objects in one passage; further objects go into another passage
        bad_rows: how many rows of the sources may be quarantined; with more the stage stops
        schema: a schema.yaml of `espalier kb build`: its relations take precedence over the sources, and its sources
            are read if `sources` is empty
    """
    listed, relations = read_schema(stage.source(schema)) if schema else ([], {})
    sources = sources or listed
    sources = [one for i, source in enumerate(sources) for one in _source(stage, i, source)]
    decided = read_names(stage.source(schema)) if schema else None
    readings = _read(stage, sources, relations, decided)
    built = build(readings, known=RELATIONS if world_countries else (), edited=relations, names=decided)
    tables.write(stage.out / "quarantine.parquet", built.quarantined, Quarantined)
    _refuse(stage, built, bad_rows, brought=bool(sources))
    if world_countries and not sources:
        whole = _world(stage, world_countries)
    else:
        names = {e.name for e in built.kb.entities.values()}
        more = [world(countries=world_countries, seed=stage.seed, avoid=names)] if world_countries else []
        whole = merge([built.kb, *more])
        tables.write(stage.out / "entities.parquet", whole.entities.values(), Entity)
        tables.write(stage.out / "facts.parquet", whole.facts.values(), Fact)
    if not whole.facts:
        raise UserError(
            "kb: there are no facts: name a source under kb.sources, or set kb.world_countries to 3 or more"
        )
    tables.write(stage.out / "relations.parquet", whole.relations.values(), Relation)
    words = array("i")
    with tables.Writer(stage.out / "passages.parquet", Passage) as texts:
        for passage in each_passage(whole, objects=passage_objects):
            texts.add(passage)
            words.append(len(passage.text.split()))
    # the user can copy it beside the data and edit it
    write_schema(stage.out / "relations.csv", whole.relations.values())
    documents = [page for reading in readings for page in pages_of(reading.documents)]
    if documents:
        tables.write(stage.out / "documents.parquet", documents, Page)
    card = {
        "produced": built.produced + len(whole.facts) - built.accepted,
        "accepted": len(whole.facts),
        "quarantined": tables.counts(built.quarantined),
        "sources": [{**s, "rows": len(r.rows) + len(r.quarantined)} for s, r in zip(sources, readings)],
        **_files(stage, whole, sources, readings, built),
        "missing": dict(sum((r.missing for r in readings), Counter()).most_common()),
        "world": {"countries": world_countries, "facts": len(whole.facts) - built.accepted},
        "density": whole.density(),
        "relations": whole.n_facts(),
        "passages": {"rows": texts.n, "mean_words": round(sum(words) / len(words), 2), "max_words": max(words)},
        "gates": {"bad_rows": bad_rows},
        "kb": whole.digest(),
        **bases.noticed(
            whole.relations,
            lambda: Postings.of(whole),
            read_inverses(stage.source(schema)) if schema else None,
        ),
    }
    stage.card(card)
    stage.log(
        {
            "entities": len(whole.entities),
            "facts": len(whole.facts),
            "passages": texts.n,
            "quarantined": len(built.quarantined),
        }
    )


def _source(stage: Stage, i: int, source: str | dict) -> list[dict]:
    """A source as it is read, with what was not written guessed from its file; a folder may be several."""
    path = source.get("path") if isinstance(source, dict) else source
    kind = source.get("kind", "") if isinstance(source, dict) else ""
    if not isinstance(path, str) or not isinstance(kind, str):
        raise UserError(
            f"kb.sources[{i}] = {source!r} must say what to read, for example data/mine.csv, or "
            "{kind: csv_triples, path: data/mine.csv}"
        )
    return completed(source, stage.source(path))


def _read(stage: Stage, sources: list[dict], relations: dict, decided: dict | None) -> list[Reading]:
    places = [_place(stage, source["path"]) for source in sources]
    readings = bases.read_sources(list(zip(sources, places, strict=True)), edited=relations, names=decided)
    for source, path, reading in zip(sources, places, readings, strict=True):
        if not reading.rows and not reading.quarantined:
            print(f"kb: {source['path']}: {_nothing(reading)}", file=sys.stderr)
        if path.is_relative_to(stage.root):
            stage.dataset(parted(path)[0], len(reading.rows) + len(reading.quarantined))
    return readings


def _place(stage: Stage, path: str) -> Path:
    """Where a source is; one in an archive ("data/museum.zip/rooms.xlsx") where its archive is."""
    packed, inside = parted(stage.root / path)
    return stage.source(path) if inside is None else stage.source(packed) / inside


def _files(stage: Stage, kb: KB, sources: list[dict], readings: list[Reading], built: Built) -> dict:
    """What each file gave, if a source was a folder of documents and tables."""
    names = bases.files_of(sources, stage.source)
    some = bases.files(kb, names, readings, built.quarantined) if names else []
    return {"files": [f._asdict() for f in some]} if some else {}


def _nothing(reading: Reading) -> str:
    """Explains why a source has no row."""
    if not reading.documents:
        return "no row of it states a fact"
    return (
        f"no fact can be read from its {len(reading.documents):,} documents: they are searched, and nothing is asked about them; "
        "facts are lines such as `Born: 1956`, tables of two columns and some forms of sentences (docs/knowledge.md)"
    )


def _refuse(stage: Stage, built: Built, bad_rows: int, *, brought: bool) -> None:
    """Raises UserError if more rows were quarantined than the user allows, or none is left.

    The quarantine file stays in the work folder.
    """
    n = len(built.bad)
    if brought and not built.produced:
        raise UserError(
            "no fact can be read from kb.sources: the lines above say why; name other files, or take them out"
        )
    if n > bad_rows or (brought and not built.accepted):
        remedy = (
            f"fix them, or set kb.bad_rows to {n} to go on without them"
            if built.accepted
            else "fix them: no row is left"
        )
        where = (stage.out / "quarantine.parquet").relative_to(stage.root)
        raise UserError(
            f"{n} of {built.produced} rows of the sources cannot be used (all in {where}): {remedy}; the first: "
            f"{(built.bad or built.quarantined)[0].evidence[:500]}"
        )


def _world(stage: Stage, countries: int) -> CompactKB:
    """A world alone, for as many countries as there is disk: its facts are written as they are told, and columns of them kept."""
    entities, facts = told(countries=countries, seed=stage.seed)
    with (
        tables.Writer(stage.out / "entities.parquet", Entity) as things,
        tables.Writer(stage.out / "facts.parquet", Fact) as said,
    ):
        return CompactKB(_written(entities, things), RELATIONS, _written(facts, said))


def _written(values: Iterable[T], table: tables.Writer[T]) -> Iterator[T]:
    for value in values:
        table.add(value)
        yield value
