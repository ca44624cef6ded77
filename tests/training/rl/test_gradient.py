"""Recursive variance reduction against a direct computation in numpy, and what it is for: less variance from as many trajectories."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from synth.types import Sampling
from tasks.lab import gradient_checks as tables
from tasks.lab.behaviour import knobs_of
from tasks.models.control import actor
from training.env.control.shares import shares
from training.learner.learner import Optim
from training.learner.loop import run
from training.model.control import action_stats
from training.rl.advantage.rloo import rloo
from training.rl.compose import AS_GIVEN, compose
from training.rl.experience import by_source
from training.rl.gradient import Gradient
from training.rl.gradient.recursive import recursive
from training.rl.policy_loss.clip import clip
from training.rollout.control import seeds

STATES, ACTIONS, STEPS = 3, 2, 4
PAYS = np.array([[1.0, 0.0], [0.2, 0.3], [0.0, 1.5]])  # of the state that a step leads to, by source


def policy(logits):
    z = np.exp(logits - logits.max(1, keepdims=True))
    return z / z.sum(1, keepdims=True)


def leads(state, action):
    return (state + 1 + action) % STATES


def play(logits, n, rng):
    """n episodes of a ring of three states: action 0 goes one on, action 1 two."""
    p, out = policy(logits), []
    for _ in range(n):
        s, states, actions, rewards = 0, [], [], []
        for _ in range(STEPS):
            a = int(rng.random() < p[s, 1])
            states.append(s)
            actions.append(a)
            s = leads(s, a)
            rewards.append(PAYS[s])
        out.append((states, actions, np.array(rewards)))
    return out


def exact(logits):
    """J [k] and its gradient [k, states, actions] by all episodes."""
    p, total, slope = policy(logits), np.zeros(2), np.zeros((2, STATES, ACTIONS))
    for code in range(ACTIONS**STEPS):
        s, chance, paid, score = 0, 1.0, np.zeros(2), np.zeros((STATES, ACTIONS))
        for t in range(STEPS):
            a = code >> t & 1
            chance *= p[s, a]
            score[s] += np.eye(ACTIONS)[a] - p[s]
            s = leads(s, a)
            paid += PAYS[s]
        total += chance * paid
        slope += chance * paid[:, None, None] * score
    return total, slope


def score_of(logits, episode):
    """d log p(tau) / d logits, and log p(tau)."""
    p, out, chance = policy(logits), np.zeros_like(logits), 0.0
    for s, a in zip(*episode[:2], strict=True):
        out[s] += np.eye(ACTIONS)[a] - p[s]
        chance += math.log(p[s, a])
    return out, chance


def direct(f, floor, sharpness, start, batches, lr, delta, epoch_len):
    """The recursion as the docstring has it: (gradients, returns, weights after each step)."""

    def slope(total):
        if f == "sum_log":
            return 1 / (np.maximum(total, 0) + floor)
        z = np.exp(-sharpness * total)
        return np.ones(2) if f == "linear" else z / z.sum()

    now, out = np.array(start), []
    before = g = total = None
    for t, episodes in enumerate(batches):
        paid = [e[2].sum(0) for e in episodes]
        if t % epoch_len == 0:
            new = np.mean(paid, 0)
            g = np.mean([(slope(new) @ r) * score_of(now, e)[0] for r, e in zip(paid, episodes, strict=True)], 0)
        else:
            w = [math.exp(score_of(before, e)[1] - score_of(now, e)[1]) for e in episodes]
            new = total + np.mean([r - x * r for r, x in zip(paid, w, strict=True)], 0)
            g = g + np.mean(
                [
                    (slope(new) @ r) * score_of(now, e)[0] - x * (slope(total) @ r) * score_of(before, e)[0]
                    for r, e, x in zip(paid, episodes, w, strict=True)
                ],
                0,
            )
        before, total = now, new
        now = now + lr * g * min(1.0, delta / lr / (np.linalg.norm(g) + 1e-6))  # as torch bounds a norm
        out.append((g, total, now))
    return out


@pytest.mark.parametrize("f", ["sum_log", "softmin", "linear"])
def test_the_recursion_is_that_of_a_direct_computation(f):
    rng, start = np.random.default_rng(3), np.random.default_rng(4).normal(size=(STATES, ACTIONS))
    batches = [play(start, 12 if t % 3 == 0 else 5, rng) for t in range(7)]  # who played them is of no interest here
    learner = tables.learner_of(start, recursive(f=f, epoch_len=3, floor=0.1, sharpness=2.0), lr=0.3, delta=0.2)
    wanted = direct(f, 0.1, 2.0, start, batches, 0.3, 0.2, 3)
    for episodes, (g, total, after) in zip(batches, wanted, strict=True):
        got, told = tables.step(learner, episodes)
        assert got.numpy() == pytest.approx(g, abs=1e-6)  # rebuilt from what is left after its norm was bounded
        assert [told["return_0"], told["return_1"]] == pytest.approx(total, abs=1e-9)
        assert learner.weights[0].detach().numpy() == pytest.approx(after, abs=1e-9)


def test_a_linear_function_is_the_reduction_of_one_reward_that_is_the_sum():
    rng, start = np.random.default_rng(5), np.random.default_rng(6).normal(size=(STATES, ACTIONS))
    two = tables.learner_of(start, recursive(f="linear", epoch_len=4), lr=0.2)
    one = tables.learner_of(start, recursive(f="linear", epoch_len=4), lr=0.2)
    for _ in range(8):
        episodes = play(start, 6, rng)
        a, _ = tables.step(two, episodes)
        b, _ = tables.step(one, [(s, d, r.sum(1, keepdims=True)) for s, d, r in episodes])
        assert torch.allclose(a, b, atol=1e-13)
    assert torch.allclose(two.weights[0], one.weights[0], atol=1e-12)


def test_a_big_batch_every_step_is_the_plain_gradient_of_one_reward():
    rng, start = np.random.default_rng(7), np.random.default_rng(8).normal(size=(STATES, ACTIONS))
    plain = tables.learner_of(start, None, lr=0.2)
    ours = tables.learner_of(start, recursive(f="linear", epoch_len=1), lr=0.2)
    for _ in range(4):
        episodes = [(s, d, r.sum(1, keepdims=True)) for s, d, r in play(start, 6, rng)]
        assert torch.equal(tables.step(plain, episodes)[0], tables.step(ours, episodes)[0])
    assert torch.equal(plain.weights[0], ours.weights[0])


def test_as_many_trajectories_give_less_than_half_of_the_variance():
    """The check of the paper's mechanism: mean squared error of the estimate, against the exact gradient of sum log J at the weights
    where it was made; ten steps of 200 + 9 x 20 trajectories against ten of 38."""
    floor, errors = 0.01, {"recursive": [], "plain": []}
    for seed in range(20):
        for name, epoch_len, sizes in (("recursive", 10, [200] + [20] * 9), ("plain", 1, [38] * 10)):
            rng = np.random.default_rng(seed)
            learner = tables.learner_of(
                np.zeros((STATES, ACTIONS)), recursive(epoch_len=epoch_len, floor=floor), lr=0.05, delta=0.1
            )
            for n in sizes:
                here = learner.weights[0].detach().numpy().copy()
                g, _ = tables.step(learner, play(here, n, rng))
                total, slope = exact(here)
                errors[name].append(float(((g.numpy() - np.tensordot(1 / (total + floor), slope, 1)) ** 2).sum()))
    assert np.mean(errors["recursive"]) < 0.5 * np.mean(errors["plain"]), {k: np.mean(v) for k, v in errors.items()}


def test_a_run_goes_on_from_its_state_as_if_it_had_not_stopped():
    rng, start = np.random.default_rng(9), np.zeros((STATES, ACTIONS))
    batches = [play(start, 6, rng) for _ in range(5)]
    whole = tables.learner_of(start, recursive(epoch_len=4), lr=0.2)
    for episodes in batches[:3]:
        tables.step(whole, episodes)
    kept = {k: v.clone() if isinstance(v, torch.Tensor) else v for k, v in whole.state().items()}
    kept["model"] = {k: v.clone() for k, v in kept["model"].items()}
    again = tables.learner_of(start, recursive(epoch_len=4), lr=0.2)
    again.load_state(kept)
    for episodes in batches[3:]:
        assert torch.equal(tables.step(whole, episodes)[0], tables.step(again, episodes)[0])
    assert torch.equal(whole.weights[0], again.weights[0])


def test_what_a_piece_needs_not_say_changes_nothing():
    rng, start = np.random.default_rng(11), np.zeros((STATES, ACTIONS))
    episodes = play(start, 6, rng)
    bare, hooked = (tables.learner_of(start, g, lr=0.2) for g in (None, Gradient()))
    assert torch.equal(tables.step(bare, episodes)[0], tables.step(hooked, episodes)[0])
    assert Gradient().prompts(3, 7) == 7


def test_a_plain_step_is_at_most_lr_times_the_largest_norm():
    learner = tables.learner_of(np.zeros((1, 2)), None, lr=0.5, delta=0.1)
    before = learner.weights[0].detach().clone()
    tables.step(learner, [([0], [0], [[100.0]])])
    assert float((learner.weights[0].detach() - before).norm()) == pytest.approx(0.1, rel=1e-5)


def test_the_batch_has_advantages_of_each_source_and_numbers_that_make_no_sense_are_refused():

    world = shares(steps=6)
    _, player = actor(world, seed=1, sampling=Sampling(temperature=1.0), max_steps=10)
    (group,) = player.play(seeds(1, seed=0, family="shares"), 4, 1)
    first, second = by_source(group)
    assert first.rewards + second.rewards == pytest.approx(group.rewards)
    a, b, both = (np.array(rloo([g], [g.rewards], {}, np.random.default_rng(0))[0]) for g in (first, second, group))
    assert a + b == pytest.approx(both)  # linear in rewards, so that slopes of advantages are advantages of slopes
    with pytest.raises(ValueError, match="epoch_len 0"):
        recursive(epoch_len=0)
    with pytest.raises(ValueError, match="odd length"):
        shares(length=4)


def composed(steps=3, **changes):
    """The recipe put together, small, with these knobs of `compose` in the place of its own."""
    knobs, needs = knobs_of(
        "vr-morl-pg",
        {"samples_per_prompt": 4, "gradient": {"piece": "recursive", "big": 2, "epoch_len": 2}},
        Path("params.yaml"),
    )
    world = shares(steps=6)
    policy, player = actor(world, seed=1, sampling=Sampling(temperature=1.0), max_steps=10)
    return compose(
        policy=policy,
        player=player,
        problems=seeds(4, seed=0, family="shares"),
        read=action_stats,
        steps=steps,
        optim=Optim(**{**vars(knobs["optimizer"]), "steps": steps}),
        needs=needs,
        **({k: knobs[k] for k in AS_GIVEN} | changes),
    )


def test_big_and_small_batches_alternate_and_the_curve_has_the_estimates():
    trained = composed(steps=4)
    rows = [metrics for _, _, metrics in run([trained.round], trained.roles)]
    assert [r["rollouts"] for r in rows] == [8, 4, 8, 4]
    assert rows[0]["weight_max"] == 1.0
    assert all(r["weight_max"] != 1.0 for r in rows[1::2])
    assert rows[0]["return_0"] + rows[0]["return_1"] == pytest.approx(rows[0]["reward"], abs=1e-6)
    assert rows[0]["objective"] == pytest.approx(sum(math.log(rows[0][f"return_{i}"] + 0.01) for i in (0, 1)), abs=1e-6)


@pytest.mark.parametrize(
    ("knob", "value"),
    [("epochs", 2), ("minibatches", 2), ("filters", [lambda *a: []]), ("regularisers", [lambda *a: None])],
)
def test_what_an_estimator_cannot_work_beside_is_refused(knob, value):
    with pytest.raises(ValueError, match=f"rl.{knob} does not go with it: leave it as it is by default"):
        composed(**{knob: value})


def test_a_loss_that_weighs_by_itself_is_refused_and_so_are_replayed_answers():
    with pytest.raises(ValueError, match="rl.policy_loss does not go with it: set it to policy_gradient"):
        composed(policy_loss=clip)
    learner = tables.learner_of(np.zeros((1, 2)), recursive(), lr=0.1)
    batch = tables.packed([([0], [0], [[1.0]])])
    batch.add("off_policy", torch.ones(1), "row")
    with pytest.raises(ValueError, match="leave out group transforms that add or replay"):
        learner.step(batch, lambda stats, batch: [])


def test_what_the_shares_pay():
    world = shares(length=3, steps=3, second=0.5)
    state, seen = world.start(0)
    assert seen.tolist() == [0.0, 1.0, 0.0]
    paid = [world.step(state, a).rewards for a in (1, 1)]
    assert np.array(paid).tolist() == [[0.0, 0.5], [0.0, 0.5]]
    last = world.step(state, 0)
    assert last.done and last.reward == 0.0 and last.parts == {"success": 0.0}
