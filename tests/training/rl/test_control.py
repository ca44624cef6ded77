"""A policy that writes no tokens: its statistics against numbers by hand, and that everything above them is what it is for text."""

import math
import re
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

from synth.types import Sampling
from tasks.core.errors import UserError
from tasks.lab.worlds import Room, plans, quiet, run_stage
from tasks.models.control import OF_TEXT, start
from tasks.planning.pieces import bind
from training.env.control import Shape, Step
from training.env.control.gymnasium import gymnasium
from training.learner.learner import Learner, Optim, score
from training.learner.pack import pack, rollout_rows
from training.model.control import (
    ControlPolicy,
    ControlValue,
    action_stats,
    control_values,
    load_policy,
    save_policy,
)
from training.rl.critic import Critic
from training.rl.value_loss.squared import squared
from training.rollout.control import ActionSampler, ControlPlayer, seeds


class Corridor:
    """Right pays the place that it leads to, left ends; three steps to the right end too."""

    def __init__(self, continuous=False):
        self.shape = Shape(observation=2, actions=2, continuous=continuous)
        self.closed = 0

    def start(self, seed):
        return {"at": 0, "seed": seed % 7}, np.array([0.0, seed % 7])

    def step(self, state, action):
        right = bool(np.asarray(action).ravel()[0] > 0)
        state["at"] += right
        done = not right or state["at"] == 3
        return Step(
            observation=np.array([state["at"], state["seed"]]),
            reward=float(state["at"]) if right else 0.0,
            done=done,
            parts={"end": 1.0} if done else {},
        )

    def close(self, state):
        self.closed += 1


def played(world, *, samples=4, temperature=1.0, seed=1, problems=2, max_steps=9):
    model = ControlPolicy(observation=2, actions=2, continuous=world.shape.continuous, hidden=8, seed=3)
    player = ControlPlayer(
        sampler=ActionSampler(model=model, version=5),
        world=world,
        sampling=Sampling(temperature=temperature),
        max_steps=max_steps,
    )
    return model, player.play(seeds(problems, seed=0, family="corridor"), samples, seed)


def batch_of(groups):
    return pack(rollout_rows(groups, [[1.0] * len(g.rollouts) for g in groups]))


def fixed(continuous, last):
    """A policy whose output is `last` whatever it sees."""
    model = ControlPolicy(observation=2, actions=2, continuous=continuous, hidden=4)
    torch.nn.init.zeros_(model.layers[-1].weight)
    model.layers[-1].bias.data = torch.tensor(last)
    return model


@pytest.mark.parametrize("continuous", [False, True])
@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_the_learner_reads_the_log_probs_that_were_sampled(continuous, temperature):
    model, groups = played(Corridor(continuous), temperature=temperature)
    batch = batch_of(groups)
    stats = action_stats(model, batch, temperature=temperature)
    on = batch.trainable
    assert int(on.sum()) == sum(r.n_model for g in groups for r in g.rollouts)
    torch.testing.assert_close(stats.logp[on], batch.columns["sampling_logp"][on], atol=1e-5, rtol=0)
    torch.testing.assert_close(stats.entropy[on], batch.columns["sampling_entropy"][on], atol=1e-5, rtol=0)
    assert stats.logp[~on].abs().max() == 0
    # Parts of a batch are read as the whole is.
    torch.testing.assert_close(
        score(model, batch, temperature=temperature, tokens_per_microbatch=3, read=action_stats).logp, stats.logp
    )


