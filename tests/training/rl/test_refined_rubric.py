"""A rubric that knows five of twelve criteria learns the others from ties among its best answers."""

import numpy as np
import pytest

from tasks.lab.toy import groups
from training.rl.reward.refined_rubric import refined_rubric

ATTRIBUTES = tuple(f"a{i}" for i in range(12))
KNOWN, UNKNOWN = ATTRIBUTES[:5], ATTRIBUTES[5:]
NOBODY = np.random.default_rng(0)


def drawn(rng, prompts=24, answers=16):
    """Groups of answers that have each attribute with an even chance, and what they are truly worth."""
    has = rng.integers(0, 2, (prompts, answers, len(ATTRIBUTES))).astype(float)
    played = groups(
        rewards=[[0.0] * answers] * prompts,
        parts=[[dict(zip(ATTRIBUTES, map(float, x), strict=True)) for x in one] for one in has],
    )
    return played, [np.zeros(answers)] * prompts, has.mean(2)


def order(rng, state):
    """Share of the pairs within the best tenth that the rubric orders as they are; ties count half."""
    played, rewards, worth = drawn(rng)
    scores = np.concatenate(
        refined_rubric(played, rewards, state, NOBODY, known=KNOWN, candidates=UNKNOWN, every=10**6)
    )
    worth = worth.ravel()
    top = np.argsort(-worth, kind="stable")[: len(worth) // 10]
    pairs = [(i, j) for i in top for j in top if worth[i] > worth[j]]
    return float(np.mean([0.5 * (1 + np.sign(scores[i] - scores[j])) for i, j in pairs]))


def test_four_rounds_order_the_best_tenth():
    rng, state = np.random.default_rng(1), {}
    before = order(rng, {})
    for _ in range(4):
        played, rewards, _ = drawn(rng)
        refined_rubric(played, rewards, state, NOBODY, known=KNOWN, candidates=UNKNOWN, every=1, add=2)
    after = order(rng, {"joined": state["joined"]})
    assert set(state["joined"]) == set(UNKNOWN)
    assert before <= 0.7 and after >= 0.85


def test_nothing_joins_where_the_best_do_not_tie():
    played = groups(rewards=[[0.0, 0.0]], parts=[[{"a": 1.0, "b": 0.0}, {"a": 0.0, "b": 1.0}]])
    state = {}
    refined_rubric(played, [np.zeros(2)], state, NOBODY, known=("a",), candidates=("b",), every=1)
    assert state["joined"] == []


@pytest.mark.parametrize(
    "knobs, message",
    [
        ({"known": ("a",), "weights": (1.0, 2.0)}, "2 weights for 1 criteria"),
        ({"known": ("a",), "candidates": ("a",)}, "a is a criterion already"),
        ({"every": 0}, "both count from 1"),
    ],
)
def test_bad_knobs_are_a_sentence(knobs, message):
    with pytest.raises(ValueError, match=message):
        refined_rubric([], [], {}, NOBODY, **knobs)
