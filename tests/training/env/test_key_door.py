"""The grid with a key and a door: its rules, what its teacher says, what it tells of a step."""

import itertools

import numpy as np
import pytest

from training.env.control.key_door import NEAR, NEXT, key_door

MOVES = ((0, -1), (1, 0), (0, 1), (-1, 0))


def nearest(state, size):
    """The action of a shortest way to what is next."""
    goal = state.goal if state.open else state.door if state.held else state.key
    free = lambda c: (
        0 <= c[0] < size
        and 0 <= c[1] < size
        and (c[0] != state.door[0] or c == goal or (c == state.door and state.open))
    )  # noqa: E731
    ahead, seen = [(state.at, [])], {state.at}
    for at, way in ahead:
        if at == goal:
            return way[0]
        for a, (dx, dy) in enumerate(MOVES):
            to = (at[0] + dx, at[1] + dy)
            if free(to) and to not in seen:
                seen.add(to)
                ahead.append((to, [*way, a]))
    raise AssertionError("no way")


def walk(world, seed, size=8):
    state, seen = world.start(seed)
    rewards, told, facts = [], [seen], []
    for _ in range(200):
        a = nearest(state, size)
        facts.append(world.factors(told[-1], a))
        step = world.step(state, a)
        rewards.append(step.reward)
        told.append(step.observation)
        if step.done:
            return state, rewards, told, facts, step
    raise AssertionError("never done")


@pytest.mark.parametrize("seed", range(8))
def test_the_shortest_way_is_paid_once_at_the_goal(seed):
    state, rewards, told, facts, last = walk(key_door(steps=200), seed)
    assert rewards[-1] == 1.0 and not any(rewards[:-1]) and last.parts == {"success": 1.0, "stage": 3.0}
    stages = [int(x[NEXT : NEXT + 3].sum()) for x in told]
    assert stages[0] == 0 and stages[-1] == 3 and all(b - a in (0, 1) for a, b in itertools.pairwise(stages))
    # a step of a shortest way is one nearer, unless it goes around the end of nothing: there is no obstacle in a room
    assert np.sum(facts, 0)[3:].tolist() == [1, 1, 1] and all(f[:3].sum() == 1 for f in facts)


def test_a_locked_door_is_a_wall_and_time_ends_an_episode():
    world = key_door(steps=5)
    state, _ = world.start(1)
    state.at = (state.door[0] - 1, state.door[1])
    step = world.step(state, 1)
    assert state.at[0] == state.door[0] - 1 and step.observation[NEAR + 1] == 0 and step.reward == 0
    assert world.factors(step.observation, 1)[:3].sum() <= 0
    state.held = True
    assert world.step(state, 1).observation[NEXT + 1] == 1 and state.at == state.door
    for _ in range(3):
        over = world.step(state, 3)
    assert over.done and over.parts == {"success": 0.0, "stage": 2.0}


@pytest.mark.parametrize("teacher", ["position", "object"])
def test_the_teacher_pays_each_sub_goal_once_and_says_what_is_next(teacher):
    world = key_door(teacher=teacher, error_rate=0.0, absent=0.0, steps=200, bonus=0.25)
    state, rewards, told, _, _ = walk(world, 3)
    assert sum(rewards) == pytest.approx(1.75) and not state.subgoals
    assert told[0][15] == 1.0 and told[-1][15:].sum() == 0
    named = told[0][16:18] if teacher == "position" else told[0][18:]
    expected = told[0][2:4] if teacher == "position" else [1, 0, 0]
    np.testing.assert_allclose(named, expected)


def test_some_episodes_have_no_teacher_and_some_sub_goals_are_wrong():
    world = key_door(teacher="position", error_rate=0.3, absent=0.25)
    states = [world.start(s)[0] for s in range(400)]
    taught = [s for s in states if s.subgoals]
    right = [cell == true for s in taught for (cell, _), true in zip(s.subgoals, (s.key, s.door, s.goal), strict=True)]
    assert 0.70 < len(taught) / 400 < 0.80 and 0.65 < np.mean(right) < 0.76
    plain = key_door().start(5)[0]
    assert (plain.key, plain.door, plain.goal) == (states[5].key, states[5].door, states[5].goal)


def test_an_episode_may_go_on_at_the_goal():
    world = key_door(ends=False, steps=60)
    state, _ = world.start(2)
    rewards = []
    for _ in range(60):
        step = world.step(state, 0 if state.done else nearest(state, 8))
        rewards.append(step.reward)
    assert step.done and sum(rewards) == 1.0 and step.parts["success"] == 1.0


@pytest.mark.parametrize(
    "knobs, says",
    [({"size": 4}, "5 or more"), ({"teacher": "words"}, "none, position or object"), ({"bonus": 0.4}, "below 1/3")],
)
def test_knobs_that_cannot_be(knobs, says):
    with pytest.raises(ValueError, match=says):
        key_door(**knobs)
