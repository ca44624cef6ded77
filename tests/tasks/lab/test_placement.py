"""Plans of which processes run which call of a step."""

import itertools

import numpy as np
import pytest

from tasks.lab.placement._graph import Call, calls_of, choices, cost
from tasks.lab.placement.enumerated import enumerated
from tasks.lab.placement.metropolis import metropolis
from tasks.lab.placement.symmetric import symmetric


def step(rng, n=6):
    """A random step: each call waits for some of those before it, and gains less than twice from twice the devices."""
    out = []
    for i in range(n):
        one = float(rng.uniform(1, 10))
        after = tuple(f"c{j}" for j in range(i) if rng.random() < 0.4)
        out.append(
            Call(
                name=f"c{i}",
                model=f"m{i % 4}",
                after=after,
                seconds={k: one / k ** float(rng.uniform(0.3, 1)) for k in (1, 2, 4, 8)},
            )
        )
    return out


def test_what_a_plan_costs_by_hand():
    calls = calls_of(
        [
            {"name": "a", "model": "m", "seconds": {1: 3, 2: 2}},
            {"name": "b", "seconds": {1: 1}, "after": ["a"]},
            {"name": "c", "seconds": {1: 2}, "after": ["a"]},
            {"name": "d", "model": "m", "seconds": {1: 4, 2: 3}, "after": ["b", "c"]},
        ]
    )
    wide = {"a": (0, 2), "b": (0, 1), "c": (1, 1), "d": (0, 2)}
    assert cost(calls, wide, 2) == 2 + 2 + 3, "b and c beside each other"
    assert cost(calls, {**wide, "c": (0, 1)}, 2) == 2 + 3 + 3
    assert cost(calls, {**wide, "d": (1, 1)}, 2, move=0.5) == 2 + 2 + 0.5 + 4, "the weights of m go to another device"
    assert cost(calls, wide, 2, move=0.5) == 7


def test_a_call_that_waits_for_nobody_knows_whom():
    with pytest.raises(ValueError, match="the call 'a' waits for 'z', which is not listed before it"):
        calls_of([{"name": "a", "seconds": {1: 1}, "after": ["z"]}])
    with pytest.raises(ValueError, match="the call 'a' has no seconds"):
        calls_of([{"name": "a", "seconds": {}}])


def test_the_enumeration_finds_the_best_of_all():
    rng = np.random.default_rng(0)
    for _ in range(20):
        calls = step(rng, 3)
        want = min(
            cost(calls, dict(zip(("c0", "c1", "c2"), one, strict=True)), 4, 0.5)
            for one in itertools.product(*(list(choices(c, 4)) for c in calls))
        )
        assert cost(calls, enumerated(calls, 4, 0.5, rng), 4, 0.5) == want
    with pytest.raises(ValueError, match="search them with the piece metropolis"):
        enumerated(step(rng, 8), 8, 0.0, rng)


def test_the_search_is_near_the_best_and_below_the_plan_that_does_not_plan():
    rng = np.random.default_rng(1)
    near, saved = [], []
    for _ in range(20):
        calls = step(rng, 4)
        seconds, best = (
            cost(calls, f(calls, 4, 0.2, np.random.default_rng(0)), 4, 0.2) for f in (metropolis, enumerated)
        )
        near.append(seconds / best - 1)
        larger = step(rng, 6)
        saved.append(
            1
            - cost(larger, metropolis(larger, 8, 0.2, rng, steps=600), 8, 0.2)
            / cost(larger, symmetric(larger, 8, 0.2, rng), 8, 0.2)
        )
    assert max(near) <= 0.03 and min(saved) >= 0, (max(near), np.mean(saved))
    print(f"\nof the best plan at most {max(near):.1%} away; {np.mean(saved):.0%} below the symmetric plan on average")
    assert np.mean(saved) > 0.15
