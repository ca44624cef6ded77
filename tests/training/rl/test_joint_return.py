"""Particles of joint returns (MD3QN): what depends on what is learned, the target is that of the best next action, and the policy is read as any."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from synth.types import Sampling
from tasks.lab import toy
from tasks.lab.control_worlds import joint_error
from tasks.models.control import actor
from training.env.control.chests import chests
from training.learner.pack import pack, rollout_rows
from training.model.control import ControlPolicy, action_stats, load_policy, save_policy
from training.model.particles import ParticlePolicy
from training.rl.regulariser.joint_return import joint_return
from training.rollout.control import seeds

WIDTHS = (1.0, 2.0, 4.0, 8.0, 16.0)  # those of the paper


def fitted(joint, states=12, n=16, steps=400):
    """Particles of `states` one-step episodes that pay (+1, -1) or (-1, +1) with equal chance, [states, n, 2]."""
    generator = torch.Generator().manual_seed(1)
    z = (0.3 * torch.randn(states, n, 2, generator=generator)).requires_grad_()
    optimizer = torch.optim.Adam([z], lr=0.05)
    coin = torch.tensor([1.0, -1.0])
    rows = [{"logp": [-1.0] * 2, "columns": {"rewards": torch.stack([coin, -coin], 1).tolist()}}] * states
    t = toy.batch(rows)
    at = t.batch.trainable.nonzero().squeeze(1)
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = 0.05 if step < 300 else 0.01
        spread = torch.zeros(len(t.batch.ids), n, 2).index_add(0, at, z.repeat_interleave(2, 0))
        t.stats.extras["particles"] = spread
        terms = joint_return(t.stats, t.batch, bandwidths=WIDTHS, joint=joint)
        optimizer.zero_grad()
        terms.values.sum().backward()
        optimizer.step()
    return z.detach().numpy()


def test_one_coin_pays_one_source_or_the_other():
    """The check of the paper's mechanism: correlation -1 +- 0.05 and means 0 +- 0.05; learned source by source, 0 +- 0.1."""
    z = fitted(joint=True)
    assert np.mean([np.corrcoef(one.T)[0, 1] for one in z]) == pytest.approx(-1.0, abs=0.05)
    assert z.mean((0, 1)) == pytest.approx([0.0, 0.0], abs=0.05)
    alone = fitted(joint=False)
    assert np.mean([np.corrcoef(one.T)[0, 1] for one in alone]) == pytest.approx(0.0, abs=0.1)
    assert np.abs(np.abs(alone) - 1).mean() < 0.2  # each source is right by itself


def test_the_target_is_what_is_ahead_in_the_same_row_and_has_no_gradient():
    """Two rows: the first ends after two steps, and what follows it in the batch is no future of it."""
    row = {"logp": [-1.0, -1.0], "columns": {"rewards": [[1, 0], [0, 1]], "ahead": [[[5, 5]], [[2, 2]]]}}
    t = toy.batch(
        [row, {"logp": [-1.0, -1.0], "columns": {"rewards": [[0, 0], [0, 0]], "ahead": [[[7, 7]], [[0, 0]]]}}]
    )
    t.batch.columns["ahead"][t.batch.position == 0] = 9.0
    # (1, 0) + 0.5 (2, 2), then (0, 1).
    right = torch.tensor([[[0.0, 0]], [[2.0, 1]], [[0, 1]], [[0, 0]], [[0, 0]], [[0, 0]]])
    t.stats.extras["particles"] = right.requires_grad_()
    values = joint_return(t.stats, t.batch, gamma=0.5).values
    assert values.tolist() == pytest.approx([0.0] * 6, abs=1e-6)
    t.stats.extras.clear()
    with pytest.raises(ValueError, match="choose a control world with a network of particles"):
        joint_return(t.stats, t.batch)


