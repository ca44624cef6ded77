"""A knowledge base in its own folder: from sources on disk to tables, SQL, postings, pages to search, and a schema
to edit.

schema.yaml                                  sources (kinds and options, as they were understood) and relations: edit
it, build again
entities, relations, facts, passages, quarantine .parquet, relations.csv        as the stage `kb` writes them
kb.sqlite, postings.npz                      the same facts as tables and as sorted integers
documents.parquet                            the documents themselves, where there are any
index/                                       the search engine over documents and over a page for each entity
doubtful.csv                                 names that may be one, for `espalier kb review`
files.csv                                    what each file gave, of a folder that mixes documents and tables
card.json                                    counts, reasons, density, and the depth of questions that it carries
"""

from __future__ import annotations

import copy
import csv
import json
import shutil
import sqlite3
from collections.abc import Mapping, Sequence
from collections import Counter
from collections.abc import Callable
from dataclasses import fields
from functools import partial, reduce
from operator import getitem
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from synth.knowledge.cells import Cells, read_cells
from synth.knowledge.column_base import ColumnBase
from synth.knowledge.ingest import Built, Reading, build, write_schema
from synth.knowledge.inverses import candidates, inverses
from synth.knowledge.kb import KB, Entity, Fact, Passage, Relation, merge, passages
from synth.knowledge.model_facts import Ask
from synth.knowledge.names import Same
from synth.knowledge.postings import Postings
from synth.knowledge.sources import read_source, words_of
from synth.knowledge.sources.csv_tables import tables_of as csv_tables_of
from synth.knowledge.sources.documents import BY_BOTH, BY_MODEL
from synth.knowledge.sources.records import Lacks
from synth.knowledge.sources.sqlite_tables import tables_of
from synth.knowledge.together import counts_of, place_of, read_together
from synth.knowledge.world import RELATIONS, world
from synth.search.embeddings import embedder
from synth.search.index import Page, SearchIndex, build_index, open_index, pages_of
from synth.types import Quarantined
from tasks.core.errors import UserError
from tasks.knowledge import column_tables
from tasks.knowledge.archives import parted, skipped, unpacked
from tasks.knowledge.guess import completed, guess, sources_at
from tasks.knowledge.knowledge import kb_at, pages_in, pages_of_both
from tasks.knowledge.schema import INVERSE
from tasks.storage import commit, tables

LARGE = 4 << 20  # bytes of a table that is read by columns: the result is the same, with far less memory
DOUBTFUL = "doubtful.csv"  # names that may be one: type, name, other, why
FILES = "files.csv"  # what each file of a folder of documents and tables gave
REMEDY = "build it anew with `espalier kb build`"


