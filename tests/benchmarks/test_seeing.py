"""What the benchmark of sight shows in place of pictures says nothing of them."""

from functools import partial

import numpy as np
import pytest

from benchmarks import seeing
from synth.families.clip_questions import clip_questions
from synth.types import Problem
from tasks.lab.picture_worlds import made


def test_blanks_have_the_size_of_each_picture_and_nothing_else_of_it():
    clip, other = made(clip_questions, "train", 2, asks=("rate",), levels=(1,))
    drawn = seeing.SHOWN["picture"](clip)
    assert len(drawn) > 2
    for shown in ("noise", "white"):
        blank = seeing.SHOWN[shown](clip)
        assert [x.shape for x in blank] == [x.shape for x in drawn] and all(x.dtype == np.uint8 for x in blank)
    assert all((x == 255).all() for x in seeing.SHOWN["white"](clip))
    pairs = [(a, b) for a, b in zip(drawn, seeing.SHOWN["noise"](clip), strict=True) if a.std()]
    assert pairs and all(abs(np.corrcoef(a.ravel(), b.ravel())[0, 1]) < 0.1 for a, b in pairs)
    first, again = seeing.SHOWN["noise"](clip), seeing.SHOWN["noise"](clip)
    assert all((a == b).all() for a, b in zip(first, again, strict=True))
    assert (first[0] != seeing.SHOWN["noise"](other)[0]).any()


def test_a_row_has_the_picture_and_its_controls():
    row = seeing.result("world: here", "mean score", {"picture": [1.0, 0.0], "noise": [0.0, 0.0], "white": [0.5, 0.0]})
    assert row["value"] == 0.5 and row["peers"] == {"noise": 0.0, "white": 0.25} and row["n"] == 2
    assert row["low"] < 0.5 < row["high"]


def test_another_is_the_picture_of_another_problem_of_that_size():
    clips = made(clip_questions, "train", 12, asks=("rate",), levels=(1,))
    drawn = seeing.another(clips)
    for clip in clips:
        own, other = seeing.SHOWN["picture"](clip), drawn(clip)
        assert [x.shape for x in own] == [x.shape for x in other]
        assert any((a != b).any() for a, b in zip(own, other, strict=True))


def test_the_one_answer_is_chosen_where_it_is_known():
    """Of the known problems two in three have the answer 2, and one in three of the measured."""

    def posed(*answers):
        problem = partial(Problem.make, verifier="exact", family="none", split="train")
        return [problem(prompt=f"how many? {k}", answer=answer) for k, answer in enumerate(answers)]

    assert seeing.one_answer(posed("2", "1", "2"), posed("1", "2", "1")) == pytest.approx(1 / 3)
