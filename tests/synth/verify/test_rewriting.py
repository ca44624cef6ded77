"""Proofs by rewriting: what is a step, and what the checker says of a chain that is none."""

import pytest

from synth.types import Problem, Scored
from synth.verify import explained, verify

ARGS = {"equations": [["ab", "ba"], ["aa", "b"]], "first": "aab", "last": "bb"}


def problem(verifier="rewriting", args=ARGS):
    return Problem.make(
        prompt="p", answer="aab = bb" if args else "7", verifier=verifier, args=args, family="x", split="train"
    )


@pytest.mark.parametrize(
    ("answer", "value", "explanation"),
    [
        ("aab = bb", 1.0, ""),
        ("a a b=b b.", 1.0, ""),
        ("aab = aba = baa = bb", 1.0, ""),  # longer than it must be
        ("aab = aaaa = aab = bb", 1.0, ""),  # an equation from right to left
        ("aab = baa = bb", 0.0, "Step 1: aab is not baa."),  # two steps at once
        ("aab = aba", 0.0, "It ends with aba, not bb."),
        ("bb = aab", 0.0, "It begins with bb, not aab."),
        ("aab = ? = bb", 0.0, "A gap is left open."),
        ("aab = aab = bb", 0.0, "Step 1: aab is not aab."),  # a step that changes nothing is none
        ("aab", 0.0, "This is no chain of words."),
        ("aab = b2", 0.0, "This is no chain of words."),
        ("aab == bb", 0.0, "This is no chain of words."),
    ],
)
def test_each_step_is_one_use_of_one_equation(answer, value, explanation):
    score = verify(problem(), answer)
    assert isinstance(score, Scored) and score.value == value
    assert explained(problem(), answer) == explanation


def test_a_checker_that_explains_nothing_is_named():
    with pytest.raises(LookupError, match="the verifier number of problem .* explains nothing: do without `checker`"):
        explained(problem("number", {}), "8")
