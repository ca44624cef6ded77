"""The stage `preferences`: pairs of the SFT model's own answers, ranked by verifiers, and pairs whose rejected side has
one planted, verified error. The training pairs also get planted label noise.

Pairs of the split train are delivered as an annotator would deliver them: some labels are swapped, some pairs occur
twice, and there is no verified margin. The truth is in truth.parquet, which no cleaner reads. Pairs of the split valid
keep their verified labels, for evaluation.
"""

# pyright: reportInvalidTypeForm=false
# (a knob that is a piece is annotated with its kind, `Piece("advantage")`, which the plan reads)

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np

from synth.knowledge.kb import Entity, Relation
from synth.preferences.flawed import Flawed
from synth.preferences.injected_errors import injected_errors
from synth.preferences.label_noise import Planted, label_noise
from synth.preferences.making import once
from synth.preferences.noise_kinds import ANNOTATORS
from synth.preferences.wrong_turns import World, wrong_turns
from synth.types import Demonstration, ListDigest, PreferencePair, Problem, Quarantined, seed_for
from tasks.core.errors import UserError
from tasks.knowledge import knowledge
from tasks.rows import read
from tasks.rows.pairs import pairs as own_pairs
from tasks.planning.pieces import Pieces, Place
from tasks.planning.settings import RolloutSampling
from tasks.runtime.stage import Stage
from tasks.storage import tables
from tasks.storage.problems import Problems

RENAMED = {  # former knobs -> what to write now
    "search_top_k": "sampling: {search_top_k: ...}",
    "per_trajectory": "pairs_per_demonstration: ...",
}
VOTERS = ("expert", "careless", "expert", "careless", "lazy", "malicious")
ONLY_WITH = {"tasks.models.own_answers": "sampled_problems"}  # imported only where this knob is set: read by the plan


def preferences(
    stage: Stage,
    *,
    sampled_problems: int = 600,
    sampled_valid: int = 60,
    samples_per_prompt: int = 8,
    pairs_per_problem: int = 2,
    sampling: RolloutSampling = RolloutSampling(),
    device: str = "cpu",
    dtype: str = "float32",
    envs: Pieces("env") = [{"piece": "search"}, {"piece": "single"}],  # noqa: B006
    n_family: int = 150,
    n_valid: int = 30,
    pairs_per_demonstration: int = 1,
    errors: list = ["wrong_answer", "wrong_entity", "wrong_relation", "premature_answer"],  # noqa: B006 (read by ast)
    flip: float = 0.1,
    exact: float = 0.02,
    near: float = 0.02,
    contradiction: float = 0.01,
    votes: int = 0,
    makers: Pieces("pair_maker") = [],  # noqa: B006 (read by ast)
    n_made: int = 60,
    flaws: float = 0.3,
    files: list = [],  # noqa: B006
    mix: bool = False,
    protect: list = [],  # noqa: B006
    rows_per_shard: Place() = 50_000,
) -> None:
    """Makes preference pairs.

    Args:
        sampled_problems: training problems (questions, and the same number of each family) that the SFT model plays,
            for pairs of its own turns; 0: none
        sampled_valid: the same for the split valid
        samples_per_prompt: episodes of each of them
        pairs_per_problem: most pairs of a problem
        sampling: how the SFT model's episodes are sampled; its search_top_k also applies to the maker of errors
        device: device of the SFT model: cpu, cuda, or cuda:0
        dtype: type of its weights: float32 or bfloat16
        envs: environments in which problems are played, with their knobs
        n_family: problems of each family (train) that each give a pair
        n_valid: the same for valid
        pairs_per_demonstration: number of pairs of every search demonstration
        errors: types of error planted in demonstrations
        flip: share of pairs whose label is flipped (synth.preferences.label_noise)
        exact: share of pairs to add as exact copies from another source
        near: share of pairs to add as copies with a reworded prompt
        contradiction: share of pairs to add as copies with swapped sides
        votes: simulated annotators who vote on each training pair (the column `votes`): expert, careless, expert, careless,
            lazy, malicious, and again (synth.preferences.noise_kinds); 0: none
        makers: further sources of pairs
        n_made: number of problems with a worked solution, of every family and split, for which makers make pairs
        flaws: probability that the program that plays the model errs in a step
        files: pairs of your own: files, folders or data sets of the Hub (tasks/rows/read.py has the keys)
        mix: whether pairs are also made here, in addition to those of `files`
        protect: files whose texts must not be trained on
        rows_per_shard: rows of `files` that are in memory at once, and that a run which was ended need not read again
            (docs/scaling.md)
    """
    if not files and not stage.reads("kb"):
        raise UserError(
            "preferences: this project has no knowledge base to make pairs of: name files in preferences.files"
        )
    own = own_pairs(stage, files, protect, rows_per_shard) if files else None
    if own and not mix:
        write(stage, own.rows, [], own.quarantined, own, {})
        return
    search = knowledge.search(stage, **sampling.tool())
    world = World(
        search,
        {e.name: e.type for e in tables.read(stage.input("kb", "entities.parquet"), Entity)},
        [r.label for r in tables.read(stage.input("kb", "relations.parquet"), Relation)],
    )
    items = from_families(stage, n_family, n_valid) + from_makers(stage, makers, n_made, flaws)
    questions = tables.ById([stage.input("questions", "problems.parquet")], Problem)
    demonstrations = tables.each(stage.input("demonstrations", "demonstrations.parquet"), Demonstration)
    games = [t for t in demonstrations if t.problem in questions and t.split != "test"]
    finished = stage.finished("pairs", PreferencePair, Quarantined)
    for game in stage.progress(games, "demonstrations"):
        for i in range(pairs_per_demonstration):
            items.append(
                finished(
                    f"{game.id}/{i}",
                    lambda g=game, i=i: wrong_turns(stage.seed, questions[g.problem], g, i, world, errors=errors),
                )
            )
    if sampled_problems:
        from tasks.models.own_answers import pairs_of

        items += pairs_of(
            stage,
            search,
            envs,
            train=sampled_problems,
            valid=sampled_valid,
            samples=samples_per_prompt,
            most=pairs_per_problem,
            sampling=sampling,
            device=device,
            dtype=dtype,
        )
    verified, quarantined = once(items)
    if not verified:
        raise UserError(
            f"preferences: every pair was quarantined ({dict(tables.counts(quarantined))}): give it more problems or demonstrations"
        )
    rng, train = (
        Random(seed_for(stage.seed, "preferences", "label_noise", "train", 0)),
        [p for p in verified if p.split == "train"],
    )
    shares = {"flip": flip, "exact": exact, "near": near, "contradiction": contradiction}
    noisy, truth = label_noise(train, rng, **shares) if any(shares.values()) else (train, [])
    if votes:
        noisy = voted(noisy, truth, votes, seed_for(stage.seed, "preferences", "votes"))
    about = {
        "errors": dict(sorted(Counter(p.columns["error"]["type"] for p in verified if "error" in p.columns).items())),
        "made": dict(sorted(Counter(p.source.partition("/")[0] for p in verified).items())),
        "planted": {"copies": len(noisy) - len(train), "flipped": sum(t.flip for t in truth)},
        "gates": {
            "rejected": "worse by the verifier, or wrong by it, or its search misses every passage that is needed",
            "flip": flip,
            "search_top_k": sampling.search_top_k,
        },
    }
    pairs = noisy + [p for p in verified if p.split != "train"] + (list(own.rows) if own else [])
    write(stage, pairs, truth, [*quarantined, *(own.quarantined if own else [])], own, about)


