"""Environments around a shown picture: the block of what is seen, the region, the second thought."""

import numpy as np
import pytest

from synth.scenes import draw
from synth.types import Problem
from training.env.focus import focus, lower, region
from training.env.perceive import perceive
from training.env.reflect import reflect
from synth.pictures import HELD

SHOWN = "Scene of 128: blue cross 4 at 0 0; red ring 6 at 12 5"


def problem(question: str, answer: str, shown: str = SHOWN) -> Problem:
    return Problem.make(prompt=f"{shown}\n{question}", answer=answer, verifier="exact", family="x", split="train")


def test_the_crop_is_of_the_original():
    p = problem("Which shape is red?", "ring")
    state, (first,) = focus().start(p, {"draw": draw})
    whole = draw(p)[0]
    assert HELD.of(first.media[0]).shape == (32, 32, 3)
    (second,), over, _ = focus().step(state, "<box>3 1</box>")
    assert not over and (HELD.of(second.media[0]) == whole[32:64, 96:128]).all()
    assert (region(whole, 4, 3, 1) == whole[32:64, 96:128]).all()


def test_the_low_view_is_the_mean_of_squares():
    picture = np.zeros((4, 4, 3), dtype=np.uint8)
    picture[:2, :2] = 100
    picture[0, 2] = 40
    assert lower(picture, 2)[..., 0].tolist() == [[100, 10], [0, 0]]


def test_controls_show_another_crop():
    p = problem("Which shape is red?", "ring")
    views = {}
    for crop in ("named", "random", "low"):
        state, _ = focus(crop=crop).start(p, {"draw": draw})
        (message,), _, _ = focus(crop=crop).step(state, "<box>3 1</box>")
        views[crop] = message.media
    assert views["named"] != views["low"] and views["random"] in (views["named"], *views.values())
    assert len(set(views.values())) == 3


def test_a_form_is_needed_for_the_parts_of_a_block():
    env = perceive()
    p = problem("How many shapes are red?", "1")
    for text in ("<answer>1</answer>", "<answer>1</answer><perception>red ring</perception>"):
        state, _ = env.start(p, {"draw": draw})
        _, _, score = env.step(state, text)
        assert score.value == 1.0 and score.parts["form"] == score.parts["visual"] == 0.0, text


@pytest.mark.parametrize(
    ("text", "value", "corrected", "spoilt"),
    [
        ("<answer>2</answer><reflection>no</reflection><answer>1</answer>", 1.0, 1.0, 0.0),
        ("<answer>1</answer><reflection>no</reflection><answer>2</answer>", 0.0, 0.0, 1.0),
        ("<answer>1</answer><reflection>yes</reflection><answer>1</answer>", 1.0, 0.0, 0.0),
        ("<answer>2</answer><reflection></reflection><answer>1</answer>", 1.0, 0.0, 0.0),
        ("<answer>1</answer>", 1.0, 0.0, 0.0),
    ],
)
def test_what_a_second_thought_does(text, value, corrected, spoilt):
    state, _ = reflect().start(problem("How many shapes are red?", "1"), {"draw": draw})
    _, over, score = reflect().step(state, text)
    assert over and (score.value, score.parts["corrected"], score.parts["spoilt"]) == (value, corrected, spoilt)


def test_bad_knobs_are_one_sentence():
    with pytest.raises(ValueError, match="2 or more regions"):
        focus(grid=1)
    with pytest.raises(ValueError, match="cannot part into"):
        focus(grid=5).start(problem("Which shape is red?", "ring"), {"draw": draw})
    for piece in (perceive, reflect):
        with pytest.raises(ValueError, match="name picture, noise or white"):
            piece(shown="black")
