"""Chains of words as proofs of Metamath: its kernel and ours agree, and it alone decides where it is asked."""

import itertools
import shutil
from random import Random

import pytest

from synth.families.rewrite_proofs import rewrite_proofs
from synth.types import Problem, Scored, Unscorable
from synth.verify import _metamath, explained, verify
from synth.verify._metamath import database, holds
from synth.verify.rewriting import fault

needed = pytest.mark.skipif(not shutil.which("metamath"), reason="metamath is not installed: apt-get install metamath")
EQUATIONS = [["ab", "ba"], ["aa", "b"]]
ARGS = {"equations": EQUATIONS, "first": "aab", "last": "bb", "kernel": "metamath"}


def problem(**args):
    return Problem.make(
        prompt="p", answer="aab = bb", verifier="rewriting", args=ARGS | args, family="x", split="train"
    )


def test_a_chain_is_written_as_axioms_filled_in():
    text = database(["bb", "aab", "aba"], EQUATIONS, "bb", "aba")
    assert "e.0 $a |- P a b S = P b a S $." in text and "e.1 $a |- P a a S = P b S $." in text
    # bb = aab: aa = b from right to left, before b. aab = aba: ab = ba behind a. Joined over bb, aab, aba.
    left = "none l.a l.a l.b none l.b l.b none none l.b e.1 turn"
    right = "none l.a none e.0"
    assert text.endswith(
        f"theorem $p |- b b = a b a $= none l.b l.b none l.a l.a l.b none l.a l.b l.a {left} {right} join $.\n"
    )
    assert database(["aab", "baa"], EQUATIONS, "aab", "baa").endswith("$= ? $.\n"), "two steps at once are none"


@needed
@pytest.mark.parametrize("seed", [1, 2])
def test_both_kernels_say_the_same_of_right_and_spoilt_proofs(seed):
    rng, seen = Random(seed), set()
    for i in range(20):
        p = rewrite_proofs(seed, "train", i, levels=(1, 2, 3, 4))
        assert isinstance(p, Problem)
        proof, a = p.answer.split(" = "), p.args
        spoilt = [*proof]
        spoilt[rng.randrange(len(proof))] = "".join(rng.choice("abc") for _ in range(rng.randint(2, 4)))
        for words, (first, last) in itertools.product([proof, spoilt, proof[::-1]], [(a["first"], a["last"])]):
            proved = holds(database(words, a["equations"], first, last))
            assert proved == (fault(words, a["equations"], first, last) == ""), words
            seen.add(proved)
    assert seen == {True, False}


@needed
def test_the_program_finds_a_wrong_proof_by_itself():
    right = database(["aab", "bb"], EQUATIONS, "aab", "bb")
    assert holds(right)
    assert not holds(right.replace("none none l.b e.1 $.", "none none l.b e.0 $.")), "another equation"
    assert not holds(right.replace("|- a a b = b b", "|- a a b = b a")), "another theorem"
    assert not holds(right.replace("$= none none l.b e.1 $.", "$= ? $.")), "a gap"


@needed
@pytest.mark.parametrize(
    ("answer", "value", "explanation"),
    [
        ("aab = aba = baa = bb", 1.0, ""),
        ("aab = baa = bb", 0.0, "Step 1: aab is not baa."),
        ("aab = ? = bb", 0.0, "A gap is left open."),
        ("aab = aba", 0.0, "It ends with aba, not bb."),
    ],
)
def test_the_verifier_asks_it(answer, value, explanation):
    score = verify(problem(), answer)
    assert isinstance(score, Scored) and score.value == value and explained(problem(), answer) == explanation


def test_the_verdict_is_the_programs(monkeypatch):
    monkeypatch.setattr(_metamath, "holds", lambda text: False)
    score = verify(problem(), "aab = bb")
    assert isinstance(score, Scored) and score.value == 0.0
    assert verify(problem(kernel="own"), "aab = bb") != score


def test_without_the_program_an_answer_is_unscorable_and_says_why(monkeypatch):
    monkeypatch.setattr(_metamath, "PROGRAM", "no-such-program-here")
    score = verify(problem(), "aab = bb")
    assert isinstance(score, Unscorable) and "apt-get install metamath" in score.reason
    other = verify(problem(kernel="lean"), "aab = bb")
    assert isinstance(other, Unscorable) and "neither own nor metamath" in other.reason


@needed
def test_problems_can_ask_for_it():
    p = rewrite_proofs(0, "test", 3, levels=(2,), kernel="metamath")
    assert isinstance(p, Problem) and p.args["kernel"] == "metamath"
    plain = rewrite_proofs(0, "test", 3, levels=(2,))
    assert isinstance(plain, Problem) and "kernel" not in plain.args and plain.prompt == p.prompt
