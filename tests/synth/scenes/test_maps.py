"""Drawn transit maps: the pixels say what the text says, ways are shortest, and details are counted by hand."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from synth.families.transit_maps import LADDER, laid, transit_maps
from synth.scenes import draw
from synth.scenes.maps import describe, pixels, read, tracks_of, tracks_seen, way
from synth.scenes.scenes import COLOURS, GROUND
from synth.types import Problem, Unscorable
from synth.verify import verify

MAP = "Map of 32: blue 1 0, 1 1, 1 2; red 0 0, 1 0, 2 0"


def problem(answer, question="How does one get from 0 0 to 1 2?"):
    return Problem.make(prompt=f"{MAP}\n{question}", answer=answer, verifier="transit", family="x", split="train")


def test_a_description_is_read_back_and_drawn_where_it_says():
    side, lines = read(MAP)
    assert describe(side, lines) == MAP
    picture = pixels(side, lines)
    assert picture.shape == (32, 32, 3) and picture.dtype == np.uint8
    assert (picture[3:5, 5:11] == COLOURS["red"]).all() and (picture[5:11, 11:13] == COLOURS["blue"]).all()
    assert tuple(picture[2, 7]) == (GROUND,) * 3 == tuple(picture[27, 27])


def test_random_maps_are_read_from_their_pixels():
    for i in range(60):
        lines = laid(Random(i), 2 + i % 2)
        assert tracks_seen(pixels(32, lines)) == {name: set(tracks_of(stops)) for name, stops in lines.items()}


@pytest.mark.parametrize(
    "text",
    [
        "Map of 32: red 0 0",  # no track
        "Map of 32: red 0 0, 2 0",  # a jump
        "Map of 32: red 3 3, 4 3",  # outside
        "Map of 32: red 0 0, 1 0; blue 1 0, 0 0",  # a shared track
        "Map of 32: red 0 0, 1 0; red 2 0, 3 0",  # told twice
        "Map of 32: pink 0 0, 1 0",
        "Map of 30: red 0 0, 1 0",
        "Map of 32: ",
    ],
)
def test_what_is_no_map_is_one_sentence(text):
    with pytest.raises(ValueError, match="^'Map of"):
        read(text)


def test_a_way_has_the_fewest_legs():
    tracks = {name: tracks_of(stops) for name, stops in read(MAP)[1].items()}
    assert way(tracks, (0, 0), (1, 2)) == [((0, 0), "red", (1, 0)), ((1, 0), "blue", (1, 2))]
    assert way(tracks, (0, 0), (2, 0)) == [((0, 0), "red", (2, 0))]
    assert way(tracks, (0, 0), (3, 3)) is None and way(tracks, (0, 0), (0, 0)) == []


def test_problems_of_every_level_are_certified_and_shown():
    problems = [transit_maps(0, "train", i, levels=(1 + i % len(LADDER),)) for i in range(40)]
    assert all(isinstance(p, Problem) for p in problems)
    assert {p.verifier for p in problems} == {"ordered_list", "transit"} and {
        p.difficulty["stage"] for p in problems
    } == {
        1,
        2,
        3,
    }
    assert all(verify(p, p.answer).value == 1.0 and draw(p)[0].shape == (32, 32, 3) for p in problems)
    judged = [p.answer.split() for i in range(60) for p in [transit_maps(1, "train", i, levels=(1,))]]
    for place in zip(*judged, strict=True):
        assert 0.3 < place.count("yes") / 60 < 0.7


def test_details_of_a_route_by_hand():
    right = "0 0 red 1 0; 1 0 blue 1 2"
    # The right legs with the last one too short; one leg by the right line; two legs that do not meet.
    for answer, value, parts in (
        (right, 1.0, (1, 1, 1, 1, 1)),
        ("0 0 red 1 0; 1 0 blue 1 1", 0.0, (1, 0, 1, 1, 1)),
        ("0 0 red 2 0", 0.0, (1, 0, 2 / 3, 0, 0)),
        ("0 0 red 2 0; 1 0 blue 1 2", 0.0, (1, 1, 1, 0, 1)),
        ("1 2 blue 1 0; 1 0 red 0 0", 0.0, (0, 0, 1, 1, 1)),
    ):
        score = verify(problem(right), answer)
        values = [score.parts[k] for k in ("origin", "destination", "lines", "changes", "legs")]
        assert score.value == value and values == pytest.approx(parts), answer
        assert score.parts["drawn"] == 2 and score.parts["wanted_changes"] == 1


@pytest.mark.parametrize("gold", ["0 0 red 3 0", "by red", "0 0 red 1 0; 1 0 blue 1 1; 1 1 blue 1 2", "0 0 blue 1 2"])
def test_a_reference_that_is_no_shortest_way_is_not_scored(gold):
    question = "How does one get from 0 0 to 1 2?"
    score = verify(problem(gold, question), "0 0 red 1 0; 1 0 blue 1 2")
    assert isinstance(score, Unscorable)
