"""Plans of which processes run which call of a step."""

import itertools

import numpy as np
import pytest

from tasks.lab.placement import _stage
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


def rows_of(sampling, training, reference=(), devices=8):
    steps = {ahead: _stage.calls(sampling, training, dict(reference), ahead) for ahead in (False, True)}
    return {(r.order, r.piece): r for r in _stage.rows(steps, devices)}


def test_what_waits_for_what_in_each_order():
    waits = lambda *given: {c.name: c.after for c in _stage.calls(*given)}  # noqa: E731
    one = {1: 1.0}
    assert waits(one, one, one, False) == {"generate": (), "reference": ("generate",), "train": ("reference",)}
    assert waits(one, one, one, True) == {"generate": (), "reference": (), "train": ("reference",)}
    assert waits(one, one, {}, False) == {"generate": (), "train": ("generate",)}
    assert waits(one, one, {}, True) == {"generate": (), "train": ()}


def test_sampling_that_gets_no_faster_has_devices_of_its_own():
    """In turn on all eight: 8 + 1 + 4 = 13. Four and four beside each other: max(8, 2 + 6) = 8."""
    rows = rows_of({2: 15, 4: 8, 8: 8}, {4: 6, 6: 5, 8: 4}, {4: 2, 6: 1.5, 8: 1})
    base, best = rows["in turn", "symmetric"], rows["one step ahead", "carried out"]
    assert base.seconds == 13 and base.saved == 0 and base.knobs == {"learners": 8, "asynchrony": "sync"}
    assert best.seconds == 8 and best.saved == pytest.approx(5 / 13)
    assert best.plan == {"generate": (4, 4), "reference": (0, 4), "train": (0, 4)}
    assert best.knobs == {"learners": 4, "samplers": 4, "engine": "vllm", "asynchrony": "one_off"}
    for piece in ("enumerated", "metropolis"):
        assert rows["one step ahead", piece].seconds == 8
        assert rows["in turn", piece].seconds == 13
    assert rows["in turn", "carried out"].knobs == base.knobs, "nothing is gained without a step ahead"


def test_learning_that_needs_all_devices_keeps_them():
    """In turn on all: 2 + 4 = 6. Beside each other at best max(4, 8) = 8, with four learners."""
    rows = rows_of({2: 5, 4: 4, 8: 2}, {4: 8, 8: 4})
    assert rows["in turn", "symmetric"].seconds == 6 == rows["in turn", "carried out"].seconds
    assert rows["in turn", "carried out"].knobs == {"learners": 8, "asynchrony": "sync"}
    split = rows["one step ahead", "carried out"]
    assert split.seconds == 8 and split.saved == pytest.approx(-1 / 3) and split.knobs["learners"] == 4
    assert rows["one step ahead", "enumerated"].seconds == 6, "the pieces know that it is better not to split"


def test_servers_in_turn_are_carried_out_without_a_step_ahead():
    """The first of four learners samples in 20, two servers in 6: 20 + 3 = 23, and 6 + 5 = 11 with two learners. 6 + 3 = 9
    would take servers on devices of learners."""
    rows = rows_of({2: 6, 4: 20}, {2: 5, 4: 3}, devices=4)
    best, found = rows["in turn", "carried out"], rows["in turn", "enumerated"]
    assert (best.seconds, best.knobs["asynchrony"], best.knobs["samplers"]) == (11, "sync", 2)
    assert best.saved == pytest.approx(12 / 23)
    assert found.seconds == 9 and found.knobs == {} and "share devices" in found.why


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        ({"generate": (4, 4), "reference": (2, 2), "train": (0, 2)}, "the reference has other devices than training"),
        ({"generate": (2, 4), "train": (0, 4)}, "sampling and training share devices"),
        ({"generate": (7, 1), "train": (0, 4)}, "one sampler has a device of its own"),
    ],
)
def test_what_the_stage_cannot_do_is_said(plan, message):
    with pytest.raises(ValueError, match=message):
        _stage.knobs(plan, 8, ahead=True)


def test_too_many_plans_are_left_to_the_search():
    seconds = {n: 8.0 / n for n in range(1, 33)}
    rows = rows_of({2: 6}, {1: 9, 32: 1}, seconds, devices=32)
    assert ("one step ahead", "metropolis") in rows and ("in turn", "enumerated") in rows
    rows = rows_of(seconds, seconds, seconds, devices=32)
    assert ("one step ahead", "metropolis") in rows and ("in turn", "enumerated") not in rows


def test_a_symmetric_plan_that_does_not_fit_is_no_measure():
    rows = rows_of({2: 6, 3: 5}, {1: 9, 2: 5}, devices=4)
    assert rows["in turn", "symmetric"].knobs == {} and all(r.saved is None for r in rows.values())
    assert rows["one step ahead", "carried out"].seconds == 6
