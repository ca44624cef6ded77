"""The knowledge base of the stage `kb`, and the search tool over its passages, for other stages."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import cast

from synth.knowledge.compact import passages_of
from synth.knowledge.kb import KB, Entity, Fact, Passage, Relation
from synth.search.embeddings import embedder
from synth.search.index import Page, pages_of_kb
from tasks.core.errors import UserError
from tasks.knowledge.search_tool import Blank, Search
from tasks.runtime.stage import Stage
from tasks.storage import commit, tables


def kb(stage: Stage, of: type[KB] = KB) -> KB:
    """The entities, relations and facts of artifacts/kb."""
    return read_kb(lambda name: stage.input("kb", name), of)


def read_kb(at: Callable[[str], Path], of: type[KB] = KB) -> KB:
    """A knowledge base of its three tables; `at` gives the path of each. of: `KB`, or `CompactKB` for what asks for few of
    many facts."""
    return of(
        tables.each(at("entities.parquet"), Entity),
        tables.each(at("relations.parquet"), Relation),
        tables.each(at("facts.parquet"), Fact),
    )


def kb_at(folder: Path, of: type[KB] = KB) -> KB:
    """The same for a folder written by the stage `kb` or `espalier kb build`. Raises UserError if it is not one."""
    return read_kb(_held(folder).joinpath, of)


def ranges_at(folder: Path) -> dict[str, str]:
    """Relation -> what its values are (number, year, date, string, or a type of entity), of such a folder."""
    return {r.name: r.range for r in tables.read(_held(folder) / "relations.parquet", Relation)}


def digest_at(folder: Path) -> str:
    """`KB.digest` of such a folder: what its card says, else computed."""
    path = _held(folder) / "card.json"
    card = commit.read_object(path, remedy="build it anew") if path.exists() else {}
    return card["kb"] if isinstance(card.get("kb"), str) else kb_at(folder).digest()


def _held(folder: Path) -> Path:
    if not (folder / "facts.parquet").exists():
        raise UserError(
            f"{folder} holds no knowledge base: `espalier kb build SOURCE --out {folder}` makes one, or `dvc repro kb`"
        )
    return folder


def search(stage: Stage, *, k: int = 3, embeddings: str = "", follow: int = 0) -> Search:
    """The search tool over artifacts/kb/passages.parquet, k passages per query; its pages open too. In a project without
    a knowledge base it finds nothing."""
    return opener(stage, k=k, embeddings=embeddings, follow=follow)()


def opener(stage: Stage, *, k: int = 3, embeddings: str = "", follow: int = 0) -> Callable[[], Search]:
    """What opens the search tool (`search`); another process can be given it."""
    if not stage.reads("kb"):
        return cast(Callable[[], Search], Blank)
    return partial(load, stage.input("kb", "passages.parquet"), k=k, embeddings=embeddings, follow=follow)


def load(path: Path, *, k: int = 3, embeddings: str = "", follow: int = 0) -> Search:
    """The search tool over `passages.parquet` of the stage kb, with the pages of the tables beside it. Raises UserError for
    embeddings that are not there."""
    try:
        embed = embedder(embeddings) if embeddings else None
    except ValueError as error:
        raise UserError(str(error)) from error
    passages = passages_of(tables.each(path, Passage))
    return Search(passages, k=k, pages=lambda: pages_in(path.parent), embed=embed, follow=follow)


def pages_in(folder: Path) -> list[Page]:
    """The pages of a knowledge base in a folder: its documents, where it has any, and its entities
    (`pages_of_both`)."""
    documents = tables.read(folder / "documents.parquet", Page) if (folder / "documents.parquet").exists() else []
    return list(pages_of_both(documents, kb_at(folder)))


def pages_of_both(documents: Sequence[Page], kb: KB) -> Iterator[Page]:
    """A page for each document and for each entity that no document is about. A document keeps its own text; above it
    are the facts of other sources about the same thing (countries.json in addition to the Factbook), below it the facts
    of those sources about things that mention it."""
    titles, read = {d.title for d in documents}, {d.id for d in documents}
    other = [f for f in kb.facts.values() if f.source.rpartition(" chars ")[0] not in read] if documents else []
    beside: dict[str, list[Page]] = {}
    for page in pages_of_kb(KB(kb.entities.values(), kb.relations.values(), other)) if other else ():
        beside.setdefault(page.title, []).append(page)
    for d in documents:
        more = beside.pop(d.title, ())  # of the first document of a title; a table page has a title of its own
        text = "\n".join([p.text for p in more if p.text] + [d.text])
        yield replace(d, text=text, mentions=(*d.mentions, *(line for p in more for line in p.mentions)))
    yield from (p for p in pages_of_kb(kb) if p.title not in titles)
