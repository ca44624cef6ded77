"""Small worlds of preference data: what is planted is there, and what is measured is what it says."""

from dataclasses import replace

import numpy as np
import pytest

from tasks.lab import label_worlds, pair_worlds, registry, worlds
from tasks.lab.behaviour import merged


def drawn(world, n=4000):
    rng, gold = np.random.default_rng(0), world.gold(1)[0]
    return gold, [pair for _ in range(n) if (pair := world.draw(world, rng, gold, 0))]


@pytest.mark.parametrize("world", pair_worlds.letters().values(), ids=lambda w: w.name)
def test_a_world_has_as_many_different_pairs_as_it_says(world):
    pairs = world.pairs(1)
    assert len({p.id for p in pairs}) == world.n and {p.problem for p in pairs} <= {p.id for p in world.problems()}


def test_a_world_that_has_not_so_many_pairs_says_so():
    with pytest.raises(ValueError, match="prior draws 32 different pairs, not 40"):
        replace(pair_worlds.prior(), n=40).pairs(1)


def test_the_planted_labels_are_as_wrong_as_it_says():
    gold, pairs = drawn(pair_worlds.flipped())
    for who, rate in (("a", 0.05), ("b", 0.4)):
        wrong = [gold[m["chosen"]] < gold[m["rejected"]] for m in pairs if m["annotator"] == who]
        assert np.mean(wrong) == pytest.approx(rate, abs=0.03)
    gold, pairs = drawn(pair_worlds.ranked())
    assert all(m["margin"] == pytest.approx(gold[m["chosen"]] - gold[m["rejected"]]) and m["margin"] > 0 for m in pairs)
    gold, pairs = drawn(pair_worlds.close())
    near, far = (
        [
            gold[m["chosen"]] < gold[m["rejected"]]
            for m in pairs
            if (abs(gold[m["chosen"]] - gold[m["rejected"]]) < 0.3) == n
        ]
        for n in (True, False)
    )
    assert np.mean(near) > 3 * np.mean(far)
    assert all((m["margin"] > 0) == (gold[m["chosen"]] > gold[m["rejected"]]) for m in pairs if abs(m["margin"]) > 6)


def test_the_longer_side_is_chosen_and_two_answers_are_equal():
    world = pair_worlds.wordy()
    _, pairs = drawn(world)
    assert np.mean([len(world.text(m["chosen"])) > len(world.text(m["rejected"])) for m in pairs]) == pytest.approx(
        7 / 8, abs=0.03
    )
    gold, pairs = drawn(pair_worlds.equals())
    best = np.argsort(-gold)[:2]
    assert {m["chosen"] for m in pairs} == set(best) and not {m["rejected"] for m in pairs} & set(best)


def test_right_by_luck():
    gold, pairs = drawn(pair_worlds.lucky())
    (knobs,) = worlds.plans("steporlm-wdpo-genprm", {}, 1)["prefer"].params["rounds"]
    assert {m["source"] for m in pairs} == {knobs["source"]}, "the round of the recipe would find no pair"
    ties = [m for m in pairs if m["outcome"] == [1, 1]]
    in_order = {
        s: np.mean([gold[m["chosen"]] > gold[m["rejected"]] for m in ties if m["process"][1] == s]) for s in (0.4, 0.65)
    }
    assert in_order[0.4] == 1 and in_order[0.65] == pytest.approx(0.5, abs=0.05)


def test_the_measures_by_hand():
    gold = np.array([0.0, 0.5, 1.0, 1.0])
    assert pair_worlds._order(np.array([0.0, 1.0, 2.0, 2.0]), gold) == 1 and pair_worlds._order(-gold, gold) == 0
    # The two best are not compared.
    assert pair_worlds._order(np.array([0.0, 2.0, 1.0, 3.0]), gold) == pytest.approx(4 / 5)
    solution = "3+4=7, 7+2=9 <answer>9</answer>"
    assert label_worlds._first_wrong("3+4=7, 7+2=8 <answer>8</answer>", solution) == 2
    assert (
        label_worlds._worth("3+4=7, ", solution) == pytest.approx(0.7**2)
        and label_worlds._worth("3+4=8, ", solution) == 0
    )


def test_changes_by_stage_meet_within_it():
    assert merged({"prefer": {"a": 1, "b": 1}, "x": 0}, {"prefer": {"b": 2}}) == {"prefer": {"a": 1, "b": 2}, "x": 0}
    both = {"optimizer": {"lr": 0, "warmup": 1}}
    changed = {"optimizer": {"lr": 2, "warmup": 1}}
    assert merged(both, {"optimizer": {"lr": 2}}) == changed, "and within knobs that belong together"
    assert merged({"prefer": both}, {"prefer": {"optimizer": {"lr": 2}}}) == {"prefer": changed}
    assert merged({"loss": {"piece": "a", "b": 1}}, {"loss": {"c": 2}}) == {"loss": {"c": 2}}, "a piece is not"


def test_a_policy_that_was_not_trained_has_moved_nowhere_and_a_trained_one_has():
    base = registry.train("few", "base", {}, 2, 1)
    assert base["kl"] == base["margin"] == 0 and base["gold"] == pytest.approx(0.15, abs=0.02)
    some = registry.train("few", "dpo", {"prefer": {"pairs_per_step": 4}}, 2, 1)
    assert some["kl"] > 0 and registry.train("few", "dpo", {"prefer": {"pairs_per_step": 4}}, 2, 1) == some


@pytest.mark.parametrize(
    ("name", "stage", "n"),
    [
        ("confounded", "preferences", 400),
        ("attributes", "clean", 500),
        ("proxies", "clean", 120),
        ("facts", "clean", 300),
    ],
)
def test_worlds_of_labels_have_as_many_pairs_as_they_say(name, stage, n, tmp_path, monkeypatch):
    monkeypatch.setattr(label_worlds, "reader", lambda room, layers=1: None)  # no policy is trained for this
    room = worlds.Room(tmp_path, 1, "")
    registry.places()[name].lay(room)
    pairs = room.pairs(stage)
    assert len({p.id for p in pairs}) == n and {p.split for p in pairs} == {"train", "valid"}


@pytest.mark.parametrize("name", ["turned", "voted", "poisoned", "long_labels"])
def test_labels_are_planted_and_seen(name):
    measures = registry.train(name, "base", {}, 1, 1)
    assert 0.05 < measures["wrong"] < 0.4 and measures["kept"] == 1 and measures["caught"] == 0


def test_risky_requests_are_measured_apart_from_those_that_pairs_are_about():
    learned = {p.id for p in label_worlds._helper().world.problems[: label_worlds.LEARNED]}
    assert {p.split for p in label_worlds._helper().world.problems if p.id not in learned} == {"test"}
    changes = {"prefer": {"optimizer": {"lr": 1e-3}}}
    one, two = (registry.train("risky", "ipo-intervened", changes, 2, seed) for seed in (101, 102))
    before = registry.train("risky", "base", {}, 0, 101)
    assert one["unsafe"] < before["unsafe"] - 0.2 and one["unsafe"] != two["unsafe"]
