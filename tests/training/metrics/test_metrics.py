"""Metrics of evaluation: numbers computed by hand, estimators against enumeration, tests against what they promise."""

from itertools import combinations
from math import log

import numpy as np
import pytest

from training.metrics import interval, of_sums
from training.metrics._tests import exact, holm, sign_flip, wilson
from training.metrics.answer_overlap import answer_overlap
from training.metrics.best_of_n import best_of_n, expected
from training.metrics.calibration import calibration, reliability
from training.metrics.cost_per_right import cost_per_right
from training.metrics.diversity import diversity, ead
from training.metrics.format_and_refusal import format_and_refusal
from training.metrics.geometry import geometry
from training.metrics.length_bias import length_bias
from training.metrics.majority_at_k import majority_at_k
from training.metrics.pass_at_k import pass_at_k
from training.metrics.reward_stability import reward_stability
from training.metrics.self_bleu import bleu, self_bleu
from training.metrics.transfer import transfer

NAN = float("nan")


def test_an_interval_at_the_edge_is_not_certain():
    # none of 300: 1 - 0.025^(1/300) = 0.0122
    none = pass_at_k([[0] * 8] * 300, ks=(1,))["pass@1"]
    assert none["mean"] == none["low"] == 0.0 and none["high"] == pytest.approx(0.01222, abs=1e-5)
    every = interval([1.0] * 300, shares=True)
    assert every["high"] == 1.0 and every["low"] == pytest.approx(1 - 0.01222, abs=1e-5)
    assert interval([0.0] * 300)["high"] == 0.0, "a number of calls has no such bound"
    assert interval([0.0] * 299 + [1.0], shares=True)["high"] < 0.02


def test_intervals_cover():
    rng = np.random.default_rng(1)
    inside = [wilson(int(k), 50) for k in rng.binomial(50, 0.1, 400)]
    assert 0.92 < np.mean([low <= 0.1 <= high for low, high in inside]) < 0.99
    # By the formula: z^2 / (n + z^2).
    assert wilson(0, 10) == (0.0, pytest.approx(0.27753, abs=1e-5)) and wilson(0, 0) == (
        0.0,
        1.0,
    )
    assert exact(10, all_right=False)[1] == pytest.approx(1 - 0.025**0.1)


def test_sign_flips_and_holm():
    assert sign_flip([1.0, 1.0, 1.0]) == 0.25, "2 of 8 ways are as far from 0"
    assert sign_flip([1.0, -1.0]) == 1.0 and sign_flip([]) == 1.0 and sign_flip([0.0, NAN]) == 1.0
    assert sign_flip([1.0] * 10) == pytest.approx(2 / 1024)
    assert sign_flip([0.5] * 40) == pytest.approx(1 / 10000), "the one seen is counted"
    rng = np.random.default_rng(0)
    false = [sign_flip(rng.normal(size=20), draws=199, seed=i) <= 0.05 for i in range(200)]
    assert np.mean(false) < 0.1, "a test at 5 %"
    # 0.01 * 4 = 0.04; 0.02 * 3 = 0.06; 0.03 * 2 = 0.06; 0.5
    assert holm([0.02, 0.5, 0.01, 0.03]) == pytest.approx([0.06, 0.5, 0.04, 0.06])
    assert holm([0.4, 0.9]) == pytest.approx([0.8, 0.9]) and holm([]) == []


def test_majority_shares_ties_and_counts_no_silence():
    one = [[1.0, 0.0, 1.0, 0.0]], [["Rome", "Paris", "the Rome!", ""]]
    assert majority_at_k(*one, ks=(4,))["majority@4"]["mean"] == 1.0, "two for Rome, one for Paris, one silent"
    # of three: {R,P,R} 1, {R,P,-} tie 1/2, {R,R,-} 1, {P,R,-} 1/2 -> 3/4
    assert majority_at_k(*one, ks=(3,))["majority@3"]["mean"] == pytest.approx(0.75)
    assert majority_at_k([[0.0, 0.0]], [["", ""]], ks=(2,))["majority@2"]["mean"] == 0.0
    assert "majority@9" not in majority_at_k(*one, ks=(9,))


