"""The chain of tool calls: what a fault does, who acts, and how often an action comes out as another one."""

import numpy as np
import pytest

from training.env.control.calls import calls


def played(world, seed, act):
    state, seen = world.start(seed)
    paid, faults = 0.0, 0
    for _ in range(world.steps):
        step = world.step(state, act(seen))
        paid, faults, seen = paid + step.reward, faults + (state.fault >= 0), step.observation
    return paid, faults, step


def test_the_expert_is_paid_every_step_and_sees_no_fault():
    world = calls(tools=3, steps=20, slips=0.0)
    for seed in range(5):
        paid, faults, step = played(world, seed, world.expert)
        assert (paid, faults) == (20.0, 0) and step.done and step.parts == {"success": 1.0}


def test_the_expert_mends_where_something_is_broken():
    world = calls(tools=3)
    assert [world.expert(world.seen(q, f)) for q, f in ((2, -1), (2, 0), (0, 2))] == [2, 3, 5]


def test_an_expert_who_drives_does_not_heed_the_policy():
    world = calls(tools=3, steps=20, slips=1.0, driven=1.0)
    paid, faults, _ = played(world, 0, lambda seen: 5)
    assert (paid, faults) == (20.0, 0)


def test_actions_come_out_as_another_one_as_often_as_said():
    assert played(calls(steps=10, slips=1.0), 0, calls().expert)[0] == 0.0  # never as they were meant
    world = calls(steps=1, slips=0.25)
    wrong = np.mean([played(world, seed, world.expert)[1] for seed in range(2000)])
    assert abs(wrong - 0.25) < 0.04  # four standard errors
    seen = [played(calls(steps=1, driven=1.0, shown=x), s, lambda seen: 0)[1] for x in (0.0, 1.0) for s in range(20)]
    assert seen == [0] * 20 + [1] * 20


@pytest.mark.parametrize(
    ("knobs", "message"),
    [({"tools": 0}, "tools is 0"), ({"slips": 1.5}, "slips is 1.5"), ({"driven": -1}, "driven is -1")],
)
def test_bad_knobs_are_one_sentence(knobs, message):
    with pytest.raises(ValueError, match=message):
        calls(**knobs)
