"""Steps in several languages: that they say the same, and that the two sides differ in one step."""

from random import Random

import pytest

from synth.preferences.makers.aligned_steps import TONGUES, aligned_steps, chain, heard, told, translated, value, wrong
from synth.types import PreferencePair, Problem

SOLUTION = "33 * 49 = 1617, 1617 - 48 = 1569 <answer>1569</answer>"
STEPS = [(33, "*", 49, 1617), (1617, "-", 48, 1569)]
PROBLEM = Problem.make(
    prompt="33 * 49 - 48?",
    answer="1569",
    verifier="number",
    family="x",
    lineage={"solution": SOLUTION},
    split="train",
)


def nobody(*_):
    return []


def test_equations_that_hold_are_the_chain():
    assert chain(SOLUTION) == STEPS
    assert chain("2 + 2 = 5, 5 + -1 = 4") == [(5, "+", -1, 4)]


def test_a_step_by_hand_in_each_order():
    assert told(STEPS[:1], "english") == "33 times 49 is 1617"
    assert told(STEPS[:1], "swahili") == "zidisha 33 na 49 ni 1617"
    assert told(STEPS[:1], "basque") == "33 bider 49 berdin 1617 da"


@pytest.mark.parametrize("language", TONGUES)
def test_languages_are_translated_line_by_line_and_back(language):
    text = told(STEPS, language)
    assert heard(text, language) == STEPS
    assert translated(translated(text, language, "english"), "english", language) == text
    assert len(text.split("\n")) == 2


def test_what_another_language_says_is_not_understood():
    with pytest.raises(ValueError, match="no step in german"):
        heard("2 plus 3 is 5", "german")


def test_a_wrong_step_by_kind():
    for seed in range(20):
        a, op, b, c = wrong(STEPS[0], "result", Random(seed))
        assert (a, op, b) == STEPS[0][:3] and c != 1617
        a, op, b, c = wrong(STEPS[0], "operand", Random(seed))
        assert a != 33 and b == 49 and value(a, op, b) == c
    assert wrong((3, "*", 0, 0), "operand", Random(0))[3] != 0  # no operand shows there


def test_pairs_share_all_but_the_last_step_and_english_has_its_share():
    pairs = [aligned_steps(3, PROBLEM, i, nobody) for i in range(200)]
    assert all(isinstance(p, PreferencePair) for p in pairs)
    english = 0
    for p in pairs:
        language, k = p.columns["language"], p.columns["step"]
        assert heard(p.chosen, language) == STEPS[:k]
        other = heard(p.rejected, language)
        assert other[:-1] == STEPS[: k - 1] and other[-1] != STEPS[k - 1]
        english += language == "english"
    assert 60 <= english <= 100
    assert {p.columns["language"] for p in pairs} == set(TONGUES) - {"basque"}
    only = [aligned_steps(3, PROBLEM, i, nobody, languages=("english",)) for i in range(20)]
    assert {p.columns["language"] for p in only} == {"english"}


@pytest.mark.parametrize(
    "knobs", [{"languages": ("klingon",)}, {"languages": ()}, {"errors": ("typo",)}, {"english_share": 2.0}]
)
def test_what_means_nothing_is_refused(knobs):
    with pytest.raises(ValueError, match="aligned_steps: .* languages are some of"):
        aligned_steps(0, PROBLEM, 0, nobody, **knobs)