def test_best_of_n_is_the_mean_over_all_subsets():
    rng = np.random.default_rng(2)
    scores, rewards = rng.random(7), rng.integers(0, 4, 7).astype(float)
    for n in (1, 2, 3, 7):
        seen = []
        for subset in combinations(range(7), n):
            top = max(rewards[i] for i in subset)
            seen.append(np.mean([scores[i] for i in subset if rewards[i] == top]))
        assert expected(scores, rewards, n) == pytest.approx(np.mean(seen)), "ties share"
    distinct = rng.permutation(7).astype(float)
    for n in (1, 2, 5):
        every = [scores[max(s, key=lambda i: distinct[i])] for s in combinations(range(7), n)]
        assert expected(scores, distinct, n) == pytest.approx(np.mean(every))
    measured = best_of_n([[1.0, 0.0]], [[0.2, 0.9]], ns=(2,))
    assert measured["best_of@2"]["mean"] == 0.0 and measured["bon_gap@2"]["mean"] == 1.0


def test_overlap_of_answers():
    measured = answer_overlap([[1.0, 0.0]], [["the Orange River", "Orange"]], [["Orange River"] * 2])
    assert measured["exact_match"]["mean"] == 0.5 and measured["f1"]["mean"] == pytest.approx((1 + 2 / 3) / 2)


def test_the_price_of_a_right_answer():
    measured = cost_per_right([[1.0, 0.0], [1.0, 1.0]], [[1, 2], [3, 0]], [[10, 20], [30, 0]])
    assert measured["calls_per_right"]["mean"] == 2.0 and measured["tokens_per_right"]["mean"] == 20.0
    assert np.isnan(cost_per_right([[0.0]], [[1]], [[5]])["tokens_per_right"]["mean"]), (
        "there is no price where nothing is right"
    )


def test_calibration():
    # bins of 0.1: two at 0.95 with one right, gap 0.45; two at 0.25 with none right, gap 0.25; ece (2 * 0.45 + 2 *
    # 0.25) / 4 = 0.35
    scored, sure = [[1.0, 0.0], [0.0, 0.0]], [[0.95, 0.95], [0.25, 0.25]]
    measured = calibration(scored, sure)
    assert measured["ece"]["mean"] == pytest.approx(0.35)
    assert measured["brier"]["mean"] == pytest.approx((0.05**2 + 0.95**2 + 2 * 0.25**2) / 4)
    assert measured["right@50%"]["mean"] == 0.5
    assert reliability([0.95, 0.95, 0.25], [1, 0, 0]) == [
        {"confidence": 0.25, "right": 0.0, "n": 1},
        {"confidence": 0.95, "right": 0.5, "n": 2},
    ]
    rng = np.random.default_rng(0)
    p = rng.random((400, 5))
    honest = calibration((rng.random((400, 5)) < p).astype(float).tolist(), p.tolist())
    assert honest["ece"]["mean"] < 0.05 and honest["right@50%"]["mean"] > 0.7
    assert (
        honest["aurc"]["mean"]
        < calibration((rng.random((400, 5)) < p).astype(float).tolist(), (1 - p).tolist())["aurc"]["mean"]
    )


def test_diversity():
    same, varied = [["a b c"] * 4], [["a b c", "d e f", "g h i", "j k l"]]
    for name, low in (("distinct@1", 3 / 12), ("distinct@2", 2 / 8)):
        assert diversity([[0.0] * 4], same, [["x"] * 4])[name]["mean"] == low
        assert diversity([[0.0] * 4], varied, [["x"] * 4])[name]["mean"] == 1.0
    assert diversity([[0.0] * 4], same, [["x", "X.", "y", "y"]])["answer_entropy"]["mean"] == pytest.approx(log(2))
    # V = 3, C = 12, N = 3: 3 / (3 (1 - (2/3)^12)) = 1 / 0.992293
    assert ead({1: [("a",), ("b",), ("c",)] * 4}, {1: 3}) == pytest.approx(1 / (1 - (2 / 3) ** 12))
    collapsed = diversity([[0.0]] * 40, [["always the same words"]] * 40, [["x"]] * 40)["across"]["mean"]
    assert collapsed < diversity([[0.0]] * 40, [[f"w{i} x{i} y{i}"] for i in range(40)], [["x"]] * 40)["across"]["mean"]


