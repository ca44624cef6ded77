"""Pairs by two critics and a referee: what the referee finds, what reflection removes, and what is refused."""

from random import Random

import pytest

from synth.families.constrained_writing import constrained_writing
from synth.preferences.makers.by_critics import by_critics, clauses_of, length, verdict
from synth.types import PreferencePair, Problem

PROBLEMS = [p for i in range(60) if isinstance(p := constrained_writing(1, "train", i, levels=[2]), Problem)]


def pairs(**knobs):
    results = [by_critics(1, p, i, lambda *_: [], **knobs) for i, p in enumerate(PROBLEMS)]
    kept = [(p, x) for p, x in zip(PROBLEMS, results, strict=True) if isinstance(x, PreferencePair)]
    return kept, [x.reason for x in results if not isinstance(x, PreferencePair)]


def share(p, text):
    return sum(clauses_of(p, text)) / len(p.args["clauses"])


def test_critics_who_never_err_are_the_truth():
    for kept in ([True, False, True], [False], [True] * 4):
        assert verdict(kept, 1, 0.0, Random(0)) == verdict(kept, 3, 0.0, Random(0)) == sum(kept) / len(kept)


def test_a_referee_of_one_round_finds_a_kept_clause_as_often_as_neither_critic_errs():
    rng = Random(1)
    kept_share = sum(verdict([True], 1, 0.2, rng) for _ in range(4000)) / 4000
    assert kept_share == pytest.approx(0.8**2, abs=0.03)  # one in favour, none against
    assert sum(verdict([False], 1, 0.2, rng) for _ in range(4000)) / 4000 == pytest.approx(0.2**2, abs=0.015)


def test_the_chosen_side_is_right_and_as_long_as_the_other():
    kept, reasons = pairs(error=0.0)
    assert len(kept) > 15 and set(reasons) <= {"alike", "none_right"}
    for p, x in kept:
        assert share(p, x.chosen) == 1.0 > share(p, x.rejected) and length(x.chosen) == length(x.rejected)
        assert x.margin == pytest.approx(1 - share(p, x.rejected)) and x.columns["verdicts"][0] == 1.0
    assert pairs(error=0.0) == pairs(error=0.0)


def test_reflection_removes_verdicts_that_do_not_come_again():
    """Of the pairs of one hearing some reject an answer that keeps every clause; fewer do of those that are heard twice."""
    wrong, number = {}, {}
    for reflection in (True, False):
        results = [
            (p, by_critics(1, p, i, lambda *_: [], error=0.2, reflection=reflection))
            for p in PROBLEMS
            for i in range(8)
        ]
        kept = [(p, x) for p, x in results if isinstance(x, PreferencePair)]
        reasons = {x.reason for _, x in results if not isinstance(x, PreferencePair)}
        assert ("inconsistent" in reasons) == reflection
        number[reflection] = len(kept)
        wrong[reflection] = sum(share(p, x.rejected) == 1.0 for p, x in kept) / len(kept)
    assert number[True] < number[False] and wrong[True] < 0.7 * wrong[False], wrong


def test_a_blind_referee_is_right_as_often_as_not():
    kept, _ = pairs(referee="blind")
    better = sum(share(p, x.chosen) > share(p, x.rejected) for p, x in kept)
    worse = sum(share(p, x.chosen) < share(p, x.rejected) for p, x in kept)
    assert len(kept) > 20 and better < 2 * worse and worse < 2 * better


def test_what_cannot_be_is_a_sentence():
    plain = Problem.make(prompt="3 + 4?", answer="7", verifier="number", family="sums", split="train")
    lost = by_critics(0, plain, 0, lambda *_: [])
    assert lost.reason == "no_clauses" and "take problems of the family constrained_writing" in lost.evidence
    for wrong in ({"answers": 1}, {"rounds": 0}, {"error": 0.5}, {"length_gap": -1}, {"referee": "?"}, {"writer": "?"}):
        with pytest.raises(ValueError, match="by_critics: answers .* at least 2"):
            by_critics(0, plain, 0, lambda *_: [], **wrong)
