"""The grid with several goals, and the rows that each level of a hierarchy learns from."""

import numpy as np
import pytest

from tasks.lab import toy
from training.env.control.goals import HIGH, goals
from training.rl.group_transform.levels import levels

MOVES = ((0, -1), (1, 0), (0, 1), (-1, 0))


def way(world, state, to):
    """The first move of a shortest way to a cell."""
    ahead, seen = [(state.at, [])], {state.at}
    for at, done in ahead:
        if at == to:
            return done[0]
        for a, (dx, dy) in enumerate(MOVES):
            cell = (at[0] + dx, at[1] + dy)
            if cell not in seen and world._free(state, cell):
                seen.add(cell)
                ahead.append((cell, [*done, a]))
    raise AssertionError("no way")


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("count", [1, 2])
def test_all_goals_can_be_visited_and_each_is_paid_once(seed, count):
    world = goals(levels=count, steps=400, patience=100)
    state, seen = world.start(seed)
    total, named = 0.0, 0
    for _ in range(400):
        left = [i for i in range(3) if i not in state.visited]
        if count == 2 and seen[HIGH] == 1:
            action, named = left[0], named + 1
            assert not seen[1:5].any() and not seen[14:].any()  # neighbours are the low level's, and no goal is named
        else:
            target = state.named if count == 2 else left[0]
            action = way(world, state, state.goals[target])
            if count == 2:
                assert not seen[5:14].any()  # it sees the goal that was named alone
                assert np.allclose(seen[14:] * 7, np.subtract(state.goals[target], state.at))
        step = world.step(state, action)
        seen, total = step.observation, total + step.reward
        if step.done:
            break
    assert step.parts == {"success": 1.0, "stage": 3.0} and total == 3.0 and named == (3 if count == 2 else 0)


def test_a_wall_costs_and_patience_ends():
    world = goals(patience=2, walls=0.0)
    state, seen = world.start(1)
    state.at, state.goals = (0, 0), [(0, 6), (5, 5), (6, 6)]
    assert world.step(state, 3).reward == 0.0 and state.named == -1  # there is no goal 3: a step is lost
    world.step(state, 1)
    assert world.step(state, 0).reward == -0.05 and state.at == (0, 0)
    step = world.step(state, 1)
    assert state.at == (1, 0) and state.named == -1 and step.observation[HIGH] == 1
    state.visited = {1}
    world.step(state, 1)
    assert state.named == -1  # a goal that was visited is not named again


def test_a_noisy_detector_is_wrong_as_often_as_said():
    world = goals(levels=1, noise=0.2, walls=0.0)
    state, _ = world.start(3)
    state.at = (3, 3)
    seen = np.array([world._seen(state)[1:5] for _ in range(2000)])
    assert 0.17 < (seen == 0).mean() < 0.23
    with pytest.raises(ValueError, match="levels is 3"):
        goals(levels=3)
    with pytest.raises(ValueError, match="make the grid|fit twice"):
        goals(size=2)


def rollout(flags, rewards, score):
    seen = [[float(f), float(i)] for i, f in enumerate(flags)]
    return toy.groups([[score]], [[len(flags)]], extras=[[{"observation": seen}]], steps=[[rewards]])


def test_each_level_has_rows_of_its_own():
    given = rollout([1, 0, 0, 1, 1, 0], [0.0, -0.5, 1.0, 0.0, 0.0, 2.0], 2.5)
    (out,) = levels(given, None, {}, np.random.default_rng(0))
    paid = [[s.reward for s in r.segments if s.role == "model"] for r in out.rollouts]
    assert paid == [[0.5, 0.0, 2.0], [-0.5, 1.0], [2.0]]  # the second decision led to no move: it has no sub-task
    assert [r.score.value for r in out.rollouts] == [2.5, 0.5, 2.0]
    assert [r.n_model for r in out.rollouts] == [3, 2, 1] and {r.group for r in out.rollouts} == {out.id}
    places = [[int(s.extras["observation"][0][1]) for s in r.segments if s.role == "model"] for r in out.rollouts]
    assert places == [[0, 3, 4], [1, 2], [5]]
    flat = rollout([0, 0], [1.0, 1.0], 2.0)
    assert levels(flat, None, {}, np.random.default_rng(0))[0].rollouts == flat[0].rollouts
