"""Tasks on pictures: what is shown is careless as said, nothing measured was trained on, and blanked pictures tell nothing."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

import pytest

from synth.families.scene_questions import scene_questions
from synth.types import Scored
from tasks.lab import picture_worlds as worlds
from training.env.look import look
from training.learner.learner import score
from training.learner.pack import Row, pack
from training.model.render import Renderer

FEW = {"demonstrations": 60}


@pytest.fixture(scope="module")
def tasks():
    return {name: make(replace(worlds.SIZES[name], **FEW)) for name, make in worlds.TASKS.items()}


def value(task, problem, talk):
    env = task.envs[problem.env]
    state, _ = env.start(problem, task.tools)
    for m in talk:
        if m.role == "assistant":
            _, over, score = env.step(state, m.content)
    assert over and isinstance(score, Scored)
    return score


@pytest.mark.parametrize("name", worlds.NAMES)
def test_splits_are_apart_and_demonstrations_end(tasks, name):
    task = tasks[name]
    assert {p.split for p in task.held} == {"test"} and {p.split for p in task.train} == {"train"}
    assert len(task.held) == worlds.HELD and not {p.id for p in task.held} & {p.id for p in task.train}
    assert all(m.media for talk in task.shown for m in talk[:1])


def test_demonstrations_are_as_careless_as_said(tasks):
    shown = {
        name: worlds.made(
            scene_questions, "train", 60, seed=1, env=next(iter(tasks[name].envs)), **asked
        )
        for name, asked in {
            "blurts": {"levels": (1, 2), "asks": ("count",)},
            "sprawls": {"levels": (1,), "asks": ("boxes",)},
            "glances": {"levels": (4,), "asks": ("shape",)},
        }.items()
    }  # fmt: skip
    scores = {n: [value(tasks[n], p, t) for p, t in zip(shown[n], tasks[n].shown, strict=True)] for n in shown}
    mean = lambda name, part: sum(s.parts[part] for s in scores[name]) / 60  # noqa: E731
    assert 0.3 < mean("blurts", "visual") < 0.7 and mean("blurts", "consistent") == 1.0
    assert 0.3 < sum(s.value for s in scores["sprawls"]) / 60 < 0.9
    assert 0.2 < mean("glances", "hit") < 0.6 and mean("glances", "pointed") == 1.0


@pytest.mark.slow
def test_blanked_pictures_fall_to_chance():
    """A policy that learned to count from pixels does not count noise or white."""
    few = worlds.Lessons(cells=60, few=420, all=0, pictures=1600, asked=("count",))
    model, tokenizer = worlds.trained(few)
    renderer = Renderer(tokenizer)
    problems = worlds.made(scene_questions, "test", 100, asks=("count",), levels=(1,))

    def right(shown):
        """Mean probability of the right answer."""
        talks = [worlds.talk(look(shown=shown), p, worlds.said(p.answer)) for p in problems]
        batch = pack([Row(ids=ids, trainable=mask) for ids, mask in map(renderer.demonstration, talks)])
        logp = score(model, batch).logp * batch.trainable
        return sum(math.exp(x) for x in batch.row_sum(logp).tolist()) / len(problems)

    answers = Counter(p.answer for p in problems)
    chance = max(answers.values()) / len(problems)  # always the commonest number
    seen, noise, white = (right(how) for how in ("picture", "noise", "white"))
    assert seen > chance + 0.25 and noise < chance + 0.1 and white < chance + 0.1, (seen, noise, white, chance)
