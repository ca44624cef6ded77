"""The stage `demonstrations`: oracle games with the real search tool, and worked answers of the verifiable families."""

# pyright: reportInvalidTypeForm=false
# (a knob that is a piece is annotated with its kind, `Piece("advantage")`, which the plan reads)

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np

from synth.demonstrations.browsing import browsing
from synth.demonstrations.thoughts import with_thoughts
from synth.demonstrations.worked_answer import worked_answer
from synth.questions.oracle import Oracle, replays
from synth.search.index import build_index, pages_of_kb
from synth.search.searchers import World, run
from synth.search.searchers.branch_and_check import branch_and_check
from synth.search.searchers.oracle import oracle as lowest
from synth.types import Demonstration, ListDigest, Problem, Quarantined, Split, seed_for
from synth.verify._unsafe import helps_harm
from tasks.core.errors import UserError, nearest
from tasks.knowledge import knowledge
from tasks.rows import read
from tasks.rows.conversations import conversations
from tasks.rows.spool import Stream
from tasks.planning.pieces import Place
from tasks.runtime.ray_tasks import mapping
from tasks.runtime.stage import Stage
from tasks.storage import tables
from tasks.storage.problems import Problems

SEARCHERS = {"branch_and_check": branch_and_check, "oracle": lowest}


def demonstrations(
    stage: Stage,
    *,
    n: int = 1500,
    n_valid: int = 100,
    n_family: int = 200,
    detour: float = 0.2,
    thoughts: bool = False,
    search_top_k: int = 3,
    n_browse: int = 0,
    n_browse_valid: int = 0,
    searcher: str = "branch_and_check",
    max_calls: int = 30,
    max_context: int = 12000,
    long_calls: int = 5,
    short: float = 0.2,
    files: list = [],  # noqa: B006
    mix: bool = False,
    protect: list = [],  # noqa: B006
    rows_per_shard: Place() = 50_000,
    ray: Place() = "",
    screen: bool = False,
) -> None:
    """Browsing demonstrations, with search, open and find, are made from the runs of a searcher
    (synth/search/searchers).

    Args:
        n: number of questions of the split train that are demonstrated
        n_valid: the same for the split valid, which shows when to stop
        n_family: number of worked answers of each family (train)
        detour: probability that a demonstration contains a query that misses
        thoughts: whether the turns of games begin with thoughts in units, <plan> and <observation> within <think>
        search_top_k: passages per search
        n_browse: browsing demonstrations of the split train
        n_browse_valid: browsing demonstrations of the split valid
        searcher: the searcher whose runs they are made from
        max_calls: most calls of a browsing demonstration
        max_context: most characters of results in it
        long_calls: calls from which one counts as long
        short: largest share of demonstrations that are not long
        files: conversations of your own: files, folders or data sets of the Hub (tasks/rows/read.py has the keys)
        mix: whether demonstrations are also made here, in addition to those of `files`
        protect: files whose texts must not be trained on
        rows_per_shard: rows of `files` that are in memory at once, and that a run which was ended need not read again
            (docs/scaling.md)
        ray: address of a Ray cluster whose machines make shards of `files`: HOST:PORT, or auto (docs/scaling.md); empty: this
            machine does
        screen: whether conversations in which the assistant helps with an unsafe request are quarantined
            (synth/verify/_unsafe.py)
    """
    with mapping(stage, ray if files else "") as imap:
        own = conversations(stage, files, protect, rows_per_shard, imap) if files else None
    theirs = Stream(len(own.rows) + len(own.quarantined), lambda: chain(own.rows, own.quarantined)) if own else ()
    if own and not mix:
        return write(stage, screened(theirs, screen), own, {})
    if not stage.reads("kb"):
        return write(stage, screened(chain(_worked(stage, n_family), theirs), screen), own, {})
    table = stage.input("questions", "problems.parquet")
    search, again = (
        knowledge.search(stage, k=search_top_k),
        knowledge.search(stage, k=search_top_k),
    )  # two indexes, so that a replay cannot read a cache
    oracle = Oracle(knowledge.kb(stage))

    def play(problem: Problem) -> Demonstration | Quarantined:
        rng = random.Random(seed_for(stage.seed, "trajectories", problem.family, problem.split, problem.id))
        item = oracle.play(problem, search, rng=rng, detour=detour)
        if isinstance(item, Demonstration) and not replays(item, again):
            return Quarantined(
                id=problem.id, stage="demonstrations", reason="replay_differs", evidence=problem.question
            )
        return with_thoughts(item) if thoughts and isinstance(item, Demonstration) else item

    finished = stage.finished("games", Demonstration, Quarantined)
    chosen = _drawn(
        (p for p in tables.each(table, Problem) if p.family == "entity_tree" and p.split != "test"),
        lambda split: n if split == "train" else n_valid,
        stage.seed,
        lambda p: p.split,
    )
    items = [finished(p.id, lambda p=p: play(p)) for p in stage.progress(chosen, "oracle")]
    sizes: dict[Split, int] = {"train": n_browse, "valid": n_browse_valid}
    every = tables.each(table, Problem) if any(sizes.values()) else ()
    described = Problems(p for p in every if p.lineage.get("pattern"))
    for split, wanted in sizes.items():
        items += browse(
            stage,
            by_hash(described, split, stage.seed),
            wanted,
            searcher=searcher,
            short=short,
            long_calls=long_calls,
            detour=detour,
            max_calls=max_calls,
            max_context=max_context,
        )
    items += _worked(stage, n_family)
    games = [t for t in items if isinstance(t, Demonstration) and t.calls]
    about = {
        "games": len(games),
        "worked_answers": sum(isinstance(t, Demonstration) for t in items) - len(games),
        "with_detour": sum(t.detours > 0 for t in games),
        "mean_calls": round(sum(t.calls for t in games) / max(1, len(games)), 3),
        **({"browsing": sum(_browses(t) for t in games)} if n_browse or n_browse_valid else {}),
        "gates": {
            "answer": "exact",
            "replay": "byte-equal",
            "repeated_queries": 0,
            "detour": detour,
            "search_top_k": search_top_k,
        },
    }
    write(stage, screened(chain(items, theirs), screen), own, about)


