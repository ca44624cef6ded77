"""The stage `trajectories`: demonstrations. Oracle games with the real search tool, and worked answers of the verifiable families."""

from __future__ import annotations

import random
from collections.abc import Sequence

from synth.make.oracle import Oracle, replays
from synth.make.worked_answer import worked_answer
from synth.types import Problem, Quarantined, Split, Trajectory, digest, seed_for
from tasks.disk import tables
from tasks.play import knowledge
from tasks.stage import Stage


def trajectories(stage: Stage, *, n: int = 1500, n_valid: int = 100, n_family: int = 200, detour: float = 0.2, k: int = 3) -> None:
    """`n` questions of the split train (`n_valid` of valid, to see when to stop), `n_family` worked answers of each family (train);
    `detour` is the probability that a game contains a query that misses, `k` the passages per search."""
    problems = [p for p in tables.read(stage.input("questions", "problems.parquet"), Problem) if p.family == "entity_tree"]
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
            "gates": {"answer": "exact", "replay": "byte-equal", "repeated_queries": 0, "detour": detour, "search_k": k},
            "trajectories": digest([t.id for t in made]),
        }
    )
    stage.log({"accepted": len(made), "quarantined": len(aside), "games": len(games)})


def draw(problems: Sequence[Problem], split: Split, n: int, seed: int) -> list[Problem]:
    """`n` problems of a split (all, where it has fewer), chosen by the hash of each: one more problem moves one out at most."""
    return sorted((p for p in problems if p.split == split), key=lambda p: seed_for(seed, "trajectories", p.family, split, p.id))[:n]