def test_log_prob_and_entropy_of_actions_by_hand():
    _, groups = played(Corridor())
    batch = batch_of(groups)
    model = fixed(False, [0.0, math.log(3.0)])  # probabilities 1/4 and 3/4
    stats = action_stats(model, batch)
    logp = torch.where(batch.ids == 1, math.log(0.75), math.log(0.25))
    torch.testing.assert_close(stats.logp[batch.trainable], logp[batch.trainable])
    entropy = 0.25 * math.log(4) + 0.75 * math.log(4 / 3)
    assert stats.entropy[batch.trainable].tolist() == pytest.approx([entropy] * int(batch.trainable.sum()))
    # At temperature 1/2 the odds of 3 are 9.
    cold = action_stats(model, batch, temperature=0.5).logp
    assert cold[batch.trainable & (batch.ids == 1)].tolist() == pytest.approx(
        [math.log(0.9)] * int((batch.trainable & (batch.ids == 1)).sum())
    )
    assert stats.distribution().exp().sum(1).tolist() == pytest.approx([1.0] * int(batch.trainable.sum()))


def test_a_normal_policy_by_hand():
    _, groups = played(Corridor(continuous=True))
    batch = batch_of(groups)
    batch.columns["action"][:] = torch.tensor([1.5, -1.0])
    model = fixed(True, [0.5, -1.0])
    # (1.5 - 0.5)^2 / 2 = 1/2 with deviation 1, and two normalisations; each dimension has entropy log(2 pi e) / 2.
    stats = action_stats(model, batch)
    assert stats.logp[batch.trainable].tolist() == pytest.approx(
        [-0.5 - math.log(2 * math.pi)] * int(batch.trainable.sum())
    )
    assert float(stats.entropy[batch.trainable][0].detach()) == pytest.approx(1 + math.log(2 * math.pi))
    # Temperature 2 doubles the variance: 1/4, and log 2 more of normalisation (log sqrt 2 of each dimension).
    warm = action_stats(model, batch, temperature=2.0).logp[batch.trainable]
    assert float(warm[0].detach()) == pytest.approx(-0.25 - math.log(2 * math.pi) - math.log(2))


def test_a_step_is_a_turn_with_its_reward_and_the_score_is_the_return():
    world = Corridor()
    _, groups = played(world)
    assert world.closed == 8
    for g in groups:
        seen = {float(r.segments[1].extras["observation"][0, 1]) for r in g.rollouts}
        assert len(seen) == 1, "the rollouts of a group begin in one state"
        for r in g.rollouts:
            moves = [int(s.ids[0]) for s in r.segments[1:]]
            paid = [s.reward for s in r.segments[1:]]
            rights = moves.count(1)
            assert paid[:rights] == [1.0, 2.0, 3.0][:rights] and r.score.value == sum(paid)
            assert r.score.parts["unpaid"] == 0 and r.score.parts["end"] == 1 and r.score.parts["cut"] == 0
            assert {s.version for s in r.segments[1:]} == {5}
    _, groups = played(world, max_steps=1)
    cut = [r for g in groups for r in g.rollouts if r.segments[1].ids[0] == 1]
    assert cut and all(r.score.parts["cut"] == 1 and r.turns == 1 for r in cut)


def test_who_else_is_played_does_not_matter():
    _, many = played(Corridor(), samples=4, problems=3)
    _, few = played(Corridor(), samples=2, problems=1)
    assert [r.ids.tolist() for r in few[0].rollouts] == [r.ids.tolist() for r in many[0].rollouts[:2]]
    _, other = played(Corridor(), samples=4, problems=3, seed=2)
    assert [r.ids.tolist() for g in other for r in g.rollouts] != [r.ids.tolist() for g in many for r in g.rollouts]


def test_values_are_those_of_what_was_seen():
    _, groups = played(Corridor())
    batch = batch_of(groups)
    critic = ControlValue(observation=2, hidden=4, seed=1)
    out = control_values(critic, batch).extras["value"]
    for t in range(len(batch.ids)):
        want = critic(batch.columns["observation"][t : t + 1])[0] if batch.trainable[t] else torch.zeros(())
        torch.testing.assert_close(out[t], want)


