"""Knowledge bases as the stage kb writes them, for tests."""

from __future__ import annotations

from pathlib import Path

from synth.knowledge.kb import KB, Entity, Fact, Passage, Relation, passages
from tasks.storage import tables


def write_base(folder: Path, kb: KB) -> None:
    for name, values, cls in (
        ("entities", kb.entities, Entity),
        ("relations", kb.relations, Relation),
        ("facts", kb.facts, Fact),
    ):
        tables.write(folder / f"{name}.parquet", values.values(), cls)
    tables.write(folder / "passages.parquet", passages(kb), Passage)
