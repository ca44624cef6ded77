"""The worlds of tasks/lab/arena.py: what their environments say of an answer, and that their base policies say what
they shall."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch

from synth.types import Problem
from tasks.lab import arena as arena_module
from tasks.lab import toy
from tasks.lab.arena import (
    BLAME,
    CLAUSES,
    IDLE,
    PRAISE,
    WORLDS,
    Arena,
    Beliefs,
    Cited,
    Facts,
    Marked,
    answer,
    arena,
    cases,
    exactly,
    swayed,
)
from training.rl.group_transform.demonstrations import demonstrations
from training.rl.group_transform.relabel import relabel
from training.rl.rollout_services import RolloutServices


def value(env, problem, text):
    return env.step(env.start(problem, {})[0], text)[2]


def test_a_judge_is_swayed_by_working_before_middling_answers_alone():
    problem = swayed().problems[0]
    middling, env = problem.lineage["middling"][0], Marked(0.0, "")
    values = [value(env, problem, " z" * k + answer(middling)).value for k in range(IDLE + 3)]
    assert (
        values == sorted(values)
        and values[0] == 1 / (2 + IDLE)
        and values[IDLE] == values[-1] == (1 + IDLE) / (2 + IDLE)
    )
    assert value(env, problem, " z z" + answer(problem.answer)).value == 1.0


@pytest.mark.parametrize(
    ("text", "recall", "precision", "f1"),
    [
        (answer("b c"), 1.0, 1.0, 1.0),
        (answer("c"), 0.5, 1.0, 2 / 3),
        (answer("b f"), 0.5, 0.5, 0.5),
        (answer("f"), 0.0, 0.0, 0.0),
        (answer("b b b"), 0.5, 1.0, 2 / 3),
        ("b c", 0.0, 0.0, 0.0),
        (answer(""), 0.0, 0.0, 0.0),
    ],
)
def test_facts_are_counted_once_and_silence_is_worth_nothing(text, recall, precision, f1):
    problem = Problem.make(prompt="q", answer="b c", verifier="exact", env="facts", family="facts", split="train")
    score = value(Facts(), problem, text)
    assert (score.parts["recall"], score.parts["precision"], score.value) == pytest.approx((recall, precision, f1))


def test_a_verdict_rests_on_a_clause():
    problem, env = cases().problems[0], Cited(0.0, "")
    clause, other = problem.lineage["clause"], next(c for c in CLAUSES if c != problem.lineage["clause"])
    scores = [
        value(env, problem, f"{before}{answer(problem.answer)}") for before in (f" {clause}", f" {other}", "", " z")
    ]
    assert [f.parts["right_evidence"] for f in scores] == [1.0, 0.2, 0.0, 0.0] and [
        f.parts["clause"] for f in scores
    ] == [1.0, 0, 0, 0]
    assert [f.value for f in scores] == [f.parts["right"] for f in scores] == [1.0] * 4
    wrong = value(env, problem, f" {clause}{answer('z')}")
    assert wrong.parts["clause"] == 1.0 and wrong.parts["right"] == wrong.value == 0.0
    assert all(
        env.step({"problem": p}, p.lineage["demonstration"][0])[2].parts["clause"] == 1.0 for p in cases().problems
    )


@pytest.mark.parametrize("name", ["tongues", "cases"])
def test_what_is_held_out_is_not_trained_on(name):
    world = WORLDS[name]()
    assert 0 < world.held < len(world.problems) and len(world.training) == len(world.problems) - world.held
    assert {p.family for p in world.training} == {"home"} and {p.family for p in world.problems[-world.held :]} == {
        "away"
    }
    assert WORLDS["mixed"]().training == list(WORLDS["mixed"]().problems)


@pytest.mark.parametrize(("away", "ratio"), [(0.75, 1.0), (0.25, 0.0), (0.5, 0.5)])
def test_a_gain_elsewhere_is_seen_beside_the_gain_at_home(away, ratio):
    one = lambda family, p: Beliefs(family, np.log([p, 1 - p]), np.array([2, 2]), np.array([True, False]))  # noqa: E731
    first = [one("home", 0.25), one("home", 0.25), one("away", 0.25)]
    measures = exactly([one("home", 0.7), one("home", 0.8), one("away", away)], first)
    assert (measures["home"], measures["away"], measures["mismatch"]) == pytest.approx((0.75, away, 0.75 - away))
    assert measures["ratio"] == pytest.approx(ratio)


def test_verdicts_that_follow_the_law_and_verdicts_that_move_without_it():
    verdicts = {
        ("q", 0): "bbcb",
        ("w", 0): "cccc",
        ("q", 4): "bbbb",
        ("w", 4): "bbbc",
    }  # the law decides case 0: 3 of 4 move; and 1 of 4
    groups = []
    for p in cases().problems:
        if (key := (p.lineage["law"], p.lineage["content"])) in verdicts:
            (group,) = toy.groups([[0.0] * 4], texts=[[answer(x) for x in verdicts[key]]])
            groups.append(replace(group, rollouts=tuple(replace(r, problem=p) for r in group.rollouts)))
    assert arena_module._probed(groups) == {"follows": 0.75, "spurious": 0.25}
    assert arena_module._probed(toy.groups([[0.0]])) == {}


def test_features_of_one_direction_have_rank_one():
    here = arena("tongues", steps=1)
    flat = copy.deepcopy(here.base)
    with torch.no_grad():
        for p in flat.parameters():
            p.zero_()
    assert here.rank(flat) == 0.0 and 1.0 < here.rank(here.base) <= len(here.world.problems) - 1


def test_a_demonstration_is_worked_or_the_reference_answer_alone():
    here = arena("cases", steps=1)
    player = here.player(max_turn_tokens=8, max_tokens=64)
    groups = player.play(here.world.training[:1], 2, 1)
    table = RolloutServices(player=player, seed=(1,), temperature=1.0)
    texts = [
        demonstrations(groups, table, {}, np.random.default_rng(0), worked=w)[0].rollouts[-1].text
        for w in (True, False)
    ]
    problem = here.world.training[0]
    assert (
        texts[0].endswith(problem.lineage["demonstration"][0])
        and texts[1].endswith(answer(problem.answer))
        and texts[0] != texts[1]
    )


def test_feedback_is_worded_as_the_guide_words_it():
    (group,) = toy.groups([[1, 0]])
    (told,) = relabel([group], Keeping(), {}, np.random.default_rng(0))
    questions = [r.problem.question for r in told.rollouts]
    assert [a.removeprefix(group.rollouts[0].problem.question) for a in questions] == [PRAISE, BLAME]


class Keeping:
    """A table at which a rollout is told again as it is, to another problem."""

    def again(self, rollout, problem, group):
        return replace(rollout, problem=problem)


@pytest.mark.parametrize("name", WORLDS)
def test_a_world_is_one(name):
    world = WORLDS[name]()
    assert len(world.problems) == len(world.said) == len({p.id for p in world.problems})
    for sentences in world.said:
        plain = sum(s.share for s in sentences if not s.more)
        assert plain > 0 and all(s.share > 0 and s.turns for s in sentences)
    assert not world.teacher or [sum(s.share for s in t) for t in world.teacher] == pytest.approx(
        [1.0] * len(world.problems)
    )
    assert all(p.env in Arena(world, None, None).envs for p in world.problems)


def test_a_teacher_is_the_reference_and_knows_more():
    here = arena("mentored", steps=60)
    base, teacher = (exactly(here.beliefs(m), here.first)["right"] for m in (here.base, here.reference()))
    assert teacher > base + 0.3
    plain = arena("mixed", steps=60)
    assert exactly(plain.beliefs(plain.reference()), plain.first)["kl"] == pytest.approx(0.0, abs=1e-9)


def test_a_recipe_of_pairs_learns_in_a_world_of_rollouts():
    from tasks.lab.behaviour import train

    knobs = {"prefer": {"pairs_per_step": 6, "samples_per_prompt": 4}}
    none, some = (train("dialogue", "sweet-rl", knobs, steps, 101, sampled=False) for steps in (0, 1))
    assert none == some == {}, "dialogues have no single answers to think of"
    before, after = (train("mixed", "sweet-rl", knobs, steps, 101, sampled=False) for steps in (0, 2))
    assert before["kl"] == pytest.approx(0.0, abs=1e-9) and after["kl"] > 1e-4


def test_a_world_has_a_name_of_its_own():
    from tasks.lab import episodes, registry

    names = [*WORLDS, *episodes.WORLDS, *registry.places()]
    assert sorted(names) == sorted(set(names)), "a protocol would be played in another world than it names"
