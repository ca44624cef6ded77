"""A cursor that is seen and frames that are asked for: what is shown, and what is counted, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from synth.scenes import draw
from synth.scenes.screens import read, seen
from synth.types import Problem
from training.env.frames import frames, smaller, spread
from training.env.point import point
from synth.pictures import HELD

TOOLS = {"draw": draw}
SCREEN = Problem.make(
    prompt="Screen of 32: red button 1 2; cursor 3 0\nPoint at the red button.",
    answer="9 17 15 23",
    verifier="boxes",
    env="point",
    family="x",
    split="train",
)
CLIP = Problem.make(
    prompt="Clip of 32 in 8 frames: blue ring -, -, -, -, 3 3 6, -, -, -; "
    "red square 0 1 4, 0 1 4, 0 1 4, 0 1 4, 0 1 4, 0 1 6, 0 1 6, 0 1 6\n"
    "The red square is larger after the flash. Which colour flashes?",
    answer="blue",
    verifier="exact",
    env="frames",
    family="x",
    split="train",
)


def test_the_cursor_is_drawn_where_it_has_gone():
    env = point()
    state, (opened,) = env.start(SCREEN, TOOLS)
    assert opened.content == "<image>Point at the red button." and seen(HELD.of(opened.media[0])).cursor == (3, 0)
    (told,), over, score = env.step(state, "<move>left 1 down 9</move>")
    assert not over and score is None and seen(HELD.of(told.media[0])).cursor == (2, 3)  # not beyond the edge
    assert seen(HELD.of(told.media[0])).widgets == read(SCREEN.question.partition("\n")[0]).widgets
    env.step(state, "<move>right 1 up 3</move>")  # back at the start, and further away
    _, over, score = env.step(state, "<stop/>")
    assert over and score.value == 0.0
    assert (score.parts["repeated"], score.parts["away"], score.parts["false_stop"], score.parts["distance"]) == (
        1,
        1,
        1,
        4,
    )


def test_without_a_cursor_every_place_looks_the_same():
    env = point(cursor=False)
    state, (opened,) = env.start(SCREEN, TOOLS)
    (told,), _, _ = env.step(state, "<move>left 2</move>")
    assert opened.media == told.media and seen(HELD.of(opened.media[0])).cursor is None


def test_the_last_move_ends_the_episode_where_it_leads():
    state, _ = (env := point(most=1)).start(SCREEN, TOOLS)
    _, over, score = env.step(state, "<move>left 2 down 2</move>")
    assert over and score.value == 1.0 and score.parts["near"] == 0.0
    state, _ = env.start(SCREEN, TOOLS)
    assert env.step(state, "over there")[2].parts["malformed"] == 1.0


def test_frames_are_numbered_and_those_asked_for_are_shown():
    env = frames(first=3, each=3)
    state, (opened,) = env.start(CLIP, TOOLS)
    assert opened.content.startswith("1 <image> 4 <image> 8 <image> of 8. The red square")
    clip = draw(CLIP)
    assert all((HELD.of(m) == clip[i]).all() for m, i in zip(opened.media, (0, 3, 7), strict=True))
    (told,), over, _ = env.step(state, "<frames>4 5</frames>")
    assert not over and told.content == "4 <image> 5 <image>" and (HELD.of(told.media[1]) == clip[4]).all()
    _, over, score = env.step(state, "<answer>blue</answer>")
    assert over and score.value == 1.0 and score.parts["share"] == 0.5 and score.parts["sound"] == 1.0


def test_what_is_unsound_and_what_is_too_much():
    env = frames(first=3, each=3, most=2)
    state, _ = env.start(CLIP, TOOLS)
    assert env.step(state, "<frames>7 9</frames>")[0][0].content == "no such frames"
    env.step(state, "<frames>1 2</frames>")
    _, over, score = env.step(state, "<frames>2 3</frames>")
    assert over and score.value == 0.0 and score.parts["sound"] == 0.0 and score.parts["calls"] == 3.0
    state, _ = env.start(CLIP, TOOLS)
    env.step(state, "<frames>2 3</frames>")
    env.step(state, "<frames>2 3</frames>")  # again
    assert env.step(state, "<answer>blue</answer>")[2].parts["sound"] == 0.0


def test_blanked_frames_are_white_and_rungs_show_less_of_more():
    state, _ = (env := frames(shown="white")).start(CLIP, TOOLS)
    (told,), _, _ = env.step(state, "<frames>5 5</frames>")
    assert (HELD.of(told.media[0]) == 255).all()
    from dataclasses import replace

    _, (many,) = frames(rungs=((8, 8), (2, 32))).start(replace(CLIP, args={"rung": 0}), TOOLS)
    assert len(many.media) == 8
    small = HELD.of(many.media[0])
    assert small.shape == (32, 32, 3) and all((small[4 * i : 4 * i + 4, :4] == small[4 * i, 0]).all() for i in range(8))


def test_blocks_and_spreads_by_hand():
    picture = np.zeros((4, 4, 3), dtype=np.uint8)
    picture[0, 0] = 100
    assert smaller(picture, 2)[:2, :2].tolist() == [[[25] * 3] * 2] * 2 and (smaller(picture, 4) == picture).all()
    assert spread(1, 16, 4) == [1, 6, 11, 16] and spread(6, 9, 1) == [7] and spread(5, 6, 4) == [5, 6]


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: point(most=0), "allow at least one move"),
        (lambda: frames(first=0), "show at least one frame"),
        (lambda: frames(shown="black"), "name picture or white"),
        (lambda: point().start(CLIP, TOOLS), "describes no screen"),
    ],
)
def test_bad_knobs_are_one_sentence(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()
