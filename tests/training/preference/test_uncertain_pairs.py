"""The rule that chooses which two answers are compared, by hand, and the world of arms in which it is measured."""

from dataclasses import replace

import numpy as np
import pytest

from synth.types import Scored, UserError
from tasks.lab import arms, registry, toy
from training.preference.on_policy_pairs import SampledPairs
from training.preference.update_rule.uncertain_pairs import uncertain_pairs


def test_a_comparison_by_hand():
    rule, d = uncertain_pairs(l2=1.0, dim=2), np.array([1.0, -1.0])
    assert rule.unknown(d[None])[0] == pytest.approx(2**0.5)
    rule.learn(d)
    # p = 1/2, H = I + d d^T / 4 = [[5, -1], [-1, 5]] / 4, its inverse [[5, 1], [1, 5]] / 6, and H^-1 d = (2/3, -2/3).
    np.testing.assert_allclose(rule.inverse, np.array([[5, 1], [1, 5]]) / 6, atol=1e-12)
    np.testing.assert_allclose(rule.theta, [1 / 3, -1 / 3], atol=1e-12)
    assert rule.unknown(np.array([d, [1.0, 1.0]])) == pytest.approx([(4 / 3) ** 0.5, 2**0.5]), "only d is known better"
    p = 1 / (1 + np.exp(-2 / 3))
    h = np.linalg.inv(rule.inverse) + p * (1 - p) * np.outer(d, d)
    rule.learn(d)
    np.testing.assert_allclose(rule.inverse, np.linalg.inv(h), atol=1e-12)


def test_the_least_known_difference_among_what_is_still_said():
    x = np.eye(3)[[0, 1, 1, 2]]
    rule = uncertain_pairs(l2=1.0, dim=3)
    assert rule.pick(x, x[0]) == (0, 1), "equally unknown: the one that is said twice"
    for _ in range(40):
        rule.learn(x[0] - x[1])
        rule.learn(x[1] - x[0])
    assert rule.pick(x, x[0]) == (0, 3), "the other is known by now"
    optimism = uncertain_pairs(query="optimism", l2=1.0, dim=3)
    optimism.theta[2] = 1.0
    assert optimism.pick(x, x[1]) == (3, 1), "the best against the calibration"
    assert uncertain_pairs(query="uniform").pick(x, x[0]) == (0, 1)


def answered(texts, rewards):
    (group,) = toy.groups([rewards], lengths=[[2] * len(rewards)])
    rollouts = []
    for r, ids, x in zip(group.rollouts, texts, rewards, strict=True):
        segments = tuple(replace(s, ids=np.array(ids)) if s.role == "model" else s for s in r.segments)
        rollouts.append(replace(r, segments=segments, score=Scored(value=x)))
    return replace(group, rollouts=tuple(rollouts))


def test_sampled_pairs_are_those_that_the_rule_compares_and_it_learns_of_them():
    group = answered([[1, 1], [1, 1], [2, 2], [3, 3]], [0.5, 0.5, 0.9, 0.0])
    rule = uncertain_pairs(dim=512)
    source = SampledPairs(problems=[], player=None, prompts=1, samples=4, seed=0, rules=[rule])
    chosen, rejected = source.unit(group, 0)
    assert chosen.ids[-1] == 2 and rejected.ids[-1] == 1, "not the best against the worst: the first sample is in it"
    better, first = (rule.features(group.rollouts[i]) for i in (2, 0))
    assert rule.theta @ (better - first) > 0 and np.linalg.norm(better) == pytest.approx(1)
    assert source.unit(answered([[1, 1], [2, 2]], [1.0, 1.0]), 0) == []
    other = uncertain_pairs(dim=512)
    other.load_state(rule.state(), None)
    assert np.array_equal(other.theta, rule.theta) and other.first.keys() == rule.first.keys()
    source.unit(group, 0)
    assert not np.array_equal(other.inverse, rule.inverse), "a state is a copy"


@pytest.mark.parametrize(
    ("knobs", "message"),
    [({"query": "greedy"}, "no query 'greedy'"), ({"l2": 0.0}, "l2 and dim are above 0"), ({"bonus": -1.0}, "bonus")],
)
def test_knobs_that_mean_nothing_are_a_sentence(knobs, message):
    with pytest.raises(UserError, match=message):
        uncertain_pairs(**knobs)


def test_the_regularised_optimum_and_its_value_by_hand():
    first, r = np.array([0.5, 0.5]), np.array([np.log(3), 0.0])
    p = arms.tilted(first, r, beta=1.0)
    np.testing.assert_allclose(p, [0.75, 0.25], atol=1e-12)
    # beta log sum p_0 exp(r / beta) = log((3 + 1) / 2).
    assert arms.value(p, first, r, beta=1.0) == pytest.approx(np.log(2))
    assert arms.value(first, first, r, beta=1.0) == pytest.approx(np.log(3) / 2)


def test_targeted_labels_cost_less_than_optimistic_and_uniform_ones():
    rule = "rlhf-targeted-exploration"
    ask = lambda query: registry.train(  # noqa: E731
        "arms", rule, {"prefer": {"update_rules": [{"piece": "uncertain_pairs", "query": query}]}}, 300, 101
    )
    targeted, optimism, uniform = map(ask, ("targeted", "optimism", "uniform"))
    assert targeted["regret"] < 0.8 * min(optimism["regret"], uniform["regret"])
    assert optimism["on_bad"] > 0.8 > 0.2 > targeted["on_bad"], "it measures against an answer that nobody gives"
    with pytest.raises(UserError, match="compares by the update rule uncertain_pairs"):
        registry.train("arms", "dpo", {}, 10, 1)
