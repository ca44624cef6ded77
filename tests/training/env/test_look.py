"""The environment that shows pictures: what reaches the model, and the controls."""

import numpy as np
import pytest

from synth.families.clip_questions import clip_questions
from synth.families.scene_questions import scene_questions
from synth.scenes import draw, parts
from synth.types import Problem
from training.env.look import look
from synth.pictures import HELD


def problem() -> Problem:
    p = scene_questions(3, "train", 4)
    assert isinstance(p, Problem)
    return p


def test_the_picture_is_shown_and_its_description_is_not():
    p = problem()
    _, (message,) = look().start(p, {"draw": draw})
    assert message.content == "<image>" + parts(p.question)[1] and len(message.media) == 1
    assert (HELD.of(message.media[0]) == draw(p)[0]).all()
    assert "Scene" not in message.content


def test_noise_and_white_are_of_the_same_size_and_say_nothing_of_the_scene():
    p = problem()
    shown = {how: look(shown=how).start(p, {"draw": draw})[1][0] for how in ("picture", "noise", "white")}
    assert len({m.media for m in shown.values()}) == 3 and len({m.content for m in shown.values()}) == 1
    pictures = {how: HELD.of(m.media[0]) for how, m in shown.items()}
    assert {x.shape for x in pictures.values()} == {draw(p)[0].shape}
    assert (pictures["white"] == 255).all() and len(np.unique(pictures["noise"])) > 200
    assert look(shown="noise").start(p, {"draw": draw})[1] == [shown["noise"]], "the same noise each time"


def test_the_answer_is_scored_by_the_problems_verifier():
    p = problem()
    env = look()
    state, _ = env.start(p, {"draw": draw})
    assert env.step(state, f"<answer>{p.answer}</answer>")[2].value == 1.0
    assert env.step(state, "<answer>nothing</answer>")[2].value == 0.0


def test_without_a_drawer_or_a_description_it_is_one_sentence():
    with pytest.raises(LookupError, match="no tool `draw`"):
        look().start(problem(), {})
    with pytest.raises(ValueError, match="name picture, noise, white or shuffled"):
        look(shown="black")
    plain = Problem.make(prompt="How many?", answer="1", verifier="exact", family="x", split="train")
    with pytest.raises(ValueError, match="describes no picture"):
        look().start(plain, {"draw": draw})


def test_shuffled_shows_the_same_frames_in_another_order():
    p = next(p for i in range(40) if (p := clip_questions(0, "train", i, asks=["rate"])).answer != "5 5 5")
    in_order, mixed = (look(shown=how).start(p, {"draw": draw})[1][0].media for how in ("picture", "shuffled"))
    assert len(in_order) == 8 and sorted(in_order) == sorted(mixed) and in_order != mixed
