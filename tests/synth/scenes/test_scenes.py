"""Drawn scenes: the pixels say what the text says, and nothing else is needed to read them."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from synth.families.scene_questions import ASKS, LADDER, scattered, scene_questions, warmth
from synth.scenes import draw, parts
from synth.scenes.scenes import COLOURS, GROUND, SHAPES, SIZES, Thing, describe, mask, pixels, read, seen
from synth.types import Problem

SCENE = "Scene of 32: blue ring 4 at 3 0; red square 6 at 1 2"


def test_a_description_is_read_back_and_drawn_where_it_says():
    side, things = read(SCENE)
    assert describe(side, things) == SCENE and things[1] == Thing("red", "square", 6, 1, 2)
    picture = pixels(side, things)
    assert picture.shape == (32, 32, 3) and picture.dtype == np.uint8
    left, top, right, bottom = things[1].box
    assert (left, top, right, bottom) == (9, 17, 15, 23)
    assert (picture[top:bottom, left:right] == COLOURS["red"]).all()
    assert tuple(picture[top - 1, left]) == (GROUND,) * 3
    ring = (picture == COLOURS["blue"]).all(axis=2)
    assert ring.sum() == 12  # the edge of 4 x 4


def test_every_shape_is_read_from_its_pixels():
    things = [Thing("green", s, n, x, y) for y, n in enumerate(SIZES) for x, s in enumerate(SHAPES)]
    assert seen(pixels(32, things)) == things
    shapes = {(s, n): mask(s, n).tobytes() for s in SHAPES for n in SIZES}
    assert len(set(shapes.values())) == len(shapes)


def test_random_scenes_are_read_from_their_pixels():
    for i in range(60):
        things = scattered(Random(i), 6, 8)
        assert seen(pixels(64, things)) == sorted(things, key=lambda t: (t.y, t.x))


def test_a_picture_is_a_function_of_the_problem_alone():
    problems = [p for i in range(12) if isinstance(p := scene_questions(0, "train", i, levels=[1, 3]), Problem)]
    assert all((draw(p)[0] == draw(p)[0]).all() for p in problems)
    assert {draw(p)[0].shape for p in problems} == {(32, 32, 3), (64, 64, 3)}
    assert all("\n" not in parts(p.question)[1] for p in problems)


@pytest.mark.parametrize(
    (
        "colours",
        "rating",
    ),  # 1 + 8 x 0, 1 + 8 x 1, 1 + 8 / 3 = 3.67, 1 + 8 x 2 / 3 = 6.33, 1 + 8 / 4 = 3, 1 + 8 x 3 / 16 = 2.5
    [
        (["blue"], "1"),
        (["red", "yellow"], "9"),
        (["red", "blue", "green"], "4"),
        (["red", "blue", "yellow"], "6"),
        (["red", "blue", "green", "blue"], "3"),
        (["red"] * 3 + ["blue"] * 13, "3"),
    ],
)
def test_how_warm_a_picture_is(colours, rating):
    assert warmth(colours) == rating


@pytest.mark.parametrize("kind", [*ASKS, "warm"])
def test_each_kind_is_asked_and_its_answers_differ(kind):
    drawn = [scene_questions(0, "train", i, asks=[kind], levels=[2]) for i in range(40)]
    answers = [p.answer for p in drawn if isinstance(p, Problem)]
    assert len(answers) == 40 and len(set(answers)) >= 2
    assert max(answers.count(a) for a in set(answers)) <= 28


def test_another_picture_gives_another_answer():
    """The route by pixels reads pixels: with a thing painted over, the certificate fails."""
    from synth.families import scene_questions as module
    from synth.questions.certify import certify

    p = scene_questions(0, "train", 0, asks=["count"])
    assert isinstance(p, Problem) and certify(p) is None
    of = parts(p.question)[1].split()[-1].rstrip("?")
    plain, module.pixels = module.pixels, lambda side, things: pixels(side, [t for t in things if t.colour != of])
    try:
        assert (certify(p) is None) == (p.answer == "0")
    finally:
        module.pixels = plain


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: read("Scene of 32: pink square 6 at 1 2"), "colours are red, green"),
        (lambda: read("Scene of 32: red square 6 at 4 2"), "columns and rows below"),
        (lambda: read("Scene of 32: a house"), "describes no scene"),
        (
            lambda: draw(Problem.make(prompt="How many?", answer="1", verifier="exact", family="x", split="train")),
            "describes no picture",
        ),
        (lambda: scene_questions(0, "train", 0, asks=["smell"]), "name some of count, colour"),
        (lambda: seen(np.full((8, 8, 3), 7, dtype=np.uint8)), "shows no shape of one known colour"),
    ],
)
def test_bad_scenes_are_one_sentence(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()


def test_levels_grow():
    assert [k["cells"] for k in LADDER] == sorted(k["cells"] for k in LADDER)
    assert [k["things"] for k in LADDER[:3]] == sorted(k["things"] for k in LADDER[:3])
