"""The stages problems, preferences and clean on a small world: nothing lost, the same bytes twice, truth out of the
cleaners' reach."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from bases import write_base
from sealed import seal

from synth.families.countdown import countdown
from synth.knowledge.world import world
from synth.preferences import cleaning
from synth.preferences.cleaning import Judgement, out_of_fold, run_cleaners
from synth.preferences.label_noise import Planted
from synth.types import Decision, Message, PreferencePair, Problem, Quarantined
from synth.verify import extract_answer, verify
from tasks.core.errors import UserError
from tasks.planning.pieces import bind_all
from tasks.runtime.stage import Stage
from tasks.stages.clean import clean
from tasks.stages.demonstrations import demonstrations
from tasks.stages.preferences import preferences
from tasks.stages.problems import admit, problems
from tasks.stages.questions import questions
from tasks.storage import tables

PIECES = {
    "problems": {"families": "family"},
    "clean": {"cleaners": "cleaner", "policy": "cleaner"},
}
PIECES["preferences"] = {"makers": "pair_maker"}
FAMILIES = [{"piece": f, "levels": [1]} for f in ("linear_equations", "countdown", "list_sorting")]
CLEANERS = [{"piece": "duplicates"}, {"piece": "confident_learning"}]


def run(root: Path, function, **params) -> dict:
    if function is preferences:  # pairs of a model's own answers: test_training_stages.py
        params = {"sampled_problems": 0, **params}
    stage = Stage(function.__name__, plan={"params": params, "seed": 7}, root=root)
    with stage.running():
        function(stage, **bind_all({k: v for k, v in PIECES.get(function.__name__, {}).items() if k in params}, params))
    return json.loads((stage.target / "card.json").read_text())


@pytest.fixture(scope="module")
def two_runs(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Path, dict[str, dict]]]:
    kb, out = world(countries=12, seed=3), []
    for name in ("a", "b"):
        root = tmp_path_factory.mktemp(name)
        write_base(root / "artifacts" / "kb", kb)
        seal(root)
        run(root, questions, n_train=80, n_valid=8, n_test=4)
        cards = {"problems": run(root, problems, families=FAMILIES, n_train=60, n_valid=8, n_test=8)}
        run(root, demonstrations, n=60, n_valid=6, n_family=2)
        noise = {"exact": 0.05, "near": 0.05, "contradiction": 0.05}
        cards["preferences"] = run(root, preferences, n_family=60, n_valid=5, pairs_per_demonstration=2, **noise)
        cards["clean"] = run(root, clean, cleaners=CLEANERS)
        out.append((root, cards))
    return out


def read(root: Path, stage: str, name: str, cls):
    return tables.read(root / "artifacts" / stage / f"{name}.parquet", cls)


def test_same_bytes_twice(two_runs):
    files = [
        {p.relative_to(root): p.read_bytes() for p in (root / "artifacts").rglob("*") if p.is_file()}
        for root, _ in two_runs
    ]
    assert files[0] == files[1]


def test_cards_add_up(two_runs):
    for card in two_runs[0][1].values():
        assert card["produced"] == card["accepted"] + sum(card["quarantined"].values()) > 0


def test_problems_are_as_many_as_asked(two_runs):
    root, cards = two_runs[0]
    kept = read(root, "problems", "problems", Problem)
    assert len(kept) == 3 * (60 + 8 + 8) and cards["problems"]["short"] == {}
    quarantined = read(root, "problems", "quarantine", Quarantined)
    assert len(quarantined) == cards["problems"]["quarantined"].get("duplicate", 0)


def test_a_small_family_ends_short_and_says_so(tmp_path):
    card = run(tmp_path, problems, families=[{"piece": "countdown", "levels": [1]}], n_train=3, n_valid=0, n_test=0)
    assert card["short"] == {} and card["accepted"] == 3
    one = countdown(7, "train", 0)

    def single(seed, split, index):
        return one

    stage = Stage("problems", plan={"seed": 7}, root=tmp_path)
    with stage.running():
        problems(stage, families=[partial(single)], n_train=5, n_valid=0, n_test=0)
    card = json.loads((stage.target / "card.json").read_text())
    assert card["short"] == {"single, train": 4} and card["quarantined"] == {"duplicate": 14} and card["accepted"] == 1


def test_admit_checks_answer_and_solution():
    p = countdown(7, "train", 0)
    seen = {p.seen: f"{p.split} {p.id}"}
    assert admit(p, {}) is p and admit(p, seen).reason == "duplicate"
    hidden = replace(p, args={**p.args, "databases": 3}, split="test")  # scored otherwise, shown as the same
    assert "split train too" in admit(replace(hidden, id="other"), seen).evidence
    assert admit(replace(p, lineage={**p.lineage, "solution": "<answer>1</answer>"}), {}).reason == "wrong_solution"
    assert admit(replace(p, answer="1 + 1"), {}).reason == "wrong_answer"


def test_valid_pairs_are_as_verified_and_train_pairs_leak_nothing(two_runs):
    root, _ = two_runs[0]
    pairs = read(root, "preferences", "pairs", PreferencePair)
    known = {p.id: p for stage in ("questions", "problems") for p in read(root, stage, "problems", Problem)}
    valid = [p for p in pairs if p.split == "valid"]
    assert valid and all(p.margin == 1.0 and p.columns["error"] for p in valid)
    assert all(p.margin is None and set(p.columns) == {"group"} for p in pairs if p.split == "train")
    assert all(known[p.problem].split == p.split != "test" for p in pairs)
    for p in valid:
        if (wrong := extract_answer(p.rejected)) is not None:
            assert verify(known[p.problem], wrong).value == 0.0


def test_further_makers_and_no_noise(two_runs, tmp_path):
    root, cards = two_runs[0]
    for stage in ("kb", "questions", "problems", "demonstrations"):
        (tmp_path / "artifacts" / stage).parent.mkdir(exist_ok=True)
        (tmp_path / "artifacts" / stage).symlink_to(root / "artifacts" / stage)
    makers = [{"piece": m} for m in ("amplified_errors", "step_values", "recovery", "best_vs_worst", "follow_up")]
    card = run(
        tmp_path,
        preferences,
        n_family=10,
        n_valid=2,
        makers=makers,
        n_made=8,
        flip=0.0,
        exact=0.0,
        near=0.0,
        contradiction=0.0,
    )
    assert (
        card["produced"] == card["accepted"] + sum(card["quarantined"].values())
        and card["quarantined"]["no_follow_up"] > 0
    )
    assert {"amplified_errors", "step_values", "recovery", "best_vs_worst", "injected_errors"} <= set(
        card["made"]
    ) and card["planted"]["copies"] == 0
    pairs = read(tmp_path, "preferences", "pairs", PreferencePair)
    assert all(p.margin == 1.0 for p in pairs) and any("steps" in p.columns for p in pairs), (
        "without noise pairs come as they were verified"
    )
    known = {p.id: p for p in read(root, "problems", "problems", Problem)}
    for p in pairs:
        if p.problem in known and p.source.partition("/")[0] in ("step_values", "recovery"):
            assert known[p.problem].split == p.split and verify(known[p.problem], extract_answer(p.chosen)).value == 1.0


def test_a_policy_decides_once(two_runs, tmp_path):
    root, _ = two_runs[0]
    (tmp_path / "artifacts").mkdir()
    (tmp_path / "artifacts" / "preferences").symlink_to(root / "artifacts" / "preferences")
    card = run(tmp_path, clean, cleaners=[*CLEANERS, {"piece": "blind_margin"}], policy={"piece": "policy"})
    train = [p for p in read(tmp_path, "clean", "pairs", PreferencePair) if p.split == "train"]
    removed = read(tmp_path, "clean", "removed", PreferencePair)
    assert removed and all(
        [d.step for d in p.decisions] == ["duplicates", "confident_learning", "blind_margin", "policy"]
        for p in train + removed
    )
    assert card["against_truth"]["flips"]["rate_after"] < 0.7 * card["against_truth"]["flips"]["rate_before"]
    assert card["noise_interval"]["low"] < card["noise_interval"]["rate"] < card["noise_interval"]["high"]


def test_kept_and_removed_are_the_input_and_every_decision_is_written(two_runs):
    root, cards = two_runs[0]
    pairs = {p.id for p in read(root, "preferences", "pairs", PreferencePair)}
    kept, removed = read(root, "clean", "pairs", PreferencePair), read(root, "clean", "removed", PreferencePair)
    assert {p.id for p in kept} | {p.id for p in removed} == pairs and len(kept) + len(removed) == len(pairs)
    assert all(p.decisions[-1].action == "remove" for p in removed) and all(
        d.action == "keep" for p in kept for d in p.decisions
    )
    assert not any(p.decisions for p in kept if p.split != "train")
    rows = read(root, "clean", "decisions", Judgement)
    assert len(rows) == sum(len(p.decisions) for p in kept + removed) == sum(cards["clean"]["actions"].values())


def test_cleaning_lowers_the_noise_and_the_card_tells_by_how_much(two_runs):
    root, cards = two_runs[0]
    against_truth = cards["clean"]["against_truth"]
    assert against_truth["copies"]["recall"] == {"contradiction": 1.0, "exact": 1.0, "near": 1.0}
    assert (
        against_truth["flips"]["precision"] > 3 * against_truth["flips"]["rate_before"]
        and against_truth["flips"]["rate_after"] < 0.6 * against_truth["flips"]["rate_before"]
    )
    truth = {t.id: t for t in read(root, "preferences", "truth", Planted)}
    kept = [p for p in read(root, "clean", "pairs", PreferencePair) if p.id in truth]
    assert against_truth["flips"]["rate_after"] == pytest.approx(
        sum(truth[p.id].flip for p in kept) / len(kept), abs=1e-4
    )


def test_decisions_do_not_depend_on_the_truth(two_runs, tmp_path):
    root, _ = two_runs[0]
    tables.write(
        tmp_path / "artifacts/preferences/pairs.parquet",
        read(root, "preferences", "pairs", PreferencePair),
        PreferencePair,
    )
    seal(tmp_path)
    card = run(tmp_path, clean, cleaners=CLEANERS)
    assert "against_truth" not in card
    for name in ("pairs", "removed", "decisions"):
        path = f"artifacts/clean/{name}.parquet"
        assert (tmp_path / path).read_bytes() == (root / path).read_bytes()


def some(n: int, group: str = "g{}") -> list[PreferencePair]:
    make = PreferencePair.make
    user = [Message(role="user", content="Say yes.")]
    return [
        make(
            prompt=user,
            chosen=f"yes {i}",
            rejected=f"no {i}",
            source="t",
            columns={"group": group.format(i)},
            split="train",
        )
        for i in range(n)
    ]


def test_siblings_never_cross_folds(monkeypatch):
    """A model that saw a sibling could answer from memory: with one telling word per group, it must stay at one
    half."""
    pairs = [
        replace(p, id=f"{p.id}{k}", chosen=f"word{i}", rejected="other")
        for i, p in enumerate(some(10))
        for k in range(3)
    ]
    words = sorted({p.chosen for p in pairs})

    class Told(np.ndarray):
        names = words

    telling = lambda pairs, *_: np.array([[float(p.chosen == w) for w in words] for p in pairs]).view(Told)  # noqa: E731
    monkeypatch.setattr(cleaning, "differences", telling)
    assert out_of_fold(pairs, folds=5, c=1.0) == pytest.approx(0.5)
    apart = [replace(p, columns={"group": p.id}) for p in pairs]
    assert out_of_fold(apart, folds=5, c=1.0).mean() > 0.55


def test_too_few_groups_and_unknown_columns_are_refused():
    with pytest.raises(UserError, match="1 groups of pairs do not make 5 folds"):
        out_of_fold(some(9, "same"), folds=5, c=1.0)
    with pytest.raises(UserError, match="needs the column 'votes', which pairs lack"):
        run_cleaners(some(9), [cleaner("keep", "votes")])
    given = [replace(p, columns={**p.columns, "out_of_fold": 0.25}) for p in some(3)]
    kept, _, noise = run_cleaners(given, [cleaner("keep", "out_of_fold")])
    assert ([p.columns for p in kept], noise) == ([p.columns for p in given], {})


def cleaner(action: str, *needs: str):
    def piece(pairs):
        return [Decision(step="mine", action=action, reason="because", score=1.0) for _ in pairs]

    bound = partial(piece)
    bound.piece, bound.needs = "cleaner/mine", frozenset(needs)
    return bound


def test_flip_swaps_and_missing_decisions_are_refused():
    (pair,) = some(1)
    ((turned,), gone, _) = run_cleaners([pair], [cleaner("flip")])
    assert (
        (turned.chosen, turned.rejected) == (pair.rejected, pair.chosen)
        and not gone
        and turned.decisions[0].action == "flip"
    )
    short = partial(lambda pairs: [])
    short.piece, short.needs = "cleaner/short", frozenset()
    with pytest.raises(ValueError, match="short made 0 decisions about 1 pairs"):
        run_cleaners([pair], [short])


def test_a_cleaner_that_removes_all_is_refused(tmp_path):
    tables.write(tmp_path / "artifacts/preferences/pairs.parquet", some(4), PreferencePair)
    seal(tmp_path)
    stage = Stage("clean", plan={"seed": 1}, root=tmp_path)
    with pytest.raises(UserError, match="would remove all 4 training pairs"), stage.running():
        clean(stage, cleaners=[cleaner("remove")])
