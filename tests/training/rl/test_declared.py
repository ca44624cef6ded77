"""Declared objectives: what each formalism pays, and what a sum over turns cannot say."""

from itertools import product

import numpy as np
import pytest

from synth.types import Message, Problem, Scored
from training.rl.reward.declared import declared, read, run, trace
from training.types import Group, Rollout

ASKED = Problem.make(prompt="q", answer="0", verifier="exact", env="single", family="q", split="train")
SIX = [[{x} for x in s] for s in product("ab", repeat=6)]
MACHINE = [["start", "a", "seen", 0.0], ["seen", "b", "done", 1.0]]


def group(*conversations):
    """Turns of each rollout, one letter a turn."""
    rollouts = tuple(
        Rollout(
            problem=ASKED,
            group="g",
            segments=(),
            score=Scored(value=0.0),
            info={"messages": [Message(role="assistant", content=f"<{x}/>") for x in turns]},
        )
        for turns in conversations
    )
    return Group(id="g", rollouts=rollouts)


def pay(conversations, rewards=None, **knobs):
    given = [np.array(rewards or [0.0] * len(conversations))]
    return declared([group(*conversations)], given, {}, np.random.default_rng(0), **knobs)[0].tolist()


@pytest.mark.parametrize(
    ("formula", "turns", "expected"),
    [
        ("F (a & X b)", "cab", True),
        ("F (a & X b)", "cba", False),
        ("G (a -> X b)", "aba", False),  # no next turn
        ("G (a -> N b)", "aba", True),
        ("!b U a", "cca", True),
        ("!b U a", "cba", False),
        ("!b U a", "cc", False),  # a has to come
        ("a | b & false", "a", True),  # & binds stronger
        ("a -> b -> false", "c", True),
        ("a -> b -> false", "a", True),
        ("(a -> b) -> false", "c", False),
        ("X true", "a", False),
    ],
)
def test_temporal_logic_over_finite_conversations(formula, turns, expected):
    assert read(formula)([{x} for x in turns], 0) is expected
    assert pay([turns], formula=formula) == [float(expected)]


def test_a_then_b_is_said_by_an_automaton_and_a_formula_and_by_no_sum_over_turns():
    wanted = [("a" in s and "b" in s[s.index("a") :]) for s in product("ab", repeat=6)]
    assert len(wanted) == 64 and sum(wanted) == 57  # all but b^i a^(6-i)
    assert [run(MACHINE, w) for w in SIX] == [float(x) for x in wanted]
    assert [read("F (a & X F b)")(w, 0) for w in SIX] == wanted
    best = 0
    for w in np.random.default_rng(0).normal(size=(1000, 2)):
        paid = np.array([sum(w["ab".index(p)] for names in t for p in names) for t in SIX])
        best = max(best, *(int(((paid > bar) == wanted).sum()) for bar in (*np.unique(paid), -np.inf)))
    assert best < 64  # ab and ba have the same acts


def test_a_mixture_is_best_for_no_sum_and_for_a_concave_utility():
    shares = np.linspace(0, 1, 11)
    for a, b in np.random.default_rng(1).normal(size=(1000, 2)):
        values = shares * a + (1 - shares) * b
        assert values[5] <= max(values[0], values[10])
    utility = np.log(shares + 0.01) + np.log(1 - shares + 0.01)
    assert shares[utility.argmax()] == 0.5
    # Its first order pushes back to the half: J = (1/4, 3/4), slopes 1 / 0.5 and 1 / 1.
    assert pay(["a", "b", "b", "b"], spec="outer_nonlinear", over=("a", "b"), eps=0.25) == [2.0, 1.0, 1.0, 1.0]
    # A half of the turns of one conversation: J = (1/2,), x = (1/2,).
    assert pay(["ab"], spec="outer_nonlinear", over=("a",), eps=0.5) == [0.5]


def test_rows_of_a_machine_are_taken_in_order_and_others_leave_the_state():
    assert pay(["cacb", "ba", "abb"], spec="reward_machine", machine=MACHINE) == [1.0, 0.0, 1.0]
    assert pay(["aa"], spec="reward_machine", machine=[["u", "a", "u", 0.5], ["u", "a", "u", 9.0]]) == [1.0]


def test_right_holds_in_the_last_turn_alone_and_unscorable_stays():
    rollouts = group("ab").rollouts
    assert trace(rollouts[0], 1.0) == [{"a"}, {"b", "right"}] and trace(rollouts[0], 0.4) == [{"a"}, {"b"}]
    paid = pay(["ab", "ab", "ab"], [1.0, 0.0, np.nan], formula="F right")
    assert paid[:2] == [1.0, 0.0] and np.isnan(paid[2])
    paid = pay(["a", "b"], [0.0, np.nan], spec="outer_nonlinear", over=("a",), eps=1.0)
    assert paid[0] == 0.5 and np.isnan(paid[1])  # the mean is of those that are scored


@pytest.mark.parametrize("spec", ["markov", "reward_machine", "ltl", "outer_nonlinear"])
def test_what_is_not_declared_asks_for_the_right_answer_alone(spec):
    paid = pay(["ab", "a"], [1.0, 0.0], spec=spec)
    assert paid[0] > 0.0 and paid[1] == 0.0


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        ({"formula": "F (a & b"}, "cannot be read at its end"),
        ({"formula": "a b"}, "cannot be read at 'b'"),
        ({"formula": "a & U"}, "cannot be read at 'U'"),
        ({"formula": "a + b"}, r"has '\+' in it"),
        ({"formula": ""}, "the formula is empty"),
        ({"spec": "reward_machine", "machine": [["u", "a", 1.0]]}, "give all four"),
    ],
)
def test_an_objective_that_cannot_be_read_is_a_sentence(knobs, message):
    with pytest.raises(ValueError, match=message):
        pay(["ab"], **knobs)