def test_a_policy_is_read_as_it_was_written(tmp_path):
    model = ControlPolicy(observation=3, actions=2, continuous=True, seed=4)
    save_policy(model, tmp_path / "model")
    again = load_policy(tmp_path / "model")
    seen = torch.ones(2, 3)
    assert torch.equal(model(seen), again(seen)) and torch.equal(model.log_deviation, again.log_deviation)
    (tmp_path / "model" / "config.json").write_text('{"model_type": "qwen3"}')
    with pytest.raises(ValueError, match="holds no policy of actions"):
        load_policy(tmp_path / "model")


def test_worlds_of_gymnasium():
    world = gymnasium()
    assert world.shape == Shape(observation=4, actions=2)
    state, seen = world.start(2**40)
    assert seen.shape == (4,)
    step = world.step(state, 0)
    assert step.reward == 1 and not step.done
    world.close(state)
    assert gymnasium(id="FrozenLake-v1").shape == Shape(observation=16, actions=4)
    pendulum = gymnasium(id="Pendulum-v1", steps=2)
    assert pendulum.shape == Shape(observation=3, actions=1, continuous=True)
    state, _ = pendulum.start(1)
    assert not pendulum.step(state, np.array([9.0])).done  # beyond its bounds: kept within
    last = pendulum.step(state, np.array([0.0]))
    assert last.done and last.parts == {"late": 1.0}
    with pytest.raises(ValueError, match="is no environment here"):
        gymnasium(id="NoSuch-v1")
    with pytest.raises(ValueError, match="only Box and Discrete"):
        gymnasium(id="Blackjack-v1")


def knobs(**other):
    return {**OF_TEXT, "group_transforms": [], "asynchrony": bind("asynchrony", {"piece": "sync"})(), **other}


def test_knobs_of_text_are_refused():
    how = {"seed": 1, "needs": frozenset(), "temperature": 1.0, "device": "cpu", "max_steps": 5}
    with pytest.raises(UserError, match="teacher is for a model that writes text"):
        start(Corridor, **how, knobs=knobs(teacher="models/big"))
    with pytest.raises(UserError, match="shards is for a model that writes text"):
        start(Corridor, **how, knobs=knobs(shards=2))
    ahead = bind("asynchrony", {"piece": "streamed"})()
    with pytest.raises(UserError, match="leave out rl.asynchrony"):
        start(Corridor, **how, knobs=knobs(asynchrony=ahead))
    heat = bind("group_transform", {"piece": "heat"})
    with pytest.raises(UserError, match="heat asks for texts"):
        start(Corridor, **how, knobs=knobs(group_transforms=[heat]))
    with pytest.raises(UserError, match="no environment here"):
        start(bind("control", {"piece": "gymnasium", "id": "NoSuch-v1"}), **how, knobs=knobs())


HOW = {"seed": 1, "needs": frozenset(), "temperature": 1.0, "device": "cpu", "max_steps": 5}


@pytest.mark.parametrize("entries", ["[[C]]", "['[C]', [C]]", "[1]", "[true]", "[null]"])
def test_a_text_that_yaml_reads_as_something_else_is_refused_with_the_quotes(entries):
    knobs_of_rl = plans("paccmann-rl-covid", {"rl": {"control": {"molecules": yaml.safe_load(entries)}}}, 2)["rl"]
    make = bind("control", knobs_of_rl.params["control"])
    with pytest.raises(UserError, match=r'rl\.control\.molecules is .* write each in quotes, as "\[C\]"'):
        start(make, **HOW, knobs=knobs())


def test_a_fault_of_a_world_is_no_mistake_of_the_user():
    def broken():
        raise TypeError("ours")

    with pytest.raises(TypeError, match="ours"):
        start(broken, **HOW, knobs=knobs())
    bound = bind("control", {"piece": "molecules", "molecules": ["[C]"], "latent": "wide"})
    with pytest.raises(TypeError):
        start(bound, **HOW, knobs=knobs())


