"""Labels of an expert: which id each step gets, and who is refused."""

from dataclasses import replace

import numpy as np
import pytest

from synth.types import Sampling
from training.env.control.calls import calls
from training.env.control.chests import chests
from training.model.control import ControlPolicy
from training.rl.group_transform.expert_actions import expert_actions
from training.rollout.control import ActionSampler, ControlPlayer, seeds


def groups(world):
    model = ControlPolicy(observation=world.shape.observation, actions=world.shape.actions)
    player = ControlPlayer(
        sampler=ActionSampler(model=model), world=world, sampling=Sampling(temperature=1.0), max_steps=12
    )
    return player.play(seeds(3, seed=0, family="calls"), 2, 0)


def test_each_step_gets_what_the_expert_would_have_done_there():
    world = calls(tools=3, steps=12)
    before = groups(world)
    after = expert_actions(before, None, {}, np.random.default_rng(0))
    moved = 0
    for g, h in zip(before, after, strict=True):
        assert (g.rewards == h.rewards).all()
        for r, s in zip(g.rollouts, h.rollouts, strict=True):
            assert s.off_policy and not r.off_policy
            for a, b in zip(r.segments[1:], s.segments[1:], strict=True):
                assert b.ids.tolist() == [world.expert(a.extras["observation"][0])]
                assert (a.extras["observation"] == b.extras["observation"]).all()  # the state is the policy's own
                moved += int(a.ids[0] != b.ids[0])
    assert moved > 20  # an untrained policy is right once in six


def test_a_world_without_an_expert_is_refused():
    played = groups(calls())
    (first, *rest) = played[0].rollouts
    bare = replace(
        first, segments=tuple(replace(s, extras={"observation": s.extras["observation"]}) for s in first.segments)
    )
    with pytest.raises(ValueError, match="no expert to ask"):
        expert_actions([replace(played[0], rollouts=(bare, *rest))], None, {}, np.random.default_rng(0))
    assert not hasattr(chests(), "expert")
