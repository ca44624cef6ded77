"""Decoders on a task at equal forward tokens: what a rival may spend, and what both sides are asked."""

import json
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

from tasks.lab import answer_worlds, decode_worlds, starts, worlds
from tasks.lab.answer_worlds import _measure

PROMPT, TURN = 5, 20


@pytest.fixture
def answered(monkeypatch):
    """What is asked for, in the place of answers: [spec, limits]; the first question costs 12 tokens, the second 90."""
    seen = []

    def stand_in(spec, limits, seed, others):
        seen.append((json.loads(spec)["piece"], limits))
        return 0.5, (12, 90)

    monkeypatch.setattr(answer_worlds, "_answered", stand_in)
    monkeypatch.setattr(answer_worlds, "_asked", lambda others: ["easy", "hard"])
    monkeypatch.setattr(answer_worlds, "_prompt", lambda problem: np.zeros(PROMPT))
    monkeypatch.setattr(answer_worlds, "_turn", lambda: TURN)
    return seen


def _room(recipe, decoders=None):
    changes = {"evaluate": {"decoders": decoders}} if decoders else {}
    return SimpleNamespace(recipe=recipe, seed=1, kept={"knobs": worlds.plans(recipe, changes, 0)})


def test_what_a_recipe_ships_answers_without_a_bound(answered):
    assert _measure(_room("e2c")) == {"solved": 0.5, "forward_tokens": 51.0}
    assert answered == [("plans", ())]


def test_a_rival_may_spend_on_each_question_what_the_recipe_spent_there_or_one_answer(answered):
    _measure(_room("e2c", [{"piece": "majority", "k": 0}]))
    assert answered == [("plans", ()), ("majority", (PROMPT + TURN, 90))]


def test_the_policy_alone_is_one_draw(answered):
    _measure(SimpleNamespace(recipe="base", seed=1, kept={}))
    assert answered == [("sample", ())]


def test_an_answer_is_of_use_only_where_it_names_what_was_asked_without_harm():
    useful = decode_worlds._USEFUL
    prompt, nothing = np.array([3, 10, 5]), np.zeros(0)
    harmless = next(
        a
        for a in (useful.answer(np.random.default_rng(s), prompt)[:-1] for s in range(99))
        if not np.isin(a, decode_worlds.HIGH).any()
    )
    assert useful.wanted(harmless, prompt, nothing) == 1.0
    harmful = np.where(harmless == harmless[1], decode_worlds.HIGH[0], harmless)
    swapped = np.concatenate([harmless[5:10], harmless[:5], harmless[10:]])
    for answer in (harmful, swapped, harmless[:10], np.array([decode_worlds.STOP] * 3), nothing.astype(int)):
        assert useful.wanted(answer, prompt, nothing) == 0.0


@pytest.mark.parametrize(
    ("kinds", "worth"),
    [("LLLLHHHH", 1.0), ("LHLHLHLH", 1.0), ("LLLLLLHH", 0.5), ("LLLLLLLL", 0.0), ("LLLLHHHHHHHH", 1.0)],
)
def test_balance_is_twice_the_smaller_share_wherever_it_stands(kinds, worth):
    ids = [decode_worlds.LOW[0] if k == "L" else decode_worlds.HIGH[0] for k in kinds]
    answer = np.array([*ids[:4], decode_worlds.STOP, *ids[4:], decode_worlds.STOP])
    balance = decode_worlds._BALANCE
    assert balance.wanted(answer, np.zeros(3), np.zeros(0)) == worth
    assert balance.pairs == decode_worlds._WISHES.pairs and balance.rated is not None


def test_other_problems_of_the_test_split_are_other_problems(monkeypatch):
    make = partial(starts.countdown_problem, levels=(1,))
    measured = starts._family(make, "test", starts.HELD)
    monkeypatch.setattr(starts, "start", lambda task: SimpleNamespace(measured=measured))
    usual, others = ([p.id for p in answer_worlds._asked(which)] for which in (False, True))
    assert len(usual) == len(others) == starts.HELD * answer_worlds.TRIES
    assert not set(usual) & set(others) and len(set(others)) == starts.HELD


def test_other_problems_are_asked_where_the_world_says_so(answered, monkeypatch):
    seen = []
    monkeypatch.setattr(answer_worlds, "_asked", lambda others: seen.append(others) or ["easy", "hard"])
    answer_worlds.other_countdown_answers().measure(_room("e2c", [{"piece": "greedy"}]))
    assert seen == [True] and answered == [("plans", ()), ("greedy", (PROMPT + TURN, 90))]


def test_what_is_scored_are_answers_to_the_problems_that_were_asked(answered, monkeypatch):
    monkeypatch.setattr(answer_worlds, "_asked", lambda others: ["new", "new"] if others else ["old", "old"])
    monkeypatch.setattr(answer_worlds, "_right", lambda problem, ids: problem == "new")
    done = SimpleNamespace(segment=SimpleNamespace(ids=None), account=SimpleNamespace(spent=3))
    scored = [answer_worlds._scored(lambda e, asks, f: [done] * len(asks), None, None, (), 1, o) for o in (True, False)]
    assert scored == [(1.0, (3, 3)), (0.0, (3, 3))]
