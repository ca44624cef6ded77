"""Measures how hard questions are: with every searcher on every question (synth/search/searchers) and, if one is named,
a model.

Bands, for a curriculum: `trivial` if a guess, one search or a naive searcher answers the question; then, by the model's
share of right answers, `hard` (below 1/4), `learnable` (up to 3/4, where a group of rollouts disagrees) and `easy`;
without a model, by the calls of branch and check, `short` (below 5), `medium` (below 10) and `long`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from synth.search.index import SearchIndex, build_index, open_index, pages_of_kb
from synth.search.searchers import World, run
from synth.search.searchers.branch_and_check import branch_and_check
from synth.search.searchers.oracle import oracle
from synth.search.searchers.shallow import closed_book, greedy, one_search
from synth.types import Problem, Scored
from tasks.core.errors import UserError
from tasks.knowledge.knowledge import kb_at
from tasks.knowledge.stored import Stored

SEARCHERS = {s.__name__: s for s in (closed_book, one_search, greedy, oracle, branch_and_check)}
BANDS = ("trivial", "easy", "learnable", "hard", "short", "medium", "long")


def measure(
    folder: Path,
    problems: Sequence[Problem],
    *,
    most: int = 600,
    rates: Mapping[str, float] | None = None,
    progress: Callable = lambda x: x,
) -> list[dict[str, Any]]:
    """One row per question: id, family, split, depth, level, right and calls of every searcher, the model's rate, and
    the band.

    folder   of the knowledge base   most   calls of a searcher   rates   problem id -> share of right answers of a
    model. Raises UserError if a question has no pattern, or names something that the knowledge base does not hold.
    """
    index, world = _searched(folder)
    rows = []
    for p in progress(problems):
        row: dict[str, Any] = {
            "id": p.id,
            "family": p.family,
            "split": p.split,
            "hops": int(p.difficulty.get("hops", 0)),
            "level": int(p.difficulty.get("level", 0)),
        }
        for name, searcher in SEARCHERS.items():
            try:
                outcome = run(searcher, p, index, world, most=most)
            except LookupError as error:
                raise UserError(
                    f"question {p.id} cannot be measured with the knowledge base in {folder} ({error}): name the one that it was grown from"
                ) from error
            row |= {name: outcome.right, f"{name}_calls": outcome.calls}
        row["rate"] = None if rates is None else rates.get(p.id)
        rows.append(row | {"band": band(row)})
    return rows


def _searched(folder: Path) -> tuple[SearchIndex, World]:
    """The pages of a knowledge base, and what searchers know of it; from its files, where its own index holds no
    documents beside them."""
    if not Stored.there(folder):
        kb = kb_at(folder)
        return build_index(pages_of_kb(kb)), World.of(kb)
    world = Stored(folder).world()
    if (folder / "index").is_dir() and not (folder / "documents.parquet").exists():
        return open_index(folder / "index"), world
    return build_index(pages_of_kb(kb_at(folder))), world


def band(row: Mapping[str, Any]) -> str:
    """The band of a question; see the docstring of this module."""
    if any(row[s] for s in ("closed_book", "one_search", "greedy")):
        return "trivial"
    if row["rate"] is not None:
        return "hard" if row["rate"] < 0.25 else "learnable" if row["rate"] <= 0.75 else "easy"
    calls = row["branch_and_check_calls"]
    return "short" if calls < 5 else "medium" if calls < 10 else "long"


def summary(rows: Iterable[Mapping[str, Any]]) -> list[list[str]]:
    """A table with one line for each depth and fuzz level: the share that each searcher answers, its calls, and the
    model's rate."""
    cells: dict[tuple[int, int], list[Mapping[str, Any]]] = {}
    for row in rows:
        cells.setdefault((row["hops"], row["level"]), []).append(row)
    out = [["depth", "level", "n", *(s.replace("_", " ") for s in SEARCHERS), "oracle calls", "branch calls", "model"]]
    for (hops, level), some in sorted(cells.items()):
        shares = [f"{np.mean([r[s] for r in some]):.0%}" for s in SEARCHERS]
        calls = [f"{np.mean([r[f'{s}_calls'] for r in some]):.1f}" for s in ("oracle", "branch_and_check")]
        rates = [r["rate"] for r in some if r["rate"] is not None]
        out.append(
            [str(hops), str(level or "-"), str(len(some)), *shares, *calls, f"{np.mean(rates):.0%}" if rates else "-"]
        )
    return out


def pass_rates(
    root: Path, model: str, folder: Path, problems: Sequence[Problem], samples: int, *, seed: int = 0
) -> dict[str, float]:
    """Problem id -> share of `samples` rollouts of a model (temperature 1) that are right, as the stage evaluate would
    play them."""
    from tasks.results.chat import Chat  # torch and transformers, imported only if a model is asked

    groups = Chat(root, model, kb=folder, temperature=1.0, seed=seed).play(problems, samples)
    scores = {g.rollouts[0].problem.id: [r.score for r in g.rollouts] for g in groups}
    return {
        i: float(np.mean([s.value >= 0.999 for s in some if isinstance(s, Scored)] or [0.0]))
        for i, some in scores.items()
    }
