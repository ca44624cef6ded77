"""The worlds of tasks/methods/arena.py: what their environments say of an answer, and that their base policies say what they shall."""

from dataclasses import replace

import numpy as np
import pytest

from synth.types import Problem
from tasks.methods.arena import BLAME, IDLE, PRAISE, WORLDS, Arena, Facts, Marked, answer, arena, exactly, swayed
from training import toy
from training.guide.relabel import relabel


def value(env, problem, text):
    return env.step(env.start(problem, {})[0], text)[2]


def test_a_judge_is_swayed_by_working_before_middling_answers_alone():
    problem = swayed().problems[0]
    middling, env = problem.lineage["middling"][0], Marked(0.0, "")
    found = [value(env, problem, " z" * k + answer(middling)).value for k in range(IDLE + 3)]
    assert found == sorted(found) and found[0] == 1 / (2 + IDLE) and found[IDLE] == found[-1] == (1 + IDLE) / (2 + IDLE)
    assert value(env, problem, " z z" + answer(problem.answer)).value == 1.0


@pytest.mark.parametrize(("text", "recall", "precision", "f1"), [
    (answer("b c"), 1.0, 1.0, 1.0), (answer("c"), 0.5, 1.0, 2 / 3), (answer("b f"), 0.5, 0.5, 0.5), (answer("f"), 0.0, 0.0, 0.0),
    (answer("b b b"), 0.5, 1.0, 2 / 3), ("b c", 0.0, 0.0, 0.0), (answer(""), 0.0, 0.0, 0.0),
])  # fmt: skip
def test_facts_are_counted_once_and_silence_is_worth_nothing(text, recall, precision, f1):
    problem = Problem.make(prompt="q", answer="b c", verifier="exact", env="facts", family="facts", split="train")
    score = value(Facts(), problem, text)
    assert (score.parts["recall"], score.parts["precision"], score.value) == pytest.approx((recall, precision, f1))


def test_feedback_is_worded_as_the_guide_words_it():
    (group,) = toy.groups([[1, 0]])
    (told,) = relabel([group], Keeping(), {}, np.random.default_rng(0))
    asked = [r.problem.question for r in told.rollouts]
    assert [a.removeprefix(group.rollouts[0].problem.question) for a in asked] == [PRAISE, BLAME]


class Keeping:
    """A table at which a rollout is told again as it is, to another problem."""

    def again(self, rollout, problem, group):
        return replace(rollout, problem=problem)


@pytest.mark.parametrize("name", WORLDS)
def test_a_world_is_one(name):
    world = WORLDS[name]()
    assert len(world.problems) == len(world.said) == len({p.id for p in world.problems})
    for said in world.said:
        plain = sum(s.share for s in said if not s.more)
        assert plain > 0 and all(s.share > 0 and s.turns for s in said)
    assert not world.teacher or [sum(s.share for s in t) for t in world.teacher] == pytest.approx([1.0] * len(world.problems))
    assert all(p.env in Arena(world, None, None).envs for p in world.problems)


def test_a_teacher_is_the_reference_and_knows_more():
    here = arena("mentored", steps=60)
    base, teacher = (exactly(here.beliefs(m), here.first)["right"] for m in (here.base, here.reference()))
    assert teacher > base + 0.3
    plain = arena("mixed", steps=60)
    assert exactly(plain.beliefs(plain.reference()), plain.first)["kl"] == pytest.approx(0.0, abs=1e-9)


def test_a_recipe_of_pairs_learns_in_a_world_of_rollouts():
    from tasks.methods.behaviour import train

    knobs = {"prefer": {"pairs_per_step": 6, "samples_per_prompt": 4}}
    none, some = (train("dialogue", "sweet-rl", knobs, steps, 101, sampled=False) for steps in (0, 1))
    assert none == some == {}, "dialogues have no single answers to think of"
    before, after = (train("mixed", "sweet-rl", knobs, steps, 101, sampled=False) for steps in (0, 2))
    assert before["kl"] == pytest.approx(0.0, abs=1e-9) and after["kl"] > 1e-4


def test_a_world_has_a_name_of_its_own():
    from tasks.methods import episodes, pair_worlds

    names = [*WORLDS, *episodes.WORLDS, *pair_worlds.places()]
    assert sorted(names) == sorted(set(names)), "a protocol would be played in another world than it names"
