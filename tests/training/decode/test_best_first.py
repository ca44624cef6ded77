"""Proofs by best-first search: what is asked is read of every wording, faulty steps are never built upon, and the order is that
of the score."""

import numpy as np
import pytest

from synth.families.rewrite_proofs import WORDINGS, rewrite_proofs
from synth.types import Problem, Sampling
from synth.verify.rewriting import fault, words
from training.decode import Ask, Engine
from training.decode.best_first import _open, _Search, best_first, stated
from training.types import Segment

LETTERS = "ab=cd.;"  # ids
END = 9


@pytest.mark.parametrize("wording", range(len(WORDINGS.forms)))
def test_what_is_asked_is_read_of_every_wording(wording):
    rules = [("ab", "ba"), ("aa", "b")]
    goal = stated(WORDINGS.forms[wording].format(rules="; ".join(" = ".join(r) for r in rules), first="aab", last="bb"))
    assert goal is not None and (goal.rules, goal.first, goal.last) == (tuple(rules), "aab", "bb")


def test_what_is_asked_is_read_of_problems_and_of_nothing_else():
    for i in range(40):
        p = rewrite_proofs(0, "train", i, levels=(1, 2, 3))
        if isinstance(p, Problem):
            goal = stated(p.question)
            assert goal and [list(r) for r in goal.rules] == p.args["equations"]
            assert (goal.first, goal.last) == (p.args["first"], p.args["last"])
    assert stated("What is the capital of France?") is None and stated("a = b; b = c") is None


class Script:
    """A model that says, behind each text, the next of the pieces written for it; what ends with "." ends the turn."""

    model, version = None, 0

    def __init__(self, pieces):
        self.pieces, self.asked = {k: list(v) for k, v in pieces.items()}, []

    def open(self, prompts, seeds):
        script = self

        class Session:
            def generate(self, sampling):
                return [script.turn(p, sampling) for p in prompts]

        return Session()

    def turn(self, prompt, sampling):
        before = text(prompt).partition(";")[2]
        self.asked.append(before)
        piece, logp = self.pieces[before].pop(0)
        ids = np.array([LETTERS.index(c) for c in piece.rstrip(".")] + [END] * piece.endswith("."))[
            : sampling.max_tokens
        ]
        stop = "end" if len(ids) and ids[-1] == END else "length"
        return Segment(ids=ids, role="model", logp=np.full(len(ids), logp / len(ids), dtype=np.float32), stop=stop)


def text(ids):
    return "".join(LETTERS[i] for i in ids if i != END)


def run(pieces, budget=0, **knobs):
    script = Script(pieces)
    engine = Engine(
        sampler=script,
        text=lambda ids: "ab = ba; aa = b. aab = bb" if len(ids) == 1 else text(ids),
        said=text,
        sampling=Sampling(max_tokens=20),
    )
    engine.bytes_per_token = 0
    ask = Ask(prompt=np.array([LETTERS.index(";")]), seed=1, max_tokens=20, forward_tokens=budget)
    (done,) = best_first(engine, [ask], None, **knobs)
    return text(done.segment.ids), script.asked, done.account


def test_a_faulty_step_is_not_built_upon_and_the_likelier_proof_goes_first():
    # aab = bb by aa = b; aab = aba by ab = ba; cab is no step.
    proof, prompts, account = run(
        {
            "": [("aab=", -1.0), ("ab=", -0.1)],
            "aab=": [("aba=", -4.0), ("cab=", -0.1)],
            "aab=aba=": [("baa=", -1.0), ("bab=", -0.1)],
            "aab=aba=baa=": [("bb.", -1.0), ("bb=b", -1.0)],
        },
        width=2,
    )
    assert proof == "aab=aba=baa=bb" and prompts == ["", "", "aab=", "aab=", *["aab=aba="] * 2, *["aab=aba=baa="] * 2]
    assert account.events == ["proved after 4 expansions"]


@pytest.mark.parametrize(("length_norm", "first"), [(0.0, "aab="), (2.0, "aab=aba=")])
def test_the_norm_of_the_length_decides_what_goes_first(length_norm, first):
    """-3 and -6: the sum prefers the proof of fewer steps; -3 / 1 and -6 / 4: the other."""
    s = _Search(goal=stated("ab = ba. ab = ba"), root=None)
    _open(s, "aab=", -3.0, 1, length_norm)
    _open(s, "aab=aba=", -6.0, 2, length_norm)
    assert s.heap[0][2] == first


def test_whole_proofs_are_the_control():
    proof, prompts, account = run(
        {"": [("ab=bb.", -0.1), ("aab=cd.", -0.1), ("aab=bb.", -1.0), ("aab=bb.", -1.0)]}, width=2, steps=False
    )
    assert proof == "aab=bb" and prompts == [""] * 4 and account.events == ["proved after 2 expansions"]


def test_where_nothing_is_proved_an_answer_is_given_all_the_same():
    proof, _, account = run({"": [("cd=", -1.0), ("cc=", -1.0), ("aab=", -1.0)]}, width=2)
    assert proof == "aab=" and account.events == ["not proved after 1 expansions"]
    with pytest.raises(ValueError, match="width is 0"):
        run({"": []}, width=0)


def test_words_of_a_proof_under_way():
    assert words("aab = bb =") == ["aab", "bb", ""] and words("aab = ?") == ["aab", "?"] and words("aab, bb") is None
    assert fault(["aab"], [["ab", "ba"]], "aab", "aab") == "" and words("a" * 3000) is None


def test_what_was_proved_of_two_plans_is_put_together():
    """The first plan begins right and ends wrong, the second begins wrong and ends right: neither is a proof."""
    proof, prompts, account = run({"": [("aab=aba=cd.", -0.1), ("aab=cd=aba=baa=bb.", -0.1)]}, width=2, plans=1)
    assert proof == "aab=aba=baa=bb" and prompts == ["", ""]
    assert account.events == ["proved after 1 expansions, 1 plans, 4 lemmas used"]


def test_the_search_goes_on_where_plans_end_and_uses_their_lemmas_later():
    """Of the plan, baa = bb is a lemma that nothing leads to until the search has reached baa."""
    proof, prompts, account = run(
        {"": [("cd=baa=bb.", -0.1), ("aab=", -0.1)], "aab=": [("aba=", -0.1)], "aab=aba=": [("baa=", -0.1)]},
        width=1,
        plans=1,
    )
    assert proof == "aab=aba=baa=bb" and prompts == ["", "", "aab=", "aab=aba="]
    assert account.events == ["proved after 4 expansions, 1 plans, 1 lemmas used"]


def test_a_search_that_stalls_is_planned_anew_behind_what_is_proved():
    """After one step that holds, two in a row do not; the second plan goes on from there."""
    pieces = {"": [("cd.", -1.0), ("aab=", -0.1)], "aab=": [("cc=", -1.0), ("bb.", -1.0)]}
    proof, prompts, account = run(pieces, width=1, plans=2, stall=1)
    assert proof == "aab=bb" and prompts == ["", "", "aab=", "aab="][: len(prompts)]
    assert "2 plans" in account.events[0]
    with pytest.raises(ValueError, match="steps: false"):
        run({"": []}, plans=1, steps=False)
