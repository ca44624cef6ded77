"""The knowledge base of the stage `kb`, and the search tool over its passages, as other stages read them."""

from __future__ import annotations

from pathlib import Path

from synth.kb import KB, Entity, Fact, Relation
from tasks.disk import tables
from tasks.errors import UserError
from tasks.play.search import Search, load
from tasks.stage import Stage

_TABLES = (("entities", Entity), ("relations", Relation), ("facts", Fact))


def kb(stage: Stage) -> KB:
    """The entities, relations and facts of artifacts/kb."""
    return KB(*(tables.read(stage.input("kb", f"{name}.parquet"), cls) for name, cls in _TABLES))


def kb_at(folder: Path) -> KB:
    """The same of a folder, as the stage `kb` and `espalier kb build` write it. Raises UserError where it is none."""
    if not (folder / "facts.parquet").exists():
        raise UserError(f"{folder} holds no knowledge base: `espalier kb build SOURCE --out {folder}` makes one, or `dvc repro kb`")
    return KB(*(tables.read(folder / f"{name}.parquet", cls) for name, cls in _TABLES))


def search(stage: Stage, *, k: int = 3) -> Search:
    """The search tool over artifacts/kb/passages.parquet, k passages per query; its pages open too."""
    return load(stage.input("kb", "passages.parquet"), k=k)
