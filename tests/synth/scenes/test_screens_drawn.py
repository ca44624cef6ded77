"""Screens: exact transitions by hand, and pixels that say what the text says."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from synth.families.screen_tasks import ASKS, screen_tasks, solve
from synth.questions.certify import certify
from synth.scenes import draw, parts
from synth.scenes.scenes import COLOURS
from synth.scenes.screens import MARKS, STATES, Screen, Widget, after, pixels, read, seen
from synth.types import Problem, Unscorable
from synth.verify import verify

SCREEN = "Screen of 32: green button 0 0 pressed; blue field 3 0; red button 1 2; cursor 2 3"


def test_a_description_is_read_back_and_drawn_where_it_says():
    screen = read(SCREEN)
    assert screen.text == SCREEN and screen.cursor == (2, 3) and screen.named("red button").box == (9, 17, 15, 23)
    picture = pixels(screen)
    assert (picture[17:23, 9:15] == COLOURS["red"]).all()
    # Cell 2 3: centre 20 28.
    assert tuple(picture[27, 20]) == (20, 20, 20) and tuple(picture[28, 20]) == (
        255,
        255,
        255,
    )
    without = pixels(Screen(32, screen.widgets))
    assert 0 < int((picture != without).any(axis=2).sum()) <= 5, "the cursor is five pixels"


def test_every_state_with_and_without_a_cursor_is_read_from_its_pixels():
    for kind, states in STATES.items():
        for state, colour, cursor in itertools.product(states, COLOURS, (None, (1, 2), (0, 0))):
            screen = Screen(32, (Widget(colour, kind, 1, 2, state),), cursor)
            assert seen(pixels(screen)) == screen
    assert len({str(m) for m in MARKS.values()}) == len(MARKS)


def test_clicks_and_letters_by_hand():
    screen = read(SCREEN)
    pressed = after(screen, "click 1 2")
    assert pressed.named("red button").state == "pressed" and pressed.cursor == (1, 2)
    focused = after(pressed, "click 3 0")
    assert focused.named("blue field").state == "focus"
    assert after(focused, "type b").named("blue field").state == "b"
    assert after(focused, "click 0 3").named("blue field").state == ""  # beside everything: the focus is lost
    assert after(pressed, "type b").widgets == pressed.widgets  # nothing has the focus
    assert after(after(focused, "type b"), "click 3 0").named("blue field").state == "b"


@pytest.mark.parametrize("action", ["click 4 0", "click -1 0", "press", "type z", ""])
def test_what_is_no_action_is_one_sentence(action):
    with pytest.raises(ValueError, match="is no action on this screen"):
        after(read(SCREEN), action)


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("Point at the blue field.", "25 1 31 7"),
        ("Which boxes hold the buttons?", "1 1 7 7; 9 17 15 23"),
        ("Write c into the blue field, then press the red button.", "click 3 0; type c; click 1 2"),
    ],
)
def test_answers_by_hand(question, answer):
    assert solve(f"{SCREEN}\n{question}") == answer


def test_actions_are_scored_by_where_they_lead():
    p = Problem.make(
        prompt=f"{SCREEN}\nPress the red button.", answer="click 1 2", verifier="clicks", family="x", split="train"
    )
    assert verify(p, "click 1 2").value == verify(p, "click 3 0; click 1 2").value == 1.0  # the focus is lost again
    assert verify(p, "click 0 0").value == verify(p, "click 3 0; type a; click 1 2").value == 0.0
    for text in ("", "press it", "click 9 9", "; ".join(["click 1 2"] * 13)):
        assert verify(p, text).parts["parsed"] == 0.0
    broken = Problem.make(prompt="Press.", answer="click 1 2", verifier="clicks", family="x", split="train")
    assert isinstance(verify(broken, "click 1 2"), Unscorable)


@pytest.mark.parametrize("kind", ASKS)
def test_each_kind_is_certified_and_its_answers_differ(kind):
    drawn = [screen_tasks(0, "train", i, asks=[kind], levels=[1, 2, 3]) for i in range(60)]
    problems = [p for p in drawn if isinstance(p, Problem)]
    assert len(problems) == 60 and not any(certify(p) for p in problems)
    answers = [p.answer for p in problems]
    assert max(answers.count(a) for a in set(answers)) <= 12
    assert all(draw(p)[0].shape == (32, 32, 3) and "Screen" not in parts(p.question)[1] for p in problems)


@pytest.mark.parametrize(
    "text",
    [
        "Screen of 32: red lamp 1 2",
        "Screen of 32: red button 4 2",
        "Screen of 32: pink button 1 2",
        "Screen of 32: red button 1 2; blue field 1 2",
        "Screen of 32: red button 1 2 focus",
        "Screen of 32: red field 1 2 pressed",
        "Screen of 32: red field 1 2 focus; blue field 0 0 focus",
        "Screen of 30: red button 1 2",
        "Screen",
    ],
)
def test_what_is_no_screen_is_one_sentence(text):
    with pytest.raises(ValueError, match="Screen"):
        read(text)


def test_noise_is_no_screen():
    noise = np.random.default_rng(0).integers(0, 256, (32, 32, 3), dtype=np.uint8)
    with pytest.raises(ValueError, match="shows no button and no field"):
        seen(noise)
    with pytest.raises(ValueError, match="name some of point"):
        screen_tasks(0, "train", 0, asks=["smell"])
