"""Statements that are checked, and answers that are their witnesses."""

import numpy as np
import pytest
import tiny

from synth.types import Sampling
from tasks.planning.pieces import bind
from training.decode import Ask, Engine
from training.decode._predicate import holds, stated
from training.rollout.torch_sampler import TorchSampler


@pytest.mark.parametrize(
    ("statement", "true", "false"),
    [
        ("x % 7 == 3", [3, 10, -4], [0, 7]),
        ("1 < x <= 4 and x != 3", [2, 4], [1, 3, 5]),
        ("x**2 - 5*x + 6 == 0", [2, 3], [0, 6]),
        ("not x // 2 == 1 or x == 3", [0, 3, 4], [2]),
        ("10 % x == 0", [1, 2, 5], [0, 3]),
    ],
)
def test_a_statement_is_true_of_some_numbers(statement, true, false):
    assert all(holds(statement, x) for x in true) and not any(holds(statement, x) for x in false)


@pytest.mark.parametrize(
    "hostile",
    [
        "__import__('os').system('true') == 0 and x == x",
        "x.real == 1",
        "(lambda: x)() == 1",
        "[x for x in (1,)] == 1",
        "'a' * x == 1",
        "x in (1, 2)",
        "y == 1",
        "True == x and x",
        "x == 1.5",
        "x ==",
        "x" * 300,
        "(" * 150 + "x",
    ],
)
def test_anything_else_is_no_statement(hostile):
    with pytest.raises(ValueError, match=r".+"):
        holds(hostile, 1)
    assert stated(f"find x such that {hostile}?") is None


def test_what_grows_too_large_is_not_true_and_takes_no_time():
    assert not holds("9**9**9 > x", 1) and not holds("((x**12)**12)**12 > 0", 9)


def test_a_statement_is_found_in_a_question():
    assert stated("Find x such that x % 7 == 3?") == "x % 7 == 3"
    assert stated("Name a whole number x such that x > 4 and x < 6. Answer briefly.") == "x > 4 and x < 6"
    assert stated("What is the capital such that it is large?") is None and stated("x == 3") is None


def engine(question):
    model = tiny.build(vocabulary=tiny.Vocabulary(16), init_range=0.2)
    return Engine(
        sampler=TorchSampler(model, 2),
        text=lambda ids: question if len(ids) == 5 else "",
        said=lambda ids: str(int(ids[0])),
        sampling=Sampling(max_tokens=2),
    )


def test_a_checked_witness_goes_before_the_vote_and_all_that_are_accepted_are_right():
    asks = [Ask(prompt=p, seed=i, max_tokens=2) for i, p in enumerate(tiny.ids(*[5] * 30, below=16))]
    decode = bind("decode", {"piece": "witness", "n": 8, "m": 8})
    vote = bind("decode", {"piece": "witness", "n": 8, "m": 8, "check": False})
    source = engine("find x such that x % 5 == 1?")
    right = lambda done: [int(d.segment.ids[0]) % 5 == 1 for d in done]  # noqa: E731
    checked = decode(source, asks, None)
    for ok, d in zip(right(checked), checked, strict=True):
        assert ok or d.account.events[0].startswith("0 of 16")
    assert sum(right(checked)) > sum(right(vote(source, asks, None)))
    plain = decode(engine("who is it?"), asks, None)
    assert all(d.account.events == ["no statement"] for d in plain)
    same = vote(engine("who is it?"), asks, None)
    assert all(np.array_equal(a.segment.ids, b.segment.ids) for a, b in zip(plain, same, strict=True))
    with pytest.raises(ValueError, match="n is 0"):
        bind("decode", {"piece": "witness", "n": 0})(source, asks, None)
