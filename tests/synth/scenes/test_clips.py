"""Clips: the frames say what the text says, and what is asked is read from them alone; answers by hand."""

from __future__ import annotations

import pytest

from synth.families.clip_questions import ASKS, clip_questions, solve
from synth.questions.certify import certify
from synth.scenes import draw, parts
from synth.scenes.clips import describe, direction, frames, jumps, read, runs, tracks_seen
from synth.scenes.scenes import COLOURS
from synth.types import Problem

CLIP = "Clip of 32 in 4 frames: blue ring -, -, 3 3 4, 3 3 4; red square 0 1 6, 1 1 6, -, 2 1 6"


def test_a_description_is_read_back_and_drawn_frame_by_frame():
    side, tracks = read(CLIP)
    assert describe(side, tracks) == CLIP
    shown = frames(side, tracks)
    assert len(shown) == 4 and all(f.shape == (32, 32, 3) for f in shown)
    red = [(f == COLOURS["red"]).all(axis=2) for f in shown]
    assert [int(r.sum()) for r in red] == [36, 36, 0, 36]
    assert red[1][9:15, 9:15].all()  # column 1, row 1: pixels 9 to 14
    assert tracks_seen(shown) == tracks


def test_runs_ways_and_jumps_by_hand():
    track = read(CLIP)[1]["red square"]
    assert runs(track) == [(1, 2), (4, 4)] and direction(track) == "right" and jumps(track) == 0
    leap = ((0, 0, 6), (0, 2, 6), (1, 2, 6), None, (1, 0, 6))
    assert jumps(leap) == 2 and direction(((1, 1, 6), (0, 0, 6))) == "" and direction(((1, 3, 6), (1, 0, 6))) == "up"


@pytest.mark.parametrize(
    ("clip", "question", "answer"),
    [
        (CLIP, "Which way does the red square move?", "right"),
        (CLIP, "Which appears first, the blue ring or the red square?", "red square"),
        (CLIP, "In which frames is the red square shown?", "1-2; 4-4"),
        (CLIP, "In which frames is the blue ring shown?", "3-4"),
        (
            "Clip of 32 in 4 frames: blue ring -, 3 3 6, -, -; red square 0 1 4, 0 1 4, 0 1 6, 0 1 6",
            "The red square is larger after the flash. Which colour flashes?",
            "blue",
        ),
        # one gap; the caption is right; one leap, from row 1 to row 3
        (
            "Clip of 32 in 5 frames: red square 0 1 6, 1 1 6, -, 1 1 6, 1 3 6",
            "Caption: a red square moves right. Rate looks, caption and motion.",
            "4 5 4",
        ),
        # colour and way of the caption are wrong
        (
            "Clip of 32 in 3 frames: red square 0 1 6, 1 1 6, 2 1 6",
            "Caption: a blue square moves up. Rate looks, caption and motion.",
            "5 3 5",
        ),
    ],
)
def test_answers_by_hand(clip, question, answer):
    assert solve(f"{clip}\n{question}") == answer


@pytest.mark.parametrize("kind", ASKS)
def test_each_kind_is_certified_and_its_answers_differ(kind):
    drawn = [clip_questions(0, "train", i, asks=[kind], levels=[1, 2, 3]) for i in range(60)]
    problems = [p for p in drawn if isinstance(p, Problem)]
    assert len(problems) == 60 and not any(certify(p) for p in problems)
    answers = [p.answer for p in problems]
    assert max(answers.count(a) for a in set(answers)) <= 24
    assert all(3 < len(draw(p)) <= 16 and "Clip" not in parts(p.question)[1] for p in problems)


@pytest.mark.parametrize(
    "text",
    [
        "Clip of 32 in 0 frames: red square ",
        "Clip of 32 in 2 frames: red square 0 1 6",
        "Clip of 30 in 1 frames: red square 0 1 6",
        "Clip of 32 in 1 frames: red square 4 1 6",
        "Clip of 32 in 1 frames: red square 0 1 5",
        "Clip of 32 in 1 frames: pink square 0 1 6",
        "Clip of 32 in 1 frames: red square 0 1 6; red square 1 1 6",
        "Clip of 32 in 1 frames: red square left",
    ],
)
def test_what_is_no_clip_is_one_sentence(text):
    with pytest.raises(ValueError, match=r"Clip of|describes no clip"):
        read(text)
    with pytest.raises(ValueError, match="name some of direction"):
        clip_questions(0, "train", 0, asks=["smell"])