def screened(items: Iterable[Demonstration | Quarantined], screen: bool) -> Iterator[Demonstration | Quarantined]:
    """The items, those whose assistant helps with harm quarantined as "unsafe" if they are screened."""
    for x in items:
        harm = helps_harm(x.messages) if screen and isinstance(x, Demonstration) else ""
        if harm:
            excerpt = " | ".join(m.content for m in x.messages)[:200]  # type: ignore[union-attr]
            x = Quarantined(id=x.id, stage="demonstrations", reason="unsafe", evidence=f"{harm}: {excerpt}")
        yield x


def _worked(stage: Stage, n: int) -> list[Demonstration | Quarantined]:
    """The worked answers of n problems of each family."""
    problems = (p for p in tables.each(stage.input("problems", "problems.parquet"), Problem) if p.split == "train")
    return [worked_answer(p) for p in _drawn(problems, lambda family: n, stage.seed, lambda p: p.family)]


def write(
    stage: Stage, items: Iterable[Demonstration | Quarantined], own: read.ReadRows | None, about: Mapping[str, Any]
) -> None:
    """The tables of the stage, and its card."""
    ids, reasons = ListDigest(), Counter[str]()
    with (
        tables.Writer(stage.out / "demonstrations.parquet", Demonstration) as accepted,
        tables.Writer(stage.out / "quarantine.parquet", Quarantined) as quarantined,
    ):
        for x in items:
            if isinstance(x, Demonstration):
                accepted.add(x)
                ids.add(x.id)
            else:
                quarantined.add(x)
                reasons[x.reason] += 1
    stage.card(
        {
            "produced": accepted.n + quarantined.n,
            "accepted": accepted.n,
            "quarantined": dict(sorted(reasons.items())),
            **about,
            **(read.write(stage, own) if own else {}),
            "demonstrations": ids.name(),
        }
    )
    stage.log({"accepted": accepted.n, "quarantined": quarantined.n, "games": about.get("games", 0)})


def browse(
    stage: Stage,
    problems: Sequence[Problem],
    wanted: int,
    *,
    searcher: str,
    short: float,
    long_calls: int,
    **limits: float,
) -> list[Demonstration | Quarantined]:
    """Up to `wanted` demonstrations with search, open and find, and the quarantined ones; [] if none is wanted."""
    if not wanted:
        return []
    if searcher not in SEARCHERS:
        raise UserError(f"demonstrations: there is no searcher {searcher!r}: {nearest(searcher, SEARCHERS)}")
    kb = knowledge.kb(stage)
    index, world = build_index(pages_of_kb(kb)), World.of(kb)
    finished, items, count, brief = stage.finished("browsing", Demonstration, Quarantined), [], 0, 0

    def play(problem: Problem) -> Demonstration | Quarantined:
        rng = random.Random(seed_for(stage.seed, "trajectories", "browsing", problem.split, problem.id))
        trace = run(SEARCHERS[searcher], problem, index, world)
        return browsing(problem, trace, index, world, rng=rng, **limits)  # type: ignore[arg-type]

    for problem in stage.progress(problems, "browsing"):
        if count == wanted:
            break
        item = finished(problem.id, lambda p=problem: play(p))
        if isinstance(item, Demonstration) and item.calls < long_calls:
            if brief >= short * wanted:
                why = f"{problem.question} | {item.calls} calls"
                item = Quarantined(id=problem.id, stage="demonstrations", reason="too_short", evidence=why)
            else:
                brief += 1
        count += isinstance(item, Demonstration)
        items.append(item)
    return items


def _browses(demonstration: Demonstration) -> bool:
    return any(m.role == "assistant" and m.content.startswith(("<open>", "<find>")) for m in demonstration.messages)


def by_hash(problems: Problems, split: Split, seed: int) -> Problems:
    """The problems of a split in the order of their hashes."""
    mine = problems.where(np.fromiter((p.split == split for p in problems), bool, len(problems)))
    return mine.at(np.argsort(np.fromiter((_hash(seed, p) for p in mine), np.int64, len(mine)), kind="stable"))


def _hash(seed: int, p: Problem) -> int:
    return seed_for(seed, "trajectories", p.family, p.split, p.id)


def _drawn(
    problems: Iterable[Problem], n: Callable[[str], int], seed: int, cell: Callable[[Problem], str]
) -> list[Problem]:
    """n(cell) problems of each cell, chosen by hash (one more problem replaces at most one); the cells in their order."""
    chosen = tables.least(problems, n, lambda p: _hash(seed, p), cell)
    return [p for mine in chosen.values() for p in mine]