def test_a_policy_of_particles_is_read_as_it_acted():
    world = chests(length=5, particles=4, heat=0.5)
    model, player = actor(world, seed=3, sampling=Sampling(temperature=1.0), max_steps=9)
    assert isinstance(model, ParticlePolicy) and not torch.equal(
        model.layers[-1].bias, actor(world, seed=4, sampling=player.sampling, max_steps=9)[0].layers[-1].bias
    )
    groups = player.play(seeds(3, seed=0, family="chests"), 2, 1)
    batch = pack(rollout_rows(groups, [[1.0] * 2] * 3))
    stats, on = action_stats(model, batch), batch.trainable
    torch.testing.assert_close(stats.logp[on], batch.columns["sampling_logp"][on], atol=1e-5, rtol=0)
    z = stats.extras["particles"]
    assert z.shape == (len(batch.ids), 4, 2) and (z[~on] == 0).all()
    # By hand: the softmax of the summed means over the heat, and the particles of the action that was taken.
    all_ = model.particles(batch.columns["observation"][on])
    q = all_.mean(2).sum(2)
    torch.testing.assert_close(stats.logp[on], torch.log_softmax(q / 0.5, 1).gather(1, batch.ids[on][:, None])[:, 0])
    torch.testing.assert_close(z[on], all_[torch.arange(len(all_)), batch.ids[on]])
    best = all_[torch.arange(len(all_)), q.argmax(1)]
    torch.testing.assert_close(batch.columns["ahead"][on], best.detach(), atol=1e-5, rtol=0)
    for g in groups:
        for r in g.rollouts:
            assert all(float(s.extras["rewards"].sum()) == s.reward for s in r.segments[1:])


def test_what_the_chests_hold():
    world = chests(length=4, low=0.25, high=0.5)
    state, _ = world.start(0)
    state.at, state.first = 1, False
    step = world.step(state, 0)
    assert (step.rewards.tolist(), step.reward, step.done, step.parts) == ([0.0, 1.0], 1.0, True, {"success": 1.0})
    state, _ = world.start(1)
    state.at = 2
    step = world.step(state, 1)
    assert step.rewards.tolist() in ([0.25] * 2, [0.5] * 2) and step.parts == {"success": 0.0}
    paid = []
    for seed in range(400):
        state, _ = world.start(seed)
        state.at = 1
        paid.append(world.step(state, 0).rewards)
    assert np.corrcoef(np.array(paid).T)[0, 1] == pytest.approx(-1.0)
    with pytest.raises(ValueError, match="3 cells or more"):
        chests(length=2)
    with pytest.raises(ValueError, match="2 particles or more"):
        chests(particles=1)


def test_the_error_of_particles_is_an_energy_distance(tmp_path):
    """Particles (1, 0) and (0, 1) against returns (1, 0) and (0, 1): 0. Against (0, 0) and (1, 1): every distance across is 1, both within are
    sqrt 2 / 2: 2 - sqrt 2."""

    def rollout(paid):
        segments = toy.groups(
            [[0.0]], extras=[[{"observation": [[1.0]], "rewards": [paid], "ahead": [[[1, 0], [0, 1]]]}]]
        )
        return segments[0].rollouts[0]

    assert joint_error([rollout([1, 0]), rollout([0, 1])]) == pytest.approx(0.0)
    assert joint_error([rollout([0, 0]), rollout([1, 1])]) == pytest.approx(2 - math.sqrt(2))
    (plain,) = toy.groups([[0.0]])[0].rollouts
    assert joint_error([plain]) == joint_error([replace(plain, segments=plain.segments[:1])]) == 0.0
    model = ParticlePolicy(observation=3, actions=2, particles=4)
    save_policy(model, tmp_path / "m")
    again = load_policy(tmp_path / "m", ParticlePolicy)
    assert torch.equal(again(torch.eye(3)), model(torch.eye(3)))
    with pytest.raises(ValueError, match="no policy of actions of this kind"):
        load_policy(tmp_path / "m", ControlPolicy)
