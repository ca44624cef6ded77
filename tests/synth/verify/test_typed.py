"""Answers compared as what they are."""

import pytest

from synth.types import Problem, Unscorable
from synth.verify import verdict, verify


def problem(answer: str, **args) -> Problem:
    return Problem.make(prompt="?", answer=answer, verifier="typed", args=args, family="f", split="train")


@pytest.mark.parametrize(
    "args, reference, answer, expected",
    [
        ({"aliases": ["UK"]}, "United Kingdom", "the united kingdom.", "correct"),
        ({"aliases": ["UK"]}, "United Kingdom", "uk", "correct"),
        ({}, "United Kingdom", "Kingdom", "wrong"),
        ({"kind": "number", "unit": "sq km"}, "28748", "28,748 sq km", "correct"),
        ({"kind": "number", "unit": "sq km"}, "28748", "28748", "correct"),
        ({"kind": "number", "unit": "sq km"}, "28748", "28,748 acres", "wrong"),
        ({"kind": "number"}, "1200000", "1.2 million", "correct"),
        ({"kind": "number"}, "-5", "5", "wrong"),
        ({"kind": "number"}, "5", "5 or 6", "unparsable"),
        ({"kind": "number", "tolerance": 0.01}, "1000", "1009", "correct"),
        ({"kind": "number", "tolerance": 0.01}, "1000", "1011", "wrong"),
        ({"kind": "number"}, "5", "five", "unparsable"),
        ({"kind": "number"}, "5", "9" * 2000, "unparsable"),
        ({"kind": "year"}, "1789", " 1789.", "correct"),
        ({"kind": "year"}, "1789", "1790", "wrong"),
        ({"kind": "year"}, "1789", "1789 or 1790", "unparsable"),
        ({"kind": "date"}, "1789-07-14", "July 14, 1789", "correct"),
        ({"kind": "date"}, "1789-07-14", "14 July 1790", "wrong"),
        ({"kind": "date"}, "1789-07-14", "July 1789", "unparsable"),
    ],
)
def test_verdicts(args, reference, answer, expected):
    assert verdict(verify(problem(reference, **args), answer)) == expected


def test_a_bad_reference_is_no_verdict_and_a_bad_kind_is_a_mistake():
    for kind in ("number", "year", "date"):
        assert isinstance(verify(problem("Norvia", kind=kind), "5"), Unscorable)
    with pytest.raises(ValueError, match="kind 'colour'"):
        verify(problem("x", kind="colour"), "x")
