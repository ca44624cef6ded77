"""Regret of the chain of calls, by hand: one tool, whose call is missed once in ten."""

import numpy as np
import pytest

from synth.types import UserError, seed_for
from tasks.lab.horizon_worlds import chances, regret, slipped, slope
from tasks.lab.registry import places, train
from training.env.control.calls import calls


def one(miss, undo):
    """[1, 2, 2]: p(call), p(undo) where nothing is broken and where the tool is."""
    return np.array([[[1 - miss, miss], [1 - undo, undo]]])


def test_regret_by_hand():
    # never undone: paid 0.9, 0.81, 0.729 of three calls
    assert regret(one(0.1, 0.0), 3) == pytest.approx(3 - 0.9 - 0.81 - 0.729)
    # undone at once: nothing is broken with 1, 0.9, 0.81 + 0.1 of three calls
    assert regret(one(0.1, 1.0), 3) == pytest.approx(3 - 0.9 * (1 + 0.9 + 0.91))
    assert regret(one(0.0, 0.0), 40) == pytest.approx(0.0)


def test_regret_is_what_episodes_cost():
    """Of two tools and a policy by chance, against the world itself."""
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(4), size=(2, 3))
    world = calls(tools=2, steps=6, slips=0.3)
    lost = []
    for seed in range(4000):
        state, _ = world.start(seed_for(seed, "lost"))
        paid = 0.0
        for _ in range(6):
            paid += world.step(state, int(rng.choice(4, p=p[state.request, state.fault + 1]))).reward
        lost.append(6 - paid)
    error = np.std(lost) / len(lost) ** 0.5
    assert abs(np.mean(lost) - regret(slipped(p, 0.3), 6)) < 4 * error


def test_what_slips_comes_out_as_one_of_the_others():
    assert slipped(np.array([1.0, 0.0, 0.0]), 0.2).tolist() == pytest.approx([0.8, 0.1, 0.1])


def test_the_slope_is_the_power():
    h = np.array([5.0, 10.0, 20.0, 40.0])
    assert slope(h, 0.01 * h**2) == pytest.approx(2.0) and slope(h, 3 * h) == pytest.approx(1.0)
    rare = lambda undo: slope(h, np.array([regret(one(1e-4, undo), int(x)) for x in h]))  # noqa: E731
    # The square where nothing is undone, the length where all does.
    assert 1.85 < rare(0.0) < 2.0 and 1.0 < rare(1.0) < 1.06


def test_chances_are_read_state_by_state():
    world = calls(tools=2)
    expert = lambda seen: 50 * np.eye(4)[[world.expert(x) for x in seen.numpy()]]  # noqa: E731
    import torch

    p = chances(world, lambda seen: torch.from_numpy(expert(seen)))
    assert p.shape == (2, 3, 4) and p.argmax(-1).tolist() == [[0, 2, 3], [1, 2, 3]]
    assert regret(p, 40) == pytest.approx(0.0, abs=1e-9)


def test_another_world_is_refused():
    assert "horizons" in places()
    with pytest.raises(UserError, match="plays control/calls"):
        train("horizons", "lare", {}, 1, 0)
