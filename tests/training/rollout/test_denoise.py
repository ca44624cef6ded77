"""Denoising as acting: densities against the closed form, trees and their costs, and that everything above is what it is for text."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from synth.types import Sampling
from tasks.lab.worlds import Room, plans, quiet, run_stage
from tasks.models import flow as warm_starts
from training.env.control._denoising import Schedule, schedule
from training.env.control.sprites import COLOURS, NEAR, SHAPES, draw, measured, read, sprites
from training.learner.pack import pack, rollout_rows
from training.model.control import action_stats, load_policy, save_policy
from training.model.flow import FlowPolicy, fit
from training.rl.advantage.siblings import siblings
from training.rollout.control import seeds
from training.rollout.denoise import DenoisingPlayer, FlowSampler

TINY = {"warm_steps": 0, "hidden": 8}


def played(samples=4, problems=2, seed=1, temperature=1.0, version=0, **knobs):
    world = sprites(**{**TINY, **knobs})
    model = FlowPolicy(observation=world.shape.observation, actions=world.shape.actions, hidden=8, seed=3)
    player = DenoisingPlayer(
        sampler=FlowSampler(model=model, version=version), world=world, sampling=Sampling(temperature=temperature)
    )
    return model, player.play(seeds(problems, seed=0, family="sprites"), samples, seed)


def batch_of(groups):
    return pack(rollout_rows(groups, [[1.0] * len(g.rollouts) for g in groups]))


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_log_probs_and_gradients_are_the_closed_form(temperature):
    """In float64: the density of each step by numpy, and its gradient by moving a weight both ways."""
    model, groups = played(samples=2, problems=1, temperature=temperature, steps=3)
    batch = batch_of(groups)
    model = model.double()
    batch.columns = {k: v.double() for k, v in batch.columns.items()}
    on = batch.trainable

    def closed():
        seen, did = batch.columns["observation"][on].numpy(), batch.columns["action"][on].numpy()
        d = did.shape[1]
        x, c, t, h, sigma = seen[:, :d], seen[:, d:-3], seen[:, -3:-2], seen[:, -2:-1], seen[:, -1:]
        with torch.no_grad():
            v = model.velocity(*map(torch.from_numpy, (x, c, t))).numpy()
        mean = x - h * (v + sigma**2 / (2 * t) * (x + (1 - t) * v))
        variance = sigma**2 * h * temperature
        return (-((did - mean) ** 2) / (2 * variance) - 0.5 * np.log(2 * math.pi * variance)).sum(1), d * 0.5 * np.log(
            2 * math.pi * math.e * variance[:, 0]
        )

    stats = action_stats(model, batch, temperature=temperature)
    logp, entropy = closed()
    np.testing.assert_allclose(stats.logp[on].detach().numpy(), logp, rtol=1e-12)
    np.testing.assert_allclose(stats.entropy[on].detach().numpy(), entropy, rtol=1e-12)
    assert stats.logp[~on].abs().max() == 0
    np.testing.assert_allclose(batch.columns["sampling_logp"][on].numpy(), logp, atol=2e-2)  # sampled in float32
    weight = model.blocks[0][1].weight
    (gradient,) = torch.autograd.grad(stats.logp.sum(), [weight])
    for i, j in ((0, 0), (3, 5), (7, 11)):
        at = []
        for side in (1e-6, -1e-6):
            with torch.no_grad():
                weight[i, j] += side
            at.append(closed()[0].sum())
            with torch.no_grad():
                weight[i, j] -= side
        assert float(gradient[i, j]) == pytest.approx((at[0] - at[1]) / 2e-6, rel=1e-4, abs=1e-5)


def test_without_noise_a_step_follows_the_flow_and_noise_keeps_its_distribution():
    """Of one Gaussian blob the velocity is known, so paths with and without noise end with the same mean and variance."""
    spread, n = 0.5, 20_000

    class Known(FlowPolicy):
        def velocity(self, x, condition, t):
            variance = ((1 - t) * spread) ** 2 + t**2
            return x * (t - (1 - t) * spread**2) / variance

    ends = []
    for a in (0.0, 0.7):
        plan, rng = Schedule(steps=200, noise=(a, a)), np.random.default_rng(0)
        x, model = rng.standard_normal((n, 1)), Known(observation=4, actions=1, hidden=2)
        for k in range(plan.steps):
            seen = torch.from_numpy(np.concatenate([x, np.tile(plan.at(k, 0), (n, 1))], 1))
            with torch.no_grad():
                out = model(seen).numpy()
            x = out[:, :1] + out[:, 1:] * rng.standard_normal((n, 1))
        ends.append(x.std())
    assert ends[0] == pytest.approx(spread, rel=0.02) and ends[1] == pytest.approx(spread, rel=0.03)


def test_a_tree_costs_what_it_should_and_its_samples_share_their_beginnings():
    # The counts of three forks into three, in ten steps: s before, 1 + 3 + 9, 27 for each step after.
    for s in (0, 4, 7):
        plan = Schedule(window=3, branch=3, shift_every=1)
        assert plan.calls(s) == s + 13 + 27 * (7 - s) and plan.leaves == 27 and plan.first(99) == 7
    _, groups = played(samples=8, window=2, branch=2, noise=[0.3, 0.7])  # two trees of four
    for g in groups:
        ways = [r.ids.tolist() for r in g.rollouts]
        assert ways == [[t, a, b] for t in range(2) for a in range(2) for b in range(2)]
        assert g.rollouts[0].segments[1] is g.rollouts[1].segments[1]
        assert g.rollouts[0].segments[1] is not g.rollouts[2].segments[1]
        sigma = [float(s.extras["observation"][0, -1]) for s in g.rollouts[0].segments[1:]]
        assert sigma == pytest.approx([0.3 * math.sqrt(1 / 0.1), 0.7 * math.sqrt(0.9 / 0.1)])
        assert sum(r.score.parts["calls"] for r in g.rollouts) == 2 * (1 + 2 + 4 * 8)
        assert len({r.info["sample"].tobytes() for r in g.rollouts}) == 8
        out = siblings([g], [np.arange(8.0)], {}, np.random.default_rng(0), eps=0.0)[0]
        assert [a.tolist() for a in out[:4]] == [[-1, -1], [-1, 1], [1, -1], [1, 1]]
    with pytest.raises(ValueError, match="a tree of the control world has 4 samples"):
        played(samples=6, window=2, branch=2)
    _, late = played(samples=4, window=2, branch=2, version=50, shift_every=10)
    assert float(late[0].rollouts[0].segments[1].extras["observation"][0, -3]) == pytest.approx(0.5)


def test_the_player_asks_the_network_as_often_as_the_schedule_says():
    sizes = []
    model, _ = played()
    model.register_forward_hook(lambda m, args, out: sizes.append(len(args[0])))
    world = sprites(**TINY, window=3, branch=2)
    player = DenoisingPlayer(sampler=FlowSampler(model=model), world=world)
    player.play(seeds(1, seed=0, family="sprites"), 8, 1)
    assert sizes == [1, 2, 4, *[8] * 7] and sum(sizes) == world.schedule.calls(0)


def test_who_else_is_played_does_not_matter():
    _, many = played(samples=4, problems=3)
    _, few = played(samples=2, problems=1)
    for a, b in zip(few[0].rollouts, many[0].rollouts, strict=False):
        np.testing.assert_allclose(a.info["sample"], b.info["sample"], atol=1e-5)
    _, other = played(samples=2, problems=1, seed=2)
    assert not np.allclose(other[0].rollouts[0].info["sample"], few[0].rollouts[0].info["sample"])


def test_unscorable_samples_and_single_branches_have_no_advantage():
    _, (g,) = played(samples=4, problems=1, window=2, branch=2)
    r = np.array([np.nan, 1.0, 2.0, 2.0])
    out = siblings([g], [r], {}, np.random.default_rng(0), eps=0.0)[0]
    assert [a.tolist() for a in out] == [[0, 0], [-1, 0], [1, 0], [1, 0]]
    _, (alone,) = played(samples=3, problems=1)
    assert not any(a.any() for a in siblings([alone], [np.arange(3.0)], {}, np.random.default_rng(0))[0][:0])


def test_pictures_are_read_as_they_were_drawn():
    rng = np.random.default_rng(0)
    for shape in range(3):
        for colour in range(4):
            for count, rows in ((0, [1]), (1, [0, 2]), (2, [0, 1, 2])):
                prompt = (shape, colour, count, 2)
                grid = read(draw(prompt, rows).reshape(1, -1))[0]
                assert (grid[rows, 2] == 1 + shape * len(COLOURS) + colour).all() and (grid > 0).sum() == count + 1
                assert measured(grid, prompt)["exact"] == 1 == measured(grid, prompt)["score"]
                noisy = draw(prompt, rows).reshape(1, -1) + 0.2 * rng.standard_normal((1, 432))
                assert np.array_equal(read(noisy)[0], grid)
    one = read(draw((0, 0, 1, 0), [0, 1]).reshape(1, -1))[0]
    # Two red squares on the left, asked for three red crosses on the right: the colour alone is right.
    assert measured(one, (1, 0, 2, 2)) == {"shape": 0, "colour": 1, "place": 0, "count": 0, "score": 0.25, "exact": 0}
    assert measured(np.zeros((3, 3), int), (0, 0, 0, 0))["score"] == 0
    assert (read(rng.standard_normal((4, 432))) == -1).all() and NEAR < 0.5
    assert set(sprites(**TINY).told(draw((2, 3, 0, 0), [0]).ravel()).split(" / ")[0].split(", ")) == {
        f"{COLOURS[3]} {SHAPES[2]}",
        "-",
    }


def test_prompts_of_tests_are_never_asked_in_training_and_examples_are_wrong_as_often_as_said():
    train, test = sprites(**TINY), sprites(**TINY, prompts="test")
    prompts = [{w.asked(s) for s in range(3000)} for w in (train, test)]
    assert len(prompts[0]) == 81 and len(prompts[1]) == 27 and not prompts[0] & prompts[1]
    for i, n in enumerate((3, 4, 3, 3)):
        assert {p[i] for p in prompts[1]} == set(range(n))
    for share in (0.0, 0.3):
        pictures, told = sprites(**TINY, wrong_labels=share).examples(1000, np.random.default_rng(1))
        right = [
            measured(f, (c[:3].argmax(), c[3:7].argmax(), c[7:10].argmax(), c[10:].argmax()))["exact"]
            for f, c in zip(read(pictures), told, strict=True)
        ]
        assert np.mean(right) == pytest.approx(1 - share, abs=0.05)
    judged = sprites(**TINY, rewarded="other")
    pictures = np.stack([draw(p, range(p[2] + 1)).ravel() for p in (judged.asked(s) for s in range(60))])
    assert np.mean([p["exact"] for p in train.judge(pictures, range(60))]) == 1
    assert np.mean([p["exact"] for p in judged.judge(pictures, range(60))]) < 0.2


@pytest.mark.parametrize(
    "knobs, says",
    [
        ({"steps": 0}, "1 step or more"),
        ({"window": 11}, "one of|number of the 10"),
        ({"noise": [0.1]}, "one number above 0"),
        ({"noise": -1}, "one number above 0"),
        ({"branch": 0}, "from 1"),
        ({"branch": 9, "window": 9}, "too large"),
        ({"prompts": "all"}, "train or test"),
        ({"wrong_labels": 2.0}, "a share"),
    ],
)
def test_knobs_that_cannot_be(knobs, says):
    with pytest.raises(ValueError, match=says):
        sprites(**knobs)


def test_a_warm_start_learns_and_is_kept(tmp_path, monkeypatch):
    world = sprites(warm_steps=0, hidden=16)
    model = FlowPolicy(observation=world.shape.observation, actions=world.shape.actions, hidden=16)
    errors = [
        fit(FlowPolicy(**model.made), world.examples, steps=n, rows=32, lr=2e-3, seed=1, pool=256) for n in (10, 150)
    ]
    assert errors[1] < 0.6 * errors[0]
    monkeypatch.setattr(warm_starts, "user_cache_path", lambda name: tmp_path)
    monkeypatch.setattr(warm_starts, "_KNOWN", {})
    short = replace(world, warm={**world.warm, "steps": 2})
    first = warm_starts.warm(short)
    assert len(list(tmp_path.iterdir())) == 1
    monkeypatch.setattr(warm_starts, "_KNOWN", {})
    monkeypatch.setattr(warm_starts.flow, "fit", None)
    again = warm_starts.warm(short)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), again.parameters(), strict=True))
    save_policy(first, tmp_path / "model")
    assert torch.equal(load_policy(tmp_path / "model", FlowPolicy).leave.weight, first.leave.weight)
    with pytest.raises(ValueError, match="no policy of actions of this kind"):
        load_policy(tmp_path / "model")


@pytest.mark.parametrize("recipe", ["flow-grpo", "dynamic-treerpo"])
def test_the_stage_learns_and_says_what_it_drew(tmp_path, recipe):
    room = Room(tmp_path, 1, recipe)
    changes = {
        "control": {"piece": "sprites", "window": 2, "branch": 2 if recipe != "flow-grpo" else 1, **TINY},
        "prompts_per_step": 2,
        "samples_per_prompt": 4,
        "steps": 2,
    }
    with quiet():
        run_stage(room, "rl", plans(recipe, {"rl": changes}, 2)["rl"])
    assert room.cards["rl"]["rollouts"] == 16 and room.cards["rl"]["env_steps"] == 32
    assert (tmp_path / "artifacts" / "rl" / "episodes.jsonl").read_text().count(" / ") == 16
    assert load_policy(tmp_path / "artifacts" / "rl" / "model", FlowPolicy).made["hidden"] == 8


def test_a_schedule_of_one_noise_is_that_of_two_equal_ones():
    same = {"steps": 10, "window": 3, "shift_every": 0, "branch": 1}
    assert schedule("x", noise=0.7, **same) == schedule("x", noise=[0.7, 0.7], **same)
