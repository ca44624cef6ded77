"""Levels by tries: the bins by hand, who is drawn, and what is refused."""

import numpy as np
import pytest

from tasks.lab.toy import problems
from training.rl.curriculum.attempt_levels import attempt_levels, level, observe


class Solves:
    """Answers the i-th problem rightly i times of each round of tries."""

    def play(self, posed, samples, *seed):
        class Played:
            def __init__(self, right):
                self.rewards = np.array([1.0] * right + [0.0] * (samples - right))

        return [Played(min(i, samples)) for i in range(len(posed))]


def test_five_tries_make_six_levels():
    assert [level(right, 5, 6) for right in range(6)] == [6, 5, 4, 3, 2, 1]
    assert [level(right, 4, 2) for right in range(5)] == [2, 2, 2, 1, 1]


def test_a_problem_s_level_is_how_often_it_was_right():
    posed = problems(6)
    assert list(observe(Solves(), posed).values()) == [6, 5, 4, 3, 2, 1]


def test_what_is_not_kept_is_never_drawn():
    posed = problems(6)
    known = observe(Solves(), posed, keep=(5, 6))
    state, rng = {"attempt_levels": known}, np.random.default_rng(0)
    assert {i for _ in range(50) for i in attempt_levels(posed, state, rng, 1, keep=(5, 6))} == {0, 1}


@pytest.mark.parametrize("knobs", [{"tries": 0}, {"keep": ()}, {"keep": (7,)}, {"levels": 0}])
def test_levels_that_there_are_not_are_refused(knobs):
    with pytest.raises(ValueError, match="keep names some of the levels"):
        observe(Solves(), problems(2), **knobs)


def test_no_problem_of_the_kept_levels_is_one_sentence():
    posed = problems(2)
    with pytest.raises(ValueError, match="no problem of 2 is of the levels"):
        attempt_levels(posed, {"attempt_levels": {p.id: 3 for p in posed}}, np.random.default_rng(0), 1, keep=(6,))
