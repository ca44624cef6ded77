"""A policy that learns in its context: what it sees of a bandit, its two mixtures of experts, and the contrast that teaches the task's router."""

import math

import numpy as np
import pytest
import torch

from synth.types import Sampling
from tasks.lab import toy
from tasks.models.control import actor
from training.env.control.bandits import bandits
from training.learner.pack import pack, rollout_rows
from training.model.control import action_stats
from training.model.in_context import InContextPolicy, top
from training.rl.regulariser.task_contrast import prepare, task_contrast
from training.rollout.control import seeds

SMALL = {"arms": 3, "pulls": 4, "hidden": 8, "inner": 4}


def played(**knobs):
    world = bandits(**SMALL, **knobs)
    model, player = actor(world, seed=1, sampling=Sampling(temperature=1.0), max_steps=99)
    groups = player.play(seeds(3, seed=0, family="bandits"), 2, 1)
    return model, pack(rollout_rows(groups, [[1.0] * 2] * 3))


def test_a_bandit_tells_what_was_done_and_paid():
    world = bandits(**SMALL)
    state, seen = world.start(5)
    assert (seen == 0).all() and len(seen) == world.shape.observation == 17
    state.means, state.coins = np.array([0.0, 1.0, 0.5]), np.full((3, 4), 0.4)
    rewards = [world.step(state, a) for a in (0, 1, 2, 1)]
    assert [s.reward for s in rewards] == [0.0, 1.0, 1.0, 1.0] and rewards[-1].parts == {"success": 1.0}
    assert rewards[1].observation.tolist() == [1, 0, 0, 0, 0, 1, 0, 1, *[0] * 8, 0.5]
    for knobs in ({"arms": 1}, {"mixture": "both"}, {"top_k": 9}, {"hidden": 7}):
        with pytest.raises(ValueError, match="control/bandits"):
            bandits(**knobs)


def test_what_is_to_come_is_not_read():
    """The places of later pulls are masked: with other numbers there, the logits are the same."""
    model = InContextPolicy(observation=17, actions=3, hidden=8, inner=4, seed=2)
    torch.nn.init.normal_(model.leave.weight)
    seen = torch.zeros(1, 17)
    seen[0, [0, 3, 16]] = 1.0
    one = model.read(seen)
    assert one["used"].sum() == 3
    with torch.no_grad():
        model.place[2:-1] += torch.linspace(-9, 9, 8)  # the places of pulls that were not made
    torch.testing.assert_close(model(seen), one["logits"])
    seen[0, 3] = 0.0
    assert not torch.allclose(model(seen), one["logits"])


def test_the_largest_experts_alone_act():
    weights = top(torch.tensor([[0.0, math.log(3.0), -9.0]]), 2)
    assert weights.tolist() == [pytest.approx([0.25, 0.75, 0.0])]
    model = InContextPolicy(observation=17, actions=3, hidden=8, inner=4, experts=3, top_k=1, seed=2)
    seen = torch.rand(2, 17)
    before = model.read(seen)
    least = int(before["routers"][0].argmin())
    with torch.no_grad():
        model.task.into[least] += 1.0
    torch.testing.assert_close(model(seen)[0], before["logits"][0])


@pytest.mark.parametrize("mixture", ["dual", "dense"])
def test_the_learner_reads_what_was_sampled(mixture):
    model, batch = played(mixture=mixture)
    stats, on = action_stats(model, batch), batch.trainable
    torch.testing.assert_close(stats.logp[on], batch.columns["sampling_logp"][on], atol=1e-5, rtol=0)
    if mixture == "dense":
        assert not stats.extras
        with pytest.raises(ValueError, match="mixture: dual"):
            task_contrast(stats, batch)
        return
    torch.testing.assert_close(batch.columns["task_key"][on], stats.extras["routers"][on].exp(), atol=1e-5, rtol=0)
    assert (stats.extras["balance"][on] >= 1 - 1e-5).all()
    prepare(batch)
    assert batch.columns["keys"].shape == (6, 6, 4) and batch.columns["keys_on"].sum(1).tolist() == [5.0] * 6
    terms = task_contrast(stats, batch)
    assert (terms.values != 0).sum() == 6
    terms.values.sum().backward()
    assert float(model.task_gate.weight.grad.abs().sum()) > 0


def test_the_contrast_pulls_one_task_together():
    """Descent on routers of four tasks, two rollouts each: afterwards the router tells the tasks apart."""
    z = torch.randn(8, 4, generator=torch.Generator().manual_seed(0)).requires_grad_()
    optimizer = torch.optim.Adam([z], lr=0.1)
    for _ in range(150):
        keys = torch.softmax(z, 1).detach().tolist()
        rows = [{"logp": [-1.0], "group": i // 2, "columns": {"task_key": [keys[i]]}} for i in range(8)]
        t = toy.batch(rows)
        spread = torch.zeros(len(t.batch.ids), 4).index_add(
            0, t.batch.trainable.nonzero().squeeze(1), torch.log_softmax(z, 1)
        )
        t.stats.extras["routers"] = spread
        prepare(t.batch)
        optimizer.zero_grad()
        task_contrast(t.stats, t.batch, coef=1.0, balance=0.0).values.sum().backward()
        optimizer.step()
    best = z.argmax(1).tolist()
    assert best[::2] == best[1::2] and len(set(best)) == 4
