"""Overlap of boxes: by hand, whatever their order, and with a price for too many."""

import itertools

import pytest

from synth.types import Problem, Unscorable
from synth.verify import verify
from synth.verify.boxes import iou, matched


def scored(answer, gold="0 0 4 4; 10 10 14 14"):
    return verify(Problem.make(prompt="?", answer=gold, verifier="boxes", family="x", split="train"), answer)


def test_overlap_by_hand():
    assert iou((0, 0, 4, 4), (2, 0, 6, 4)) == 8 / 24
    assert iou((0, 0, 4, 4), (4, 0, 8, 4)) == 0.0
    assert scored("2 0 6 4", gold="0 0 4 4").value == 8 / 24


def test_the_order_of_boxes_does_not_matter_and_too_many_cost():
    assert scored("10 10 14 14; 0 0 4 4").value == scored("[0, 0, 4, 4]; [10, 10, 14, 14]").value == 1.0
    one = scored("0 0 4 4")
    assert one.value == 0.5 and one.parts["iou"] == 1.0 and one.parts["count"] == 0.0
    assert scored("0 0 4 4; 10 10 14 14; 20 20 24 24").value == pytest.approx(2 / 3)
    assert scored("0 0 4 4; 0 0 4 4").value == 0.5  # a box is matched once


def test_the_matching_is_the_best_of_all():
    given = [(0, 0, 4, 4), (1, 0, 6, 4), (9, 9, 15, 15)]
    wanted = [(0, 0, 5, 4), (2, 0, 7, 4), (10, 10, 14, 14)]
    best = max(sum(iou(a, b) for a, b in zip(given, order, strict=True)) for order in itertools.permutations(wanted))
    assert sum(matched(given, wanted)) == pytest.approx(best, abs=1e-12)
    assert matched(wanted, given) == pytest.approx(matched(given, wanted), abs=1e-12)


def test_what_is_no_box_is_unparsable():
    for text in ("", "left", "1 2 3", "4 4 0 0", "0 0 0 4", "1 1 2 2;" * 9 + "1 1 2 2"):
        score = scored(text)
        assert score.value == 0.0 and score.parts["parsed"] == 0.0, text
    assert isinstance(scored("0 0 4 4", gold="here"), Unscorable)
