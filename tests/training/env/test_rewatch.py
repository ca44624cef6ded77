"""Statements about a clip, by hand: what supports them, and what follows from them."""

from __future__ import annotations

import pytest

from synth.scenes import draw
from synth.types import Problem
from synth.verify._clip import derived, supported
from training.env.rewatch import rewatch

CLIP = "Clip of 32 in 3 frames: blue ring -, 3 3 4, 3 3 4; red square 0 1 6, 1 1 6, 2 1 6"
WAY, FIRST = "Which way does the red square move?", "Which appears first, the blue ring or the red square?"


@pytest.mark.parametrize(
    ("statement", "holds"),
    [
        ("frame 1: red square at 0 1", True),
        (" frame 3: red square at 2 1 ", True),
        ("frame 1: red square at 1 1", False),
        ("frame 1: blue ring at 3 3", False),  # not shown yet
        ("frame 4: red square at 2 1", False),
        ("frame 0: red square at 2 1", False),
        ("frame 1: red ring at 0 1", False),
        ("it moves", False),
    ],
)
def test_what_supports_a_statement(statement, holds):
    assert supported(f"{CLIP}\n{WAY}", statement) is holds


def test_what_follows_from_statements_alone():
    one, three, ring = "frame 1: red square at 0 1", "frame 3: red square at 2 1", "frame 2: blue ring at 3 3"
    assert derived(WAY, [one, three]) == "right" and derived(WAY, [three, one]) == "right"
    assert derived(WAY, [one]) == derived(WAY, [one, ring]) == derived("How many?", [one, three]) == ""
    assert derived(FIRST, [one, ring]) == "red square" and derived(FIRST, [three]) == ""
    assert derived(FIRST, ["frame 2: red square at 1 1", ring]) == ""  # both in the second frame
    assert derived(WAY, [one, "frame 3: red square at 0 3"]) == "down"  # what is said, true or not


def test_parts_of_a_turn():
    p = Problem.make(
        prompt=f"{CLIP}\n{WAY}", answer="right", verifier="exact", env="rewatch", family="x", split="train"
    )
    env = rewatch(most=2)
    see = "<observation>frame {}: red square at {} 1</observation>".format
    for text, parts in (
        (see(1, 0) + see(3, 2) + see(2, 3), (2.0, 1.0, 0.0, 1.0)),  # the third is not read
        (see(1, 0) + see(2, 0), (2.0, 0.5, 0.5, 0.0)),
        ("", (0.0, 0.0, 0.0, 0.0)),
    ):
        state, _ = env.start(p, {"draw": draw})
        _, over, score = env.step(state, f"{text}<answer>right</answer>")
        assert over and score.value == 1.0
        assert tuple(score.parts[k] for k in ("observed", "supported", "unsupported", "sufficient")) == parts
    with pytest.raises(ValueError, match="and 1 or more"):
        rewatch(most=0)
