"""Stretches of time and scores of aspects, by hand."""

import pytest

from synth.types import Problem, Unscorable
from synth.verify import verify


def scored(answer, gold, verifier="segments"):
    return verify(Problem.make(prompt="?", answer=gold, verifier=verifier, family="x", split="train"), answer)


def test_one_stretch_over_two_earns_little():
    exact, merged = (scored(x, "1-10; 21-30") for x in ("1-10; 21-30", "1-30"))
    assert exact.value == 1.0
    # 20 of 30 frames; overlap 10 / 30 with one of two
    assert merged.parts["global"] == pytest.approx(2 / 3) and merged.parts["local"] == pytest.approx(1 / 6)
    assert merged.value == pytest.approx(5 / 12) and merged.parts["count"] == 0.0


def test_the_matching_keeps_the_order():
    # 4-6 matches 3-5 (2 of 4 frames); 1-1 before it matches nothing
    s = scored("1-1; 4-6", "3-5; 9-9")
    assert s.parts["local"] == pytest.approx(0.25) and s.parts["global"] == pytest.approx(2 / 6)


@pytest.mark.parametrize("text", ["", "3", "5-4", "4-5; 1-2", "1-3; 3-4", "one-two", "1-2;" * 17 + "1-2"])
def test_what_is_no_stretch_is_unparsable(text):
    assert scored(text, "1-2").parts["parsed"] == 0.0


def test_scores_by_hand():
    s = scored("4 5 1", "5 5 3", "scores")
    assert s.value == 0.5 and s.parts["exact"] == pytest.approx(1 / 3) and s.parts["near"] == pytest.approx(2 / 3)
    assert (s.parts["score_1"], s.parts["score_2"], s.parts["every"]) == (0.0, 1.0, 0.0)
    assert scored("5, 5, 3", "5 5 3", "scores").value == 1.0
    for text in ("", "5 5", "6 5 3", "good"):
        assert scored(text, "5 5 3", "scores").parts["parsed"] == 0.0


def test_a_broken_reference_is_not_the_models_fault():
    assert isinstance(scored("1-2", "soon"), Unscorable) and isinstance(scored("5", "9", "scores"), Unscorable)
