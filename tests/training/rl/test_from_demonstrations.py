"""A reward learned from demonstrations: it tells answers apart by their question, never reads a score, and says what is wrong."""

from dataclasses import replace

import numpy as np
import pytest

from tasks.lab.toy import groups
from training.rl.reward.from_demonstrations import from_demonstrations
from training.types import Segment


def crossed(scores):
    """Two questions, tokens 5 and 6; the expert answers 1 to the one and 2 to the other, the policy either to both."""

    def rollout(r, question, word, shown):
        segments = (
            Segment(ids=np.array([0, question]), role="env"),
            Segment(ids=np.array([word]), role="model", logp=np.array([-1.0], dtype=np.float32)),
        )
        return replace(r, segments=segments, info={"off_policy": shown})

    plain = groups([scores, scores])
    words = (((5, 1), (5, 2), (5, 1)), ((6, 1), (6, 2), (6, 2)))
    return [
        replace(
            g,
            rollouts=tuple(rollout(r, q, w, i == 2) for i, (r, (q, w)) in enumerate(zip(g.rollouts, row, strict=True))),
        )
        for g, row in zip(plain, words, strict=True)
    ]


def learned(steps=30, scores=(0.0, 0.0, 0.0), **knobs):
    state, rng = {}, np.random.default_rng(0)
    for _ in range(steps):
        out = from_demonstrations(crossed(list(scores)), [np.array(scores)] * 2, state, rng, **knobs)
    return out


def test_the_expert_s_word_is_paid_more_question_by_question():
    first, second = learned()
    assert first[0] > first[1] + 0.5 and second[1] > second[0] + 0.5


def test_without_the_question_both_words_are_alike():
    first, second = learned(conditional=False)
    assert np.allclose([first[0], second[0]], [first[1], second[1]])


def test_scores_are_never_read():
    for a, b in zip(learned(), learned(scores=(1.0, 0.5, 0.0)), strict=True):
        assert np.allclose(a[:2], b[:2])


def test_what_is_paid_sums_to_nothing():
    assert sum(r[:2].sum() for r in learned()) == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("knobs", [{"updates": 0}, {"buckets": 0}])
def test_numbers_that_mean_nothing_are_refused(knobs):
    with pytest.raises(ValueError, match="at least 1"):
        learned(1, **knobs)


def test_another_number_of_buckets_than_before_is_refused():
    state = {}
    from_demonstrations(crossed([0.0] * 3), [np.zeros(3)] * 2, state, np.random.default_rng(0), buckets=16)
    with pytest.raises(ValueError, match="16 were learned before"):
        from_demonstrations(crossed([0.0] * 3), [np.zeros(3)] * 2, state, np.random.default_rng(0), buckets=8)