def test_a_module_that_is_not_there_is_one_sentence():
    with pytest.raises(UserError, match="gymnasium needs what is not here .*no_such_module"):
        start(bind("control", {"piece": "gymnasium", "module": "no_such_module"}), **HOW, knobs=knobs())


@pytest.mark.parametrize(
    "recipe, changes, says",
    [
        ("flow-grpo", {"noise": [["0.7"], 0.3]}, "control.noise[0] must be a number, not ['0.7']"),
        ("flow-grpo", {"noise": [0.7, None]}, "control.noise[1] must be a number, not None"),
        ("seedance-rlhf", {"liked": [0, "2"]}, "control.liked[1] must be a number, not '2'"),
        ("seedance-rlhf", {"weights": [True]}, "control.weights[0] must be a number, not True"),
    ],
)
def test_entries_of_a_list_are_of_the_kind_that_is_declared(recipe, changes, says):
    with pytest.raises(UserError, match=re.escape(says)):
        plans(recipe, {"rl": {"control": changes}}, 2)


def test_an_entry_that_yaml_did_not_read_as_a_text_is_refused():
    parts = {"rewards": [{"piece": "weighted_parts", "parts": ["value", True]}]}
    with pytest.raises(UserError, match=r"parts\[1\] must be a text, in quotes where YAML would .*, not True"):
        plans("grpo", {"rl": parts}, 2)


def rl(tmp_path, recipe, seed=1, **changes):
    room = Room(tmp_path, seed, recipe)
    with quiet():
        run_stage(room, "rl", plans(recipe, {"rl": changes}, 2)["rl"])
    return room


def test_the_stage_learns_the_same_policy_twice_and_keeps_it(tmp_path):
    small = {"control": {"piece": "gymnasium", "steps": 30}, "prompts_per_step": 4, "steps": 3}
    first = rl(tmp_path / "a", "control-ppo", **small)
    second = rl(tmp_path / "b", "control-ppo", **small)
    assert first.cards["rl"]["env_steps"] == first.cards["rl"]["rollouts"] * first.cards["rl"]["env_steps"] // 12
    folders = [Path(tmp_path / x / "artifacts" / "rl" / "model") for x in "ab"]
    one, two = (load_policy(f) for f in folders)
    assert all(torch.equal(p, q) for p, q in zip(one.parameters(), two.parameters(), strict=True))
    fresh = ControlPolicy(observation=4, actions=2)
    assert any(not torch.equal(p, q) for p, q in zip(one.parameters(), fresh.parameters(), strict=True))
    assert first.cards["rl"]["mismatch_kl"] < 0.05 and second.cards["rl"] == first.cards["rl"]


def test_more_passes_bring_the_critic_nearer_to_the_same_returns():
    _, groups = played(Corridor())
    left = {}
    for passes in (1, 8):
        critic = Critic(
            learner=Learner(
                ControlValue(observation=2, hidden=8, seed=1), Optim(lr=1e-2, warmup=0), read=control_values
            ),
            loss=partial(squared, clip=0.0),
            passes=passes,
        )
        for _ in range(4):
            metrics = critic.learn(critic.estimate(groups), [g.rewards * 0 for g in groups])
        left[passes] = metrics["critic_loss"]
        assert critic.learner.step_count == 4 * passes
    assert left[8] < left[1]
    with pytest.raises(ValueError, match="critic.passes is 0"):
        Critic(learner=critic.learner, loss=squared, passes=0)


@pytest.mark.parametrize("recipe", ["grpo", "rloo", "reinforce-plus-plus"])
def test_other_methods_learn_actions_as_they_are(tmp_path, recipe):
    room = rl(
        tmp_path, recipe, control={"piece": "gymnasium", "steps": 30}, prompts_per_step=2, samples_per_prompt=4, steps=2
    )
    assert room.cards["rl"]["rollouts"] == 16


def test_without_gymnasium_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    with pytest.raises(ValueError, match=r"install it with `pip install 'espalier\[games\]'`"):
        gymnasium(id="CartPole-v1")