def sources_of(paths: Sequence[Path], sources: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Turns paths into sources, with the options of the schema's `sources` in the same order, or guessed ones. Raises
    UserError if the numbers differ."""
    if not paths:
        return sources
    if not sources:
        return [source for path in paths for source in sources_at(path)]
    folders = {source.get("folder") for source in sources}
    whole = len(sources) > 1 or len(paths) == 1 and unpacked(paths[0]).is_dir()
    if len(paths) == 1 and whole and len(folders) == 1 and None not in folders:
        old = str(folders.pop()).rstrip("/")
        return [
            {**s, "path": f"{paths[0]}{s['path'].removeprefix(old).rstrip('/')}", "folder": str(paths[0])}
            for s in sources
        ]
    if len(paths) != len(sources):
        raise UserError(
            f"{len(paths)} sources are named and the schema has {len(sources)}: name as many, in their order, or none"
        )
    return [{**source, "path": str(path)} for path, source in zip(paths, sources, strict=True)]


def are_others(paths: Sequence[Path], sources: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the paths are not those of the schema's `sources`: neither their files, nor their common folder."""
    own = {Path(str(s[key])).resolve() for s in sources for key in ("path", "folder") if s.get(key)}
    return bool(own) and any(path.resolve() not in own for path in paths)


@column_tables.lean()
def build_base(
    sources: Sequence[Mapping[str, Any]],
    out: Path,
    *,
    relations: Mapping[str, Mapping[str, Any]] | None = None,
    countries: int = 0,
    seed: int = 0,
    bad_rows: int | None = None,
    names: Mapping[str, Mapping[str, str]] | None = None,
    elsewhere: bool = False,
    ask: Ask | None = None,
    model: str = "",
    inverse_of: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Read `sources`, write the folder `out` (whole or not at all), and return its card.

    relations   edited fields of relations   countries   of a fictional world in addition to the sources   bad_rows
                the most rows that may be quarantined; None: any number   names   type -> name -> the name that it
    stands for   elsewhere   whether `sources` and `relations` were written for other files: relations that these do not
    have, and options that name what is not there, are then named in the card (`absent`, `absent_options`), and no mistake   ask   a model that reads the paragraphs of documents too, called
    `model`; if it cannot be asked, the base is written without it, and `model.stopped` of the card says why
    inverse_of   what a person says of relations that say the same turned round (`noticed`). Raises
    UserError if no fact is left or too many rows are quarantined, ValueError as the readers.
    """
    sources = [one for source in sources for one in completed(source, Path(source["path"]))]
    absent: list[str] | None = [] if elsewhere else None
    if elsewhere:
        sources = copy.deepcopy(sources)  # what is not there is taken out
    if ask is not None and not any(source["kind"] == "documents" for source in sources):
        raise UserError("a model reads the paragraphs of documents, and no source has any: leave --endpoint out")
    columns = None if countries or names or ask else _columns(sources, relations, elsewhere)
    readings: list[Reading] = []
    built: Built | ColumnBase
    if columns is not None:
        built, relations_of, n_facts = columns[0], columns[0].relations, columns[0].accepted
    else:
        places = [(source, Path(source["path"])) for source in sources]
        readings = read_sources(places, edited=relations, names=names, ask=ask, absent=absent)
        known = RELATIONS if countries else ()
        built = build(readings, known=known, edited=relations, names=names, elsewhere=elsewhere)
        used = {e.name for e in built.kb.entities.values()}
        kb = merge([built.kb] + ([world(countries=countries, seed=seed, avoid=used)] if countries else []))
        relations_of, n_facts = kb.relations, len(kb.facts)
    stopped = next((r.stopped for r in readings if r.stopped), "")
    if not n_facts and stopped:
        raise UserError(f"no fact can be read from the sources without a model, and {stopped}")
    if not n_facts:
        first = f", the first: {built.quarantined[0].evidence[:300]}" if built.quarantined else ""
        raise UserError(
            f"no fact can be read from the sources ({built.produced} rows were quarantined{first}): fix them"
        )
    bad = [q for q in built.quarantined if q.reason != "blank_row" and not q.reason.startswith("model_")]
    if bad_rows is not None and len(bad) > bad_rows:
        raise UserError(
            f"{len(bad)} of {built.produced} rows cannot be used, at most {bad_rows} may (--bad-rows); the first: "
            f"{bad[0].evidence[:300]}"
        )
    part = out.with_name(f".{out.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    if columns is not None:
        card = column_tables.write(part, columns[0], dict(columns[1].missing.most_common()))
        card["skipped"] = _packed_aside(sources[0], Path(sources[0]["path"]))
    else:
        card = write(part, kb, built.quarantined, readings)
    with (part / DOUBTFUL).open("w", encoding="utf-8", newline="") as out_file:
        csv.writer(out_file, lineterminator="\n").writerows([Same._fields, *built.doubtful])
    card |= {"doubtful": len(built.doubtful)} if built.doubtful else {}
    card |= {"absent": list(built.absent)} if built.absent else {}
    card |= {"absent_options": absent} if absent else {}
    if columns is None and any(source.get("folder") for source in sources):
        card["files"] = write_files(part / FILES, kb, files_of(sources), readings, built.quarantined)
    if ask is not None:
        card["model"] = {"name": model, **_by_model(kb, readings), **({"stopped": stopped} if stopped else {})}
    card |= {"produced": built.produced, "accepted": built.accepted, "world": n_facts - built.accepted}
    described = [{**_understood(s), "path": str(s["path"])} for s in sources]
    card |= (turned := noticed(relations_of, lambda: Postings.load(part / "postings.npz"), inverse_of))
    kept = _settled(kb, built) if isinstance(built, Built) else relations_of.values()
    said = {**{n: "" for n in turned.get("apart", ())}, **turned.get("inverse", {})}
    stated = {r.name: _stated(r, built) | ({INVERSE: said[r.name]} if r.name in said else {}) for r in kept}
    schema = {"sources": described, "relations": stated}
    schema |= {"names": {t: dict(some) for t, some in names.items()}} if names else {}
    (part / "schema.yaml").write_text(
        yaml.safe_dump(schema, sort_keys=False, allow_unicode=True, width=140), encoding="utf-8"
    )
    (part / "card.json").write_text(json.dumps(card, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    commit.place(part, out)
    return card


def _by_model(kb: KB, readings: Sequence[Reading]) -> dict[str, Any]:
    """What a model read, in counts, and how many facts of the base have which lineage."""
    counts: Counter[str] = sum((r.by_model for r in readings), Counter())
    by = {"pattern, model": BY_BOTH, "model": BY_MODEL}
    facts = kb.facts.values()
    return {**counts, "lineage": {name: sum(f.source.endswith(mark) for f in facts) for name, mark in by.items()}}


def noticed(
    relations: Mapping[str, Relation], postings: Callable[[], Postings], stated: Mapping[str, str] | None
) -> dict[str, Any]:
    """The part of a card about relations that say the same turned round: `inverse` (relation -> the other), `apart` (those of
    which a person says that they have none), `not_inverse` (those that are said to be, relation -> the other, and are not).
    stated: relation -> the other, "" for none."""
    stated = stated or {}
    apart = sorted(n for n, other in stated.items() if not other and n in relations)
    found = inverses(postings(), apart) if candidates(list(relations.values())) else {}
    wrong = {n: other for n, other in stated.items() if other and found.get(n) != other}
    parts = {"inverse": found, "apart": apart, "not_inverse": wrong}
    return {name: part for name, part in parts.items() if part}


def write_guess(sources: Sequence[Mapping[str, Any]], out: Path) -> tuple[Path, str]:
    """Write the inferred sources of a base that could not be built; returns (the file, the line that most likely has to
    change)."""
    path = out.with_name(f"{out.name}.schema.yaml")
    path.parent.mkdir(parents=True, exist_ok=True)
    text = yaml.safe_dump({"sources": [dict(s) for s in sources]}, sort_keys=False, allow_unicode=True, width=140)
    path.write_text(text, encoding="utf-8")
    lines = [line.strip(" -") for line in text.splitlines()]
    keys = ("id:", "records:", "kind:")
    return path, next(line for key in keys for line in lines if line.startswith(key))


def read_sources(
    sources: Sequence[tuple[Mapping[str, Any], Path]],
    *,
    edited: Mapping[str, Mapping[str, Any]] | None = None,
    names: Mapping[str, Mapping[str, str]] | None = None,
    ask: Ask | None = None,
    absent: list[str] | None = None,
) -> list[Reading]:
    """The readings of (source, where its file is), together (`synth.knowledge.together`). ask: a model for the paragraphs
    of documents; absent: options that name what a source does not have are taken out of it and added there."""
    more = {"documents": {"ask": ask}} if ask is not None else {}
    readers = [(s["kind"], partial(_read, s, path, absent, **more.get(s["kind"], {}))) for s, path in sources]
    readings = read_together(readers, edited=edited, names=names)
    told: set[Path] = set()
    for (source, path), reading in zip(sources, readings, strict=True):
        packed, inside = parted(path)
        if inside is not None and packed not in told:
            told.add(packed)
            reading.skipped |= _packed_aside(source, path)
    return readings


def _as_stated(source: Mapping[str, Any], path: Path, **more: Any) -> Reading:
    options = {k: v for k, v in source.items() if k not in ("kind", "path", "folder", "why")}
    return read_source(unpacked(path), source["kind"], name=str(source["path"]), **options, **more)


def _as_there(source: Any, path: Path, absent: list[str], **more: Any) -> Reading:
    """As `_as_stated`, by the options that name what is there; the others are taken out of the source, and told."""
    while True:
        try:
            reading = _as_stated(source, path, **more)
            if "id" in source and not reading.rows and {q.reason for q in reading.quarantined} == {"missing_name"}:
                raise Lacks(f"no record of {source['path']} has a name at {source['id']!r}", ("id",))
            break
        except Lacks as error:
            named = guess(path).get("id") if error.option == ("id",) else None
            if named is not None and named == source["id"]:
                raise
            _take_out(source, error.option, absent)
            source |= {"id": named} if named else {}
    said = {row.relation for row in reading.rows} | reading.none.keys()
    for relation in [r for r in source.get("fields") or () if r not in said]:
        _take_out(source, ("fields", relation), absent)
    return reading


def _take_out(source: Any, option: Sequence[str | int], absent: list[str]) -> None:
    *within, last = option
    part = reduce(getitem, within, source)
    absent.append(f"{source['path']}: {'.'.join(map(str, option))}")
    del part[last]


def _packed_aside(source: Mapping[str, Any], path: Path) -> dict[str, str]:
    """The members that were not unpacked of the archive in which a source is (there: `path`), and why."""
    name, (_, inside) = str(source["path"]), parted(path)
    name = name.removesuffix(f"/{inside}") if inside is not None and inside.parts else name
    return {f"{name}/{member}": why for member, why in skipped(path).items()}


def _read(source: Mapping[str, Any], path: Path, absent: list[str] | None, **more: Any) -> Reading:
    """One source. A file that was found in a folder and cannot be read is quarantined: the others are read."""
    try:
        return _as_stated(source, path, **more) if absent is None else _as_there(source, path, absent, **more)
    except (ValueError, UserError) as error:
        if "folder" not in source or source["kind"] == "documents":
            raise
        reading = Reading()
        why = f"the file is left out: {source.get('why') or error}"
        reading.quarantine("unreadable", str(source["path"]), why, "")
        return reading


# ---- what every file of a folder gave


class File(NamedTuple):
    """A file below a folder of documents and tables. note: why it gave nothing, or ""."""

    file: str
    things: int
    facts: int
    quarantined: int
    note: str


def files_of(sources: Sequence[Mapping[str, Any]], where: Callable[[str], Path] = Path) -> list[str]:
    """The files below the folders and in the .zip archives in which sources were found, as places name them. `where`:
    where a folder is."""
    out: dict[str, None] = {}
    for folder in dict.fromkeys(str(s["folder"]) for s in sources if s.get("folder")):
        root = unpacked(where(folder))
        for path in sorted(root.rglob("*")):
            if path.is_file() and not any(p.startswith(".") for p in path.relative_to(root).parts):
                out[f"{folder.rstrip('/')}/{path.relative_to(root).as_posix()}"] = None
        out |= {f"{folder}/{member}": None for member in skipped(where(folder))}
    return list(out)


def files(kb: KB, names: Sequence[str], readings: Sequence[Reading], quarantined: Sequence[Quarantined]) -> list[File]:
    """What each file gave: different things, facts, quarantined rows, and why where it gave nothing."""
    known = dict.fromkeys(names)
    counts = counts_of(((f.source, f.subject) for f in kb.facts.values()), known)
    bad: Counter[str] = Counter()
    first: dict[str, str] = {}
    for q in quarantined:
        file = place_of(q.evidence.partition(": ")[0], known)
        bad[file] += 1
        first.setdefault(file, q.evidence.partition(": ")[2][:200].rstrip(" |"))
    skipped = {file: why for r in readings for file, why in r.skipped.items()}
    read = {d.id.partition("#")[0] for r in readings for d in r.documents}
    out = []
    for name in names:
        things, facts = counts[name]
        note = skipped.get(name, "" if facts else first.get(name, ""))
        if not (facts or note):
            note = "searched; no fact can be read from it" if name in read else "no reader knows it"
        out.append(File(name, things, facts, bad[name], note))
    return out


def write_files(path: Path, kb: KB, names: Sequence[str], *read: Any) -> dict[str, int]:
    """Write `files` as a table; returns how many there are, and how many gave facts."""
    some = files(kb, names, *read)
    with path.open("w", encoding="utf-8", newline="") as out:
        csv.writer(out, lineterminator="\n").writerows([File._fields, *some])
    return {"found": len(some), "with facts": sum(f.facts > 0 for f in some)}


def gave(folder: Path, most: int = 20) -> list[str]:
    """Lines for a person: what each file of the folders gave; of many files those with the fewest facts are left out."""
    if not (folder / FILES).is_file():
        return []
    with (folder / FILES).open(encoding="utf-8", newline="") as lines:
        rows = [File(r[0], int(r[1]), int(r[2]), int(r[3]), r[4]) for r in list(csv.reader(lines))[1:]]
    shown = set(sorted(rows, key=lambda f: -f.facts)[:most])
    out = []
    for f in rows:
        if f in shown:
            bad = f", {_count(f.quarantined, 'row')} quarantined" if f.quarantined else ""
            what = f"{_count(f.facts, 'fact')} about {_count(f.things, 'thing')}{bad}" if f.facts else f.note
            out.append(f"  {f.file}: {what}")
    return out + ([f"  and {len(rows) - most:,} more ({FILES})"] if len(rows) > most else [])


def _understood(source: Mapping[str, Any]) -> dict[str, Any]:
    """A source with its inferred, editable options."""
    if source["kind"] == "sqlite_tables" and "tables" not in source:
        return {**source, "tables": tables_of(unpacked(Path(source["path"])), str(source["path"]))}
    if source["kind"] == "csv_tables" and "tables" not in source:
        mark = source.get("delimiter", ",")
        return {**source, "tables": csv_tables_of(unpacked(Path(source["path"])), str(source["path"]), mark)}
    return dict(source)


def _columns(
    sources: Sequence[Mapping[str, Any]], relations: Mapping[str, Mapping[str, Any]] | None, elsewhere: bool
) -> tuple[ColumnBase, Cells] | None:
    """One large table, read by columns; None where the sources are anything else."""
    source = sources[0] if len(sources) == 1 else {}
    if source.get("kind") != "csv_records" or not source.keys() <= {
        "kind",
        "path",
        "type",
        "id",
        "delimiter",
        "missing",
    }:
        return None
    path, options = unpacked(Path(source["path"])), {k: v for k, v in source.items() if k not in ("kind", "path")}
    if not path.is_file() or path.stat().st_size < LARGE:
        return None
    if "missing" in options:
        options["missing"] = words_of(options["missing"])
    cells = read_cells(path, str(source["path"]), **options)
    base = None if cells is None else ColumnBase.of(cells, relations, elsewhere=elsewhere)
    return None if base is None or cells is None else (base, cells)


def _settled(kb: KB, built: Built) -> list[Relation]:
    """The relations that stay whatever a person decides: not those that only pages have that may be records."""
    pages = {f"{type_}:{pair.other}" for pair in built.doubtful for type_ in ("page", "person")}
    others = {f.relation for f in kb.facts.values() if f.subject not in pages} if pages else set(kb.relations)
    return [r for r in kb.relations.values() if r.name in others]


def _stated(relation: Relation, built: Built | ColumnBase) -> dict[str, Any]:
    """A relation for a person to edit, without fields that each build infers again: whether a table lists it
    completely, and how many objects a subject has if names may be merged."""
    left_out = {"name", "complete"} if relation.name in built.listed else {"name"}
    if {relation.domain, relation.range} & {pair.type for pair in built.doubtful}:
        left_out |= {"functional", "inverse_functional"}
    return {f.name: getattr(relation, f.name) for f in fields(relation) if f.name not in left_out}


def write(folder: Path, kb: KB, quarantined: Sequence[Quarantined], readings: Sequence[Reading]) -> dict[str, Any]:
    """Write everything but schema and card; the card is returned."""
    texts = passages(kb)
    tables.write(folder / "entities.parquet", kb.entities.values(), Entity)
    tables.write(folder / "relations.parquet", kb.relations.values(), Relation)
    tables.write(folder / "facts.parquet", kb.facts.values(), Fact)
    tables.write(folder / "passages.parquet", texts, Passage)
    tables.write(folder / "quarantine.parquet", quarantined, Quarantined)
    write_schema(folder / "relations.csv", kb.relations.values())
    connection = sqlite3.connect(folder / "kb.sqlite")
    with connection:
        kb.sqlite(connection)
    connection.close()
    Postings.of(kb).save(folder / "postings.npz")
    documents = [d for reading in readings for d in reading.documents]
    pages = list(pages_of(documents))
    if pages:
        tables.write(folder / "documents.parquet", pages, Page)
    index = build_index(pages_of_both(pages, kb), folder / "index")
    return {
        "entities": len(kb.entities),
        "facts": len(kb.facts),
        "passages": len(texts),
        "quarantined": tables.counts(quarantined),
        "missing": dict(sum((r.missing for r in readings), Counter()).most_common()),
        "skipped": {file: why for r in readings for file, why in r.skipped.items()},
        **({"agreed": agreed} if (agreed := sum(r.agreed for r in readings)) else {}),
        "documents": len(documents),
        "encodings": _counted(d.encoding for d in documents),
        "index": index.size(),
        "density": kb.density(),
        "kb": kb.digest(),
    }


def _counted(values: Any) -> dict[str, int]:
    out: dict[str, int] = {}
    for v in values:
        out[v] = out.get(v, 0) + 1
    return out


# ---- reading it again


def load(folder: Path) -> KB:
    """The knowledge base in a folder, verified. Raises UserError if it is not one or is damaged."""
    _known(folder)
    return kb_at(folder)


def index(folder: Path, *, embeddings: str = "", follow: int = 0) -> SearchIndex:
    """The search engine over a knowledge base in a folder; of one that the stage `kb` wrote the index is made in memory.
    `embeddings`, `follow`: see `SearchIndex.hybrid`; the vectors of an index on disk are kept in `FOLDER.vectors` beside
    the base, which is sealed. Raises UserError for embeddings that are not there."""
    _known(folder)
    stored = (folder / "index").is_dir()
    plain = open_index(folder / "index") if stored else build_index(pages_in(folder))
    if not embeddings and not follow:
        return plain
    try:
        beside = folder.resolve()
        keep = beside.with_name(f"{beside.name}.vectors") if stored else None
        return plain.hybrid(embedder(embeddings) if embeddings else None, follow, keep)
    except ValueError as error:
        raise UserError(str(error)) from error


def card(folder: Path) -> dict[str, Any]:
    _known(folder)
    return commit.read_object(folder / "card.json", remedy="`espalier kb build` writes it anew")


def doubtful(folder: Path) -> list[Same]:
    """The names of a knowledge base that may refer to the same thing."""
    _known(folder)
    if not (folder / DOUBTFUL).is_file():
        return []
    with (folder / DOUBTFUL).open(encoding="utf-8", newline="") as lines:
        return [Same(*row) for row in list(csv.reader(lines))[1:]]


def _known(folder: Path) -> None:
    if not (folder / "facts.parquet").is_file():
        raise UserError(
            f"{folder} holds no knowledge base: `espalier kb build SOURCE --out {folder}` makes one (`dvc repro kb` makes artifacts/kb)"
        )
    commit.check(
        folder,
        remedy=REMEDY
        if folder.name != "kb" or folder.parent.name != "artifacts"
        else "`dvc repro -f kb` makes it anew",
    )


def _count(n: int, one: str, many: str = "") -> str:
    return f"{n:,} {one if n == 1 else many or one + 's'}"


def summary(
    card: Mapping[str, Any], relations: Sequence[Relation] = (), facts: Mapping[str, int] | None = None
) -> list[str]:
    """A card in lines for a person: counts, what was quarantined, density, and what depth of question it can carry."""
    density = card["density"]
    quarantined = card.get("quarantined") or {}
    fact_count, joined = _count(density["facts"], "fact"), f"{density['edges']:,} of them between two entities"
    lines = [f"{_count(density['entities'], 'entity', 'entities')}, {fact_count}, {joined}"]
    if card.get("documents"):
        odd = ", ".join(f"{n} read as {e}" for e, n in card["encodings"].items() if not e.startswith("utf-8"))
        lines.append(f"{_count(card['documents'], 'document')}{f' ({odd})' if odd else ''}")
    if quarantined:
        lines.append(
            f"{_count(sum(quarantined.values()), 'row')} quarantined: {', '.join(f'{n:,} {r}' for r, n in quarantined.items())} (quarantine.parquet)"
        )
    if card.get("skipped"):
        some = [f"{file} ({why})" for file, why in list(card["skipped"].items())[:5]]
        more = f" and {len(card['skipped']) - 5:,} more (card.json)" if len(card["skipped"]) > 5 else ""
        lines.append(f"{_count(len(card['skipped']), 'file')} not read: {', '.join(some)}{more}")
    if card.get("missing"):
        texts = ", ".join(f"{n:,} {text!r}" for text, n in list(card["missing"].items())[:6])
        lines.append(f"{_count(sum(card['missing'].values()), 'value')} missing: {texts}")
    if told := card.get("model"):
        lineage = told["lineage"]
        lines.append(
            f"{told['name']} wrote {_count(told.get('lines', 0), 'line')} about {_count(told.get('sentences', 0), 'sentence')}: "
            f"{_count(lineage['model'], 'fact')} of its own, {lineage['pattern, model']:,} that patterns found too, "
            f"{_count(told.get('malformed', 0), 'line')} in another form; refused lines are quarantined as model_..."
        )
    if card.get("agreed"):
        lines.append(f"{_count(card['agreed'], 'statement')} of documents that a table makes too")
    if card.get("doubtful"):
        lines.append(f"{_count(card['doubtful'], 'pair')} of names may be one thing: `espalier kb review` lists them")
    for a, b in (card.get("inverse") or {}).items():
        if a < b:
            lines.append(
                f"{a} and {b} say the same turned round: questions take a fact from one end alone (inverse_of)"
            )
    for a, b in (card.get("not_inverse") or {}).items():
        lines.append(
            f"{a} is not the inverse of {b}, as the schema says: not all of their pairs are the same turned round"
        )
    walks = ", ".join(f"{share:.0%} of {hops}" for hops, share in density["walks"].items())
    lines.append(
        f"density: {density['edges_per_entity']} edges per entity; entities that begin an unambiguous walk of so many hops: {walks}"
    )
    depth = density["depth"]
    lines.append(
        f"it carries questions of up to {depth} hop{'s' * (depth != 1)}"
        if depth
        else "it carries no questions: no relation leads on from anything"
    )
    for r in relations:
        kind = ", ".join(k for k in ("functional", "inverse_functional", "complete") if getattr(r, k)) or "-"
        lines.append(f"  {r.name:<40} {r.domain} -> {r.range:<12} {(facts or {}).get(r.name, 0):>8,} facts  {kind}")
    return lines
