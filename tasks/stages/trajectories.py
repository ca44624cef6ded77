"""The stage `trajectories`: demonstrations. Oracle games with the real search tool, and worked answers of the verifiable families."""

from __future__ import annotations

import random
from collections.abc import Sequence

from synth.engine import build_index, pages_of_kb
from synth.make.browsing import browsing
from synth.make.oracle import Oracle, replays
from synth.make.worked_answer import worked_answer
from synth.searchers import World, run
from synth.searchers.branch_and_check import branch_and_check
from synth.searchers.oracle import oracle as lowest
from synth.types import Problem, Quarantined, Split, Trajectory, digest, seed_for
from tasks.disk import tables
from tasks.errors import UserError, nearest
from tasks.play import knowledge
from tasks.stage import Stage

SEARCHERS = {"branch_and_check": branch_and_check, "oracle": lowest}


def trajectories(
    stage: Stage,
    *,
    n: int = 1500,
    n_valid: int = 100,
    n_family: int = 200,
    detour: float = 0.2,
    k: int = 3,
    n_browse: int = 0,
    n_browse_valid: int = 0,
    searcher: str = "branch_and_check",
    max_calls: int = 30,
    max_context: int = 12000,
    long_calls: int = 5,
    short: float = 0.2,
) -> None:
    """`n` questions of the split train (`n_valid` of valid, to see when to stop), `n_family` worked answers of each family (train);
    `detour` is the probability that a game contains a query that misses, `k` the passages per search.

    `n_browse` (`n_browse_valid`) demonstrations with search, open and find, made of the runs of a `searcher` (synth/searchers): at most
    `max_calls` calls and `max_context` characters of results each, and a share of at most `short` with fewer than `long_calls` calls."""
    asked = tables.read(stage.input("questions", "problems.parquet"), Problem)
    problems = [p for p in asked if p.family == "entity_tree"]
    families = tables.read(stage.input("problems", "problems.parquet"), Problem)
    search, again = knowledge.search(stage, k=k), knowledge.search(stage, k=k)  # two indexes, so that a replay does not read a cache
    oracle = Oracle(knowledge.kb(stage))

    def play(problem: Problem) -> Trajectory | Quarantined:
        rng = random.Random(seed_for(stage.seed, "trajectories", problem.family, problem.split, problem.id))
        item = oracle.play(problem, search, rng=rng, detour=detour)
        if isinstance(item, Trajectory) and not replays(item, again):
            return Quarantined(id=problem.id, stage="trajectories", reason="replay_differs", evidence=problem.question)
        return item

    finished = stage.finished("games", Trajectory, Quarantined)
    chosen = draw(problems, "train", n, stage.seed) + draw(problems, "valid", n_valid, stage.seed)
    items = [finished(p.id, lambda p=p: play(p)) for p in stage.progress(chosen, "oracle")]
    described = [p for p in asked if p.lineage.get("pattern")]
    for split, wanted in (("train", n_browse), ("valid", n_browse_valid)):
        items += browse(
            stage, draw(described, split, len(described), stage.seed), wanted, searcher=searcher, short=short, long_calls=long_calls,
            detour=detour, max_calls=max_calls, max_context=max_context,
        )  # fmt: skip
    for family in sorted({p.family for p in families}):
        items += [worked_answer(p) for p in draw([p for p in families if p.family == family], "train", n_family, stage.seed)]
    made = [x for x in items if isinstance(x, Trajectory)]
    aside = [x for x in items if isinstance(x, Quarantined)]
    tables.write(stage.out / "trajectories.parquet", made, Trajectory)
    tables.write(stage.out / "quarantine.parquet", aside, Quarantined)
    games = [t for t in made if t.calls]
    stage.card(
        {
            "produced": len(items),
            "accepted": len(made),
            "quarantined": tables.counts(aside),
            "games": len(games),
            "worked_answers": len(made) - len(games),
            "with_detour": sum(t.detours > 0 for t in games),
            "mean_calls": round(sum(t.calls for t in games) / max(1, len(games)), 3),
            **({"browsing": sum(_browses(t) for t in games)} if n_browse or n_browse_valid else {}),
            "gates": {"answer": "exact", "replay": "byte-equal", "repeated_queries": 0, "detour": detour, "search_k": k},
            "trajectories": digest([t.id for t in made]),
        }
    )
    stage.log({"accepted": len(made), "quarantined": len(aside), "games": len(games)})


def browse(
    stage: Stage, problems: Sequence[Problem], wanted: int, *, searcher: str, short: float, long_calls: int, **limits: float
) -> list[Trajectory | Quarantined]:
    """Up to `wanted` demonstrations with search, open and find, and what was set aside on the way; [] where none is wanted."""
    if not wanted:
        return []
    if searcher not in SEARCHERS:
        raise UserError(f"trajectories: there is no searcher {searcher!r}: {nearest(searcher, SEARCHERS)}")
    kb = knowledge.kb(stage)
    engine, world = build_index(pages_of_kb(kb)), World.of(kb)
    finished, items, made, brief = stage.finished("browsing", Trajectory, Quarantined), [], 0, 0

    def play(problem: Problem) -> Trajectory | Quarantined:
        rng = random.Random(seed_for(stage.seed, "trajectories", "browsing", problem.split, problem.id))
        found = run(SEARCHERS[searcher], problem, engine, world)
        return browsing(problem, found, engine, world, rng=rng, **limits)  # type: ignore[arg-type]

    for problem in stage.progress(problems, "browsing"):
        if made == wanted:
            break
        item = finished(problem.id, lambda p=problem: play(p))
        if isinstance(item, Trajectory) and item.calls < long_calls:
            if brief >= short * wanted:
                why = f"{problem.question} | {item.calls} calls"
                item = Quarantined(id=problem.id, stage="trajectories", reason="too_short", evidence=why)
            else:
                brief += 1
        made += isinstance(item, Trajectory)
        items.append(item)
    return items


def _browses(trajectory: Trajectory) -> bool:
    return any(m.role == "assistant" and m.content.startswith(("<open>", "<find>")) for m in trajectory.messages)


def draw(problems: Sequence[Problem], split: Split, n: int, seed: int) -> list[Problem]:
    """`n` problems of a split (all, where it has fewer), chosen by the hash of each: one more problem moves one out at most."""
    return sorted((p for p in problems if p.split == split), key=lambda p: seed_for(seed, "trajectories", p.family, split, p.id))[:n]
