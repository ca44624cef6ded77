"""Multi-level Monte Carlo plays: their lengths, their weights, and what an average reward follows."""

import numpy as np
import pytest

from tasks.lab import toy
from training.env.control.fields import fields
from training.rl.group_transform.multilevel import multilevel, weights


def test_weights_are_those_of_the_formula():
    """g = g^0 + N (g^J - g^(J-1)) of random samples, for each level."""
    rng = np.random.default_rng(0)
    assert weights(1).tolist() == [1.0]
    for level in range(1, 7):
        n = 2**level
        x = rng.normal(size=n)
        g = x[0] + n * (x.mean() - x[: n // 2].mean())
        assert weights(n) @ x == pytest.approx(g)
    with pytest.raises(ValueError, match="power of 2"):
        weights(6)


def test_a_play_takes_six_steps_and_its_mean_is_that_of_64():
    world = fields(most=64)
    lengths = np.array([world.start(seed)[0].left - 1 for seed in range(20_000)])
    assert lengths.mean() == pytest.approx(6.016, rel=0.05)
    # Samples of a play that depend on the place in it alone: x_t = t; the mean of the first 64 is 31.5.
    drawn = {n: (lengths == n).mean() for n in (1, 2, 4, 8, 16, 32, 64)}
    exact = sum(2.0**-j * (weights(2**j) @ np.arange(2**j)) for j in range(1, 7))
    assert exact == pytest.approx(31.5)  # the rest of the levels, 1/64, gives sample 0 alone, which is 0
    assert drawn[2] == pytest.approx(0.5, abs=0.02) and drawn[64] == pytest.approx(1 / 64, abs=0.004)
    assert drawn[1] == pytest.approx(1 / 64, abs=0.004)


def one(rewards, places):
    n = len(rewards)
    seen = {"observation": [[float(p)] for p in places]}
    return toy.groups([[sum(rewards)]], [[n]], extras=[[seen]], steps=[[rewards]])


def test_the_average_reward_is_learned_and_is_no_part_of_a_difference():
    state = {}
    for _ in range(200):
        multilevel(one([2.0] * 5, [0] * 5), None, state, np.random.default_rng(1), updates=0, hidden=0)
    assert state["eta"] == pytest.approx(2.0, abs=1e-6)
    (out,) = multilevel(
        one([2.0, 2.0, 3.0, 0.0], [0] * 4), None, state, np.random.default_rng(1), updates=0, hidden=0, levels=False
    )
    paid = [s.reward for s in out.rollouts[0].segments if s.role == "model"]
    assert paid == pytest.approx([0.0, 0.0, 1 / 3, 0.0], abs=1e-6)


def test_values_fall_with_the_way_to_a_reward():
    """A ring of four places, of which the last one pays: differential values grow by eta with each step towards it."""
    state = {}
    for i in range(600):
        places = [(i + t) % 4 for t in range(17)]
        rewards = [float(p == 3) for p in places]
        one_hot = toy.groups(
            [[0.0]], [[17]], extras=[[{"observation": [np.eye(4)[p].tolist() for p in places]}]], steps=[[rewards]]
        )
        multilevel(one_hot, None, state, np.random.default_rng(1), levels=False, lr=1e-2)
    from training.rl.group_transform._steps import Small

    v = Small(state["net"], 4, hidden=32, seed=0).values(np.eye(4))
    assert state["eta"] == pytest.approx(0.25, abs=0.02)
    assert np.diff(v) == pytest.approx([0.25, 0.25, 0.25], abs=0.03)


def test_a_field_pays_and_sends_away():
    world = fields(size=3, random=False, most=4)
    state, _ = world.start(1)
    assert sum(state.at) < 2 and state.left == 5
    state.at = (2, 1)
    step = world.step(state, 2)
    assert step.reward == 1.0 and state.at != (2, 2) and not step.done
    for _ in range(4):
        step = world.step(state, 0)
    assert step.done and step.parts == {"rate": pytest.approx(0.2)}
    assert fields(unseen=True, long=7).start(1)[0].left == 7
    with pytest.raises(ValueError, match="powers of 2"):
        fields(most=6)