def voted(pairs: Sequence[PreferencePair], truth: Sequence[Planted], votes: int, seed: int) -> list[PreferencePair]:
    """The pairs with the column `votes`: annotator -> 1 for the chosen side, -1 for the other. truth: the truth of each
    pair, in the same order; without it no label is wrong."""
    who = [f"{VOTERS[i % len(VOTERS)]}{i + 1}" for i in range(votes)]
    rates = [ANNOTATORS[VOTERS[i % len(VOTERS)]] for i in range(votes)]
    right = np.random.default_rng(seed).random((len(pairs), votes)) < rates
    out = []
    for i, (pair, sees) in enumerate(zip(pairs, right, strict=True)):
        wrong = bool(truth) and truth[i].flip
        out.append(
            replace(
                pair,
                columns={
                    **pair.columns,
                    "votes": {w: 1 - 2 * int(wrong == bool(v)) for w, v in zip(who, sees, strict=True)},
                },
            )
        )
    return out


def write(
    stage: Stage,
    pairs: Iterable[PreferencePair],
    truth: list[Planted],
    quarantined: Iterable[Quarantined],
    own: read.ReadRows | None,
    about: dict[str, Any],
) -> None:
    """The tables of the stage, and its card."""
    ids, splits, reasons = ListDigest(), Counter[str](), Counter[str]()

    def told() -> Iterator[PreferencePair]:
        for p in pairs:
            ids.add(p.id)
            splits[p.split] += 1
            yield p

    n = tables.write(stage.out / "pairs.parquet", told(), PreferencePair)
    tables.write(stage.out / "truth.parquet", truth, Planted)
    with tables.Writer(stage.out / "quarantine.parquet", Quarantined) as aside:
        for q in quarantined:
            aside.add(q)
            reasons[q.reason] += 1
    stage.card(
        {
            "produced": n + aside.n,
            "accepted": n,
            "quarantined": dict(sorted(reasons.items())),
            "splits": dict(sorted(splits.items())),
            **about,
            **(read.write(stage, own) if own else {}),
            "pairs": ids.name(),
        }
    )
    stage.log({"accepted": n, "quarantined": aside.n})


def from_families(stage: Stage, n_train: int, n_valid: int) -> list[PreferencePair | Quarantined]:
    """One pair for each of the first problems of every family, by the hash of the problem."""
    sizes = {"train": n_train, "valid": n_valid}
    problems = (p for p in tables.each(stage.input("problems", "problems.parquet"), Problem) if p.split in sizes)
    chosen = tables.least(
        problems,
        lambda cell: sizes[cell[1]],
        lambda p: seed_for(stage.seed, "preferences", p.id),
        lambda p: (p.family, p.split),
    )
    return [injected_errors(stage.seed, p, 0) for mine in chosen.values() for p in mine]


def from_makers(stage: Stage, makers: list, n: int, flaws: float) -> list[PreferencePair | Quarantined]:
    """One pair of each maker for each of the first `n` problems of every family and split, by the hash of the
    problem."""
    if not makers:
        return []
    table = tables.each(stage.input("problems", "problems.parquet"), Problem)
    worked = Problems(p for p in table if p.lineage.get("solution") and p.split != "test")
    solver = Flawed(worked, error=flaws)
    finished = stage.finished("made", PreferencePair, Quarantined)
    out = []
    for maker in stage.progress(makers, "makers"):
        chosen = tables.least(
            worked,
            lambda cell: n,
            lambda p, m=maker: seed_for(stage.seed, m.piece, p.id),
            lambda p: (p.family, p.split),
        )
        for p in (p for mine in chosen.values() for p in mine):
            out.append(finished(f"{maker.piece}/{p.id}", lambda m=maker, p=p: m(stage.seed, p, 0, solver)))
    return out
