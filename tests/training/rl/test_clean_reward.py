"""Rewards with a gradient and distillation for a policy that denoises: what the network predicts, and what the two losses do to it."""

import numpy as np
import pytest
import torch

from synth.types import Sampling
from tasks.lab.worlds import Room, plans, quiet, run_stage
from tasks.models.control import actor
from training.env.control.modes import CENTRES, composite, modes
from training.learner.pack import pack, rollout_rows
from training.model.control import action_stats, load_policy
from training.model.flow import FlowPolicy
from training.rl.regulariser.clean_reward import clean_reward
from training.rl.regulariser.few_steps import few_steps
from training.rollout.control import seeds


def drawn(model, *, steps, n=200, **knobs):
    """Mean composite reward of samples of the flow itself."""
    world = modes(steps=steps, noise=0.0, **knobs)
    _, player = actor(world, seed=1, sampling=Sampling(temperature=1.0), max_steps=99, model=model)
    groups = player.play(seeds(1, seed=5, family="modes"), n, 5)
    return float(np.mean([r.score.value for r in groups[0].rollouts]))


def test_the_clean_sample_is_that_of_the_velocity():
    world = modes(warm_steps=5, noise=0.7)
    model, player = actor(world, seed=1, sampling=Sampling(temperature=1.0), max_steps=99)
    groups = player.play(seeds(2, seed=0, family="modes"), 3, 1)
    batch = pack(rollout_rows(groups, [[1.0] * 3] * 2))
    on = batch.trainable
    stats, seen = action_stats(model, batch), batch.columns["observation"][on]
    v = model.velocity(seen[:, :2], seen[:, 2:3], seen[:, 3:4])
    torch.testing.assert_close(stats.extras["clean"][on], seen[:, :2] - seen[:, 3:4] * v, atol=1e-4, rtol=0)
    # The first step of each path is told where the path ended, and no other is.
    first = on & (batch.columns["observation"][:, 3] == 1)
    ends = np.stack([r.info["sample"] for g in groups for r in g.rollouts])
    np.testing.assert_allclose(batch.columns["end"][first].numpy(), ends, atol=1e-6)
    assert (batch.columns["end"][~first] == 0).all()
    # Both losses read it: the gradient of the reward is that of the late steps alone, that of the distillation of the first one.
    g = torch.autograd.grad(clean_reward(stats, batch).values.sum(), stats.extras["clean"], retain_graph=True)[0]
    assert ((g.abs().sum(1) > 0) == (on & (batch.columns["observation"][:, 3] <= 0.6))).all()
    g = torch.autograd.grad(few_steps(stats, batch).values.sum(), stats.extras["clean"])[0]
    assert ((g.abs().sum(1) > 0) == first).all()


def test_what_the_world_pays():
    assert composite(CENTRES[[0, 4]], [0], [2.0], 0.4).tolist() == pytest.approx([2.0, 2 * np.exp(-8.0)])
    x, told = modes(warm_steps=5).examples(4000, np.random.default_rng(0))
    assert (np.linalg.norm(x[:, None] - CENTRES, axis=-1).min(1) < 0.3).all() and told.shape == (4000, 1)
    for knobs in ({"liked": [8], "weights": [1.0]}, {"liked": [0]}, {"width": 0.0}, {"few": -1}):
        with pytest.raises(ValueError, match="control/modes"):
            modes(**knobs)
    from tasks.lab import toy

    t = toy.batch([{"logp": [-1.0], "extras": {"clean": [[0.0, 0.0]]}}])
    with pytest.raises(ValueError, match="give one point for each weight"):
        clean_reward(t.stats, t.batch, centres=(1.0,))
    t.stats.extras.clear()
    for piece in (clean_reward, few_steps):
        with pytest.raises(ValueError, match="choose a control world of samples"):
            piece(t.stats, t.batch)


@pytest.mark.slow
def test_the_check_of_the_paper_s_mechanism(tmp_path):
    """The reward rises by half and more, and one step keeps nine tenths of it."""
    room = Room(tmp_path, 1, "seedance-rlhf")
    with quiet():
        run_stage(room, "rl", plans("seedance-rlhf", {}, 150)["rl"])
    model = load_policy(tmp_path / "artifacts/rl/model", FlowPolicy)
    before = drawn(None, steps=10)
    many, one = drawn(model, steps=10), drawn(model, steps=1)
    assert many >= 1.5 * before and one >= 0.9 * many
