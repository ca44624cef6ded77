"""Each clause of a text is a part of its score."""

from synth.types import Problem
from synth.verify import verify


def test_each_clause_is_a_part():
    clauses = [{"kind": "words", "n": 3}, {"kind": "ends", "text": "moon"}, {"kind": "holds", "text": "over"}]
    problem = Problem.make(
        prompt="Write.",
        answer="jump over moon",
        verifier="clauses",
        args={"clauses": clauses},
        family="f",
        split="train",
    )
    score = verify(problem, "go over the hill")
    assert score.value == 0 and [score.parts[c] for c in ("c1", "c2", "c3")] == [0, 0, 1]
    assert verify(problem, "look over moon").parts["kept"] == 1