def test_self_bleu():
    assert self_bleu([[0.0] * 3], [["a b c d e"] * 3])["self_bleu"]["mean"] == pytest.approx(1.0)
    assert self_bleu([[0.0] * 2], [["a b c", "d e f"]])["self_bleu"]["mean"] == 0.0
    # p1 = 3/4, p2 = (2 + 1) / (3 + 1), order 2 at most; same length, no brevity penalty
    assert bleu("a b c x".split(), ["a b c d".split()], 2) == pytest.approx((0.75 * 0.75) ** 0.5)
    assert bleu(["a"], [["a", "b"]], 4) == pytest.approx(np.exp(1 - 2))


def test_behaviour():
    texts = [["I'm sorry, but I cannot help.", "<answer>3</answer>", "  ", "I can do it"]]
    measured = format_and_refusal(
        [[0.0, 1.0, 0.0, 0.0]], texts, [[7, 3, 1, 3]], [["wrong", "right", "malformed", "truncated"]]
    )
    assert {k: measured[k]["mean"] for k in ("format", "refusal", "empty", "length")} == {
        "format": 0.5,
        "refusal": 0.25,
        "empty": 0.25,
        "length": 3.5,
    }


def test_length_bias():
    measured = length_bias([[1.0, 0.0, 1.0, 0.0]], [[20, 10, 20, 10]])
    assert (
        measured["length_correlation"]["mean"] == pytest.approx(1.0)
        and measured["length_gap"]["mean"] == 10
        and measured["slope"]["mean"] == 10.0
    )
    easy_and_short = length_bias([[1.0, 1.0], [0.0, 0.0]], [[5, 5], [50, 50]])
    assert easy_and_short["length_correlation"]["mean"] == 0.0, "hard problems with long answers are no bias"


def test_transfer_of_one_who_understands_and_one_who_learns_by_heart():
    def study(gain):
        scored, trained, tested = [], [], []
        for b in "ab":
            for _ in range(5):
                trained.append(["", "a", "b"])
                tested.append([b] * 3)
                scored.append([0.1, 0.1 + gain("a", b), 0.1 + gain("b", b)])
        return transfer(scored, trained, tested)

    understood, by_heart = study(lambda a, b: 0.5), study(lambda a, b: 0.5 * (a == b))
    assert understood["ratio"]["mean"] == pytest.approx(1.0) and by_heart["ratio"]["mean"] == pytest.approx(0.0)
    assert (
        by_heart["a->a"]["mean"] == pytest.approx(0.5)
        and by_heart["a->b"]["mean"] == 0.0
        and by_heart["a->b"]["n"] == 5
    )
    assert by_heart["own"]["mean"] == pytest.approx(0.5)


def test_the_policy_cliff():
    tied = reward_stability([[1.0, 1.0]], eps=0.01)
    assert (
        tied["tv_greedy"]["mean"] == 0.5
        and tied["tv"]["mean"] == pytest.approx(0.0025, rel=0.01)
        and tied["ties"]["mean"] == 1.0
    )
    apart = reward_stability([[1.0, 0.0]], eps=0.01)
    assert apart["tv_greedy"]["mean"] == 0.0 and apart["ties"]["mean"] == 0.0
    small, large = (reward_stability([[1.0, 1.0, 0.3]], eps=e)["tv"]["mean"] for e in (0.01, 0.02))
    assert large / small == pytest.approx(2, rel=0.02), "with entropy the move is linear in the change"


def test_geometry():
    rng = np.random.default_rng(0)
    flat = rng.normal(size=(20000, 32))
    assert geometry([[0.0]] * len(flat), flat[:, None].tolist(), resamples=2)["rank_me"]["mean"] >= 31.9
    law = rng.normal(size=(20000, 64)) * np.arange(1, 65) ** -0.75
    assert geometry([[0.0]] * len(law), law[:, None].tolist(), resamples=2, first=2, last=60)["alpha"][
        "mean"
    ] == pytest.approx(1.5, abs=0.05)
    low = rng.normal(size=(500, 4)) @ rng.normal(size=(4, 32))
    assert geometry([[0.0]] * 500, low[:, None].tolist(), resamples=2)["rank_me"]["mean"] <= 4 + 1e-6


def test_sums_are_redrawn_by_problem():
    parts = np.array([[1.0, 2.0], [3.0, 4.0], [0.0, 1.0]])
    measured = of_sums(parts, lambda x: x[:, 0] / x[:, 1])
    assert (
        measured["mean"] == pytest.approx(4 / 7) and measured["low"] < 4 / 7 < measured["high"] and measured["n"] == 3
    )
