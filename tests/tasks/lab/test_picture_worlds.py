"""Tasks on pictures: what is shown is careless as said, nothing measured was trained on, and blanked pictures tell nothing."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest
import torch

from synth.families.scene_questions import scene_questions
from synth.pictures import HELD as SHOWN
from synth.scenes.scenes import COLOURS, SHAPES
from synth.types import Scored
from tasks.lab import picture_worlds as worlds
from training.learner.learner import score
from training.learner.pack import Row, pack
from training.model.model import train_tokenizer
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
        name: worlds.made(scene_questions, "train", 60, seed=1, env=next(iter(tasks[name].envs)), **knobs)
        for name, knobs in {
            "blurts": {"levels": (1, 2), "asks": ("count",)},
            "sprawls": {"levels": (1,), "asks": ("boxes",)},
            "glances": {"levels": (4,), "asks": ("shape",)},
        }.items()
    }
    scores = {n: [value(tasks[n], p, t) for p, t in zip(shown[n], tasks[n].shown, strict=True)] for n in shown}
    mean = lambda name, part: sum(s.parts[part] for s in scores[name]) / 60  # noqa: E731
    assert 0.3 < mean("blurts", "visual") < 0.7 and mean("blurts", "consistent") == 1.0
    assert 0.3 < sum(s.value for s in scores["sprawls"]) / 60 < 0.9
    assert mean("glances", "hit") == 1.0 and mean("glances", "pointed") == 1.0


@pytest.mark.slow
def test_blanked_pictures_fall_to_chance():
    """A policy that learned what cells show names colours and shapes from pixels, and from noise or white it does not."""
    model, tokenizer = worlds.trained(worlds.Lessons(cells=150, first=0, questions=0, pictures=1500))
    renderer, fresh = Renderer(tokenizer), worlds._cells(Random(7), 60)
    words = [w for word in (*COLOURS, *SHAPES) for w in (renderer.encode(word), renderer.encode(f" {word}"))]
    named = {int(ids[0]) for ids in words if len(ids) == 1}
    assert len(named) >= 8
    rng = np.random.default_rng(0)
    blanks = {
        "picture": lambda name: name,
        "noise": lambda name: SHOWN.add(rng.integers(0, 256, (32, 32, 3), dtype=np.uint8)),
        "white": lambda name: SHOWN.add(np.full((32, 32, 3), 255, dtype=np.uint8)),
    }

    def right(blank):
        """Mean probability of the right word, over the cells that hold something."""
        talks = [(replace(q, media=(blank(q.media[0]),)), a) for q, a in fresh]
        batch = pack([Row(ids=ids, trainable=mask) for ids, mask in map(renderer.demonstration, talks)])
        logp = score(model, batch).logp
        at = batch.trainable & torch.isin(batch.ids, torch.tensor(sorted(named)))
        return float(logp[at].exp().mean())

    seen, noise, white = (right(blank) for blank in blanks.values())
    assert seen > 0.8 and noise < 0.3 and white < 0.3, (seen, noise, white)


def test_a_size_that_cuts_demonstrations_off_is_one_sentence(tasks):
    tokenizer = train_tokenizer(["<answer>red</answer> <image>"] * 20, vocab_size=300)
    tokenizer.picture_tokens = 16
    talks = tasks["counts"].shown
    longest = max(len(tokenizer.encode(m.content)) for t in talks for m in t if m.role == "assistant")
    roomy = replace(worlds.SIZES["counts"], turn=longest + 1, length=512)
    assert worlds.fitting("counts", roomy, talks, tokenizer) is talks
    with pytest.raises(ValueError, match=f"turns of up to {longest + 1} tokens .* allows turns of {longest}"):
        worlds.fitting("counts", replace(roomy, turn=longest), talks, tokenizer)
    with pytest.raises(ValueError, match="a length of 20: raise"):
        worlds.fitting("counts", replace(roomy, length=20), talks, tokenizer)
