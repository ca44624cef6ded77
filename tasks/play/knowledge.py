"""The knowledge base of the stage `kb`, and the search tool over its passages, as other stages read them."""

from __future__ import annotations

from synth.kb import KB, Entity, Fact, Passage, Relation
from tasks.disk import tables
from tasks.play.search import Search
from tasks.stage import Stage


def kb(stage: Stage) -> KB:
    """The entities, relations and facts of artifacts/kb."""
    return KB(
        *(
            tables.read(stage.input("kb", f"{name}.parquet"), cls)
            for name, cls in (("entities", Entity), ("relations", Relation), ("facts", Fact))
        )
    )


def search(stage: Stage, *, k: int = 3) -> Search:
    """The search tool over artifacts/kb/passages.parquet, k passages per query."""
    return Search(tables.read(stage.input("kb", "passages.parquet"), Passage), k=k)
