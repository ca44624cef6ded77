"""From problems to packed batches: refill and its account, exactness of what is left out, the unscorable, minibatches,
resume."""

import copy
import time
import json
import math
import re
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import tiny
import torch

from synth.types import Problem, Sampling, Scored, Unscorable
from training.env.single import Single
from training.learner.learner import Learner, Optim
from training.learner.loop import Round, run
from training.learner.pack import pack
from training.rl.advantage.grpo import grpo
from training.rl.advantage.rloo import rloo
from training.rl.curriculum.success_band import success_band
from training.rl.curriculum.uniform import uniform
from training.rl.experience import Experience
from training.rl.filter.spread import spread
from training.rl.objective import PolicyObjective
from training.rl.policy_loss.clip import clip
from training.rl.policy_loss.policy_gradient import policy_gradient
from training.rl.ratio.sequence import sequence
from training.rl.ratio.token import token
from training.rl.regulariser.kl import kl
from training.rollout.play import Player


class Rated(Single):
    """The answer's text is its score, "?" is unscorable."""

    def step(self, state, text):
        answer = re.search(r"<answer>(.*?)</answer>", text).group(1)
        return [], True, Unscorable(reason="no verdict") if answer == "?" else Scored(value=float(answer))


def problems(n=8):
    return [
        Problem.make(prompt=f"{i}", answer="1", verifier="exact", env="single", family="f", split="train")
        for i in range(n)
    ]


def says(services):
    """A model that gives the scores of services[problem], drawn by the seed of the rollout."""

    def say(seen, seed):
        number = int(re.search(r"user\n(\d+)", seen).group(1))
        scores = services(number)
        return f"{'so ' * (seed % 3)}<answer>{scores[seed % len(scores)]}</answer>"

    return say


MIXED = says(lambda i: ["0", "1"] if i % 2 else ["1"])  # even problems are always solved


def player_of(say):
    """Plays the environment of this file with what `say` says."""
    source = tiny.Scripted(say)
    return Player(
        sampler=source,
        renderer=source.renderer,
        envs={"single": Rated(0.0, "")},
        sampling=Sampling(max_tokens=40),
        max_tokens=200,
    )


def experience(say=MIXED, *, n=8, **more):
    player = player_of(say)
    knobs = {
        "problems": problems(n),
        "player": player,
        "advantage": grpo,
        "curriculum": uniform,
        "prompts_per_step": 4,
        "samples_per_prompt": 4,
    }
    return Experience(**knobs | more)


# --- filters ----------------------------------------------------------------------------------------------------------


def test_filters_refill_and_everything_is_accounted():
    e = experience(filters=[spread], refill=8)
    batches, metrics = e(0)
    list(batches)
    assert metrics["groups"] == 4, "four of the odd problems, found in several draws"
    assert metrics["groups"] + metrics["groups_dropped"] == len(e.groups) and metrics["rollouts"] == 4 * len(e.groups)
    assert metrics["solve_all"] == pytest.approx(metrics["groups_dropped"] / len(e.groups)), (
        "dropped groups count among what was played"
    )
    assert len({g.id for g in e.groups}) == len(e.groups) and all(r.group == g.id for g in e.groups for r in g.rollouts)


def test_refills_are_bounded_and_a_step_without_a_group_is_no_step():
    e = experience(says(lambda i: ["1"]), filters=[spread], refill=2)
    batches, metrics = e(0)
    assert (
        list(batches) == [] and metrics["groups"] == 0 and metrics["groups_dropped"] == 12 and metrics["reward"] == 1.0
    )


def test_a_step_refills_until_it_is_full():
    rare = says(lambda i: ["0", "1"] if i % 10 == 3 else ["1"])  # one problem of ten says something
    e = experience(rare, n=40, filters=[spread], refill=2)
    assert e(0)[1]["groups"] < 4, "two draws more do not fill it"
    e = experience(rare, n=40, filters=[spread], refill="until_full", prompts_per_step=3)
    metrics = e(0)[1]
    assert metrics["groups"] == 3 and metrics["groups_dropped"] == len(e.groups) - 3 > 2


def test_a_step_that_cannot_be_filled_ends_when_as_many_were_drawn_as_there_are():
    # Draws of 4, 4 and 4: 8 are fewer than 10.
    e = experience(says(lambda i: ["1"]), n=10, filters=[spread], refill="until_full")
    assert e(0)[1]["groups_dropped"] == 12
    e = experience(says(lambda i: ["1"]), n=10, refill="until_full")
    assert e(0)[1]["groups"] == 4, "without filters nothing is drawn twice"


def test_without_filters_nothing_is_drawn_twice():
    e = experience(says(lambda i: ["1"]), refill=5)
    batches, metrics = e(0)
    assert metrics["groups"] == 4 and metrics["rollouts"] == 16 and list(batches) == []


def test_the_first_filter_that_objects_gives_the_reason_and_each_sees_raw_rewards():
    seen = []

    def late(groups, rewards, state, rng):
        seen.append([r.tolist() for r in rewards])
        return [None] * len(groups)

    double = lambda groups, rewards, state, rng: [2 * r for r in rewards]  # noqa: E731
    e = experience(filters=[spread, late], rewards=[double], refill=0)
    e(0)
    assert max(max(r) for r in seen[0]) == 1.0


def test_scores_reach_the_curriculum_and_state_survives():
    e = experience(curriculum=success_band, prompts_per_step=8)
    e(0)
    scores = e.pieces["success_band"]["scores"]
    assert len(scores) == 8 and all(len(v) == 1 and 0 <= v[0] <= 1 for v in scores.values())
    json.dumps(e.state())
    other = experience(curriculum=success_band, prompts_per_step=8)
    other.load_state(copy.deepcopy(e.state()))
    assert batch_of(e(1)).ids.tolist() == batch_of(other(1)).ids.tolist() and other.player.sampler.version == 2


def batch_of(step):
    (batch,) = step[0]
    return batch


# --- determinism ------------------------------------------------------------------------------------------------------


def test_a_step_is_a_function_of_seed_and_step():
    one, two, other = (batch_of(experience(seed=s)(0)) for s in (1, 1, 2))
    assert torch.equal(one.ids, two.ids) and torch.equal(one.columns["advantages"], two.columns["advantages"])
    assert not torch.equal(one.ids, other.ids)


def test_the_version_counts_the_steps():
    e = experience()
    for want in (0, 1, 2):
        e(want)
        assert {s.version for g in e.groups for r in g.rollouts for s in r.segments if s.role == "model"} == {want}


# --- the unscorable ---------------------------------------------------------------------------------------------------

HALF = says(lambda i: ["0", "1", "?", "1", "0"] if i % 2 else ["0", "1"])


def test_the_unscorable_leave_the_step_denominators_included_and_are_counted():
    e = experience(HALF, max_unscorable=1.0, samples_per_prompt=6)
    batch, metrics = (step := e(0)) and batch_of(step), step[1]
    rewards = np.concatenate([g.rewards for g in e.groups])
    missing = int(np.isnan(rewards).sum())
    assert 0 < missing < len(rewards) and metrics["unscorable"] == missing / len(rewards)
    assert batch.rows == batch.totals["sequences"] == len(rewards) - missing
    assert metrics["reward"] == pytest.approx(np.nanmean(rewards))
    for i, group in enumerate(e.groups):
        r = group.rewards[~np.isnan(group.rewards)]
        advantages = [
            float(batch.columns["advantages"][batch.row == j].max() + batch.columns["advantages"][batch.row == j].min())
            for j in range(batch.rows)
            if batch.group[j] == i
        ]
        want = (r - r.mean()) / (r.std(ddof=1) + 1e-6) if r.min() < r.max() else np.zeros(len(r))
        assert advantages == pytest.approx(want, abs=1e-5), "the baseline is that of the scorable"


def test_too_many_unscorable_stop_the_run():
    with pytest.raises(
        ValueError,
        match=r"of the rollouts of step 7 could not be scored, more than max_unscorable = 5%; the first reason: no verdict",
    ):
        experience(HALF)(7)
    _, metrics = experience(says(lambda i: ["?"]), max_unscorable=1.0)(0)
    assert metrics["unscorable"] == 1.0 and math.isnan(metrics["reward"]), "no score is no zero"


def test_a_group_of_none_but_unscorable_rollouts_spoils_no_metric():
    _, metrics = experience(says(lambda i: ["?"] if i == 0 else ["1", "0"]), max_unscorable=0.5, prompts_per_step=8)(0)
    assert all(not math.isnan(v) for v in metrics.values())


def test_credit_that_is_not_finite_stops_the_run():
    broken = lambda groups, rewards, state, rng: [np.full(len(r), np.nan) for r in rewards]  # noqa: E731
    with pytest.raises(ValueError, match="an advantage that is not finite, for rewards"):
        experience(advantage=broken)(0)


# --- what is left out is exactly nothing
# -------------------------------------------------------------------------------


@pytest.mark.parametrize("advantage", [grpo, rloo])
@pytest.mark.parametrize("ratio", [token, sequence])
@pytest.mark.parametrize(
    "policy_loss",
    [clip, partial(clip, aggregate="sequences"), partial(clip, aggregate="constant", max_length=9), policy_gradient],
)
def test_rows_without_credit_add_exactly_nothing(advantage, ratio, policy_loss):
    objective = PolicyObjective(ratio=ratio, policy_loss=policy_loss)
    assert objective.row_local
    full, short = (batch_of(experience(advantage=advantage, skip_zero=skip)(0)) for skip in (False, True))
    assert short.rows < full.rows and short.totals == full.totals
    (a, loss), (b, other) = (gradient(objective, x) for x in (full, short))
    assert loss == pytest.approx(other, abs=1e-6)
    for x, y in zip(a, b, strict=True):
        assert float((x - y).abs().max()) <= 1e-6 * max(1.0, float(x.abs().max()))


def gradient(objective, batch):
    learner = Learner(tiny.build(init_range=0.1), Optim(max_grad_norm=1e9))
    objective.prepare(batch)
    metrics = learner.step(batch, objective)
    return [p.grad for p in learner.weights], metrics["loss"]


def test_with_a_regulariser_every_row_counts():
    """Its gradient is there where no advantage is: such rows are kept, and a step of equal rewards is a step."""
    objective = PolicyObjective(ratio=token, policy_loss=clip, regularisers=[kl])
    assert not objective.row_local and not objective.advantage_only
    e = experience(says(lambda i: ["1"]), advantage_only=objective.advantage_only, skip_zero=objective.row_local)
    assert batch_of(e(0)).rows == 16


def test_a_piece_that_looks_at_the_whole_batch_sees_every_row():
    looking = partial(clip)
    looking.prepare = lambda batch: None
    objective = PolicyObjective(ratio=token, policy_loss=looking)
    assert objective.advantage_only and not objective.row_local


# --- epochs and minibatches
# --------------------------------------------------------------------------------------------

ALL_MIXED = says(lambda i: ["0", "1"])


def test_epochs_and_minibatches_show_every_row_once_per_epoch():
    e = experience(ALL_MIXED, epochs=3, minibatches=2)
    batches = list(e(0)[0])
    rows = [[tuple(x.tolist()) for x in b.ids.split(b.lengths)] for b in batches]
    assert len(batches) == 6
    epochs = [sorted(rows[i] + rows[i + 1]) for i in (0, 2, 4)]
    assert epochs[0] == epochs[1] == epochs[2] and len(epochs[0]) == 16
    assert rows[0] != rows[2], "another order in each epoch"
    assert all(b.totals["sequences"] == b.rows == 8 for b in batches), (
        "each minibatch is a step with denominators of its own"
    )


def test_the_old_policy_is_the_one_that_sampled_in_every_minibatch():
    """All old-policy passes are made before the first update, so the second minibatch compares with the weights that
    played."""
    model = tiny.build(init_range=0.1)
    start = copy.deepcopy(model)
    objective = PolicyObjective(ratio=token, policy_loss=clip, policy=model, needs=frozenset({"old"}))
    seen = []
    learner = Learner(model, Optim(lr=1e-2, warmup=0))
    rounds = [
        Round(
            name="rl",
            role="policy",
            source=experience(ALL_MIXED, epochs=2, minibatches=2),
            prepare=objective.prepare,
            steps=1,
            objective=lambda stats, batch: seen.append((batch, stats.logp.detach())) or objective(stats, batch),
        )
    ]
    ((_, _, metrics),) = run(rounds, {"policy": learner})
    assert learner.step_count == 4 and len(seen) == 4
    check = PolicyObjective(ratio=token, policy_loss=clip, policy=start, needs=frozenset({"old"}))
    moved = []
    for batch, logp in seen:
        old = batch.columns.pop("old")
        moved.append(float((logp - old).abs().max()))
        check.prepare(batch)
        torch.testing.assert_close(batch.columns["old"], old, atol=1e-6, rtol=1e-6)
    assert moved[0] < 1e-5 < 1e-3 < moved[3], "the ratio is 1 at first, and the policy then moves away"
    assert metrics["reward"] <= 1.0 and "clip_fraction" in metrics


def test_metrics_of_a_step_of_several_batches():
    learned = iter(
        [
            {"loss": 1.0, "d_max": 3.0, "learn_seconds": 1.0},
            {"loss": 2.0, "d_max": 1.0, "learn_seconds": 2.0, "clip": 0.5},
        ]
    )
    learner = SimpleNamespace(step=lambda batch, objective, **knobs: next(learned))
    batches = [SimpleNamespace(policy="")] * 2
    rounds = [
        Round(
            name="r",
            role="policy",
            source=lambda step: (batches, {"reward": 0.25}),
            prepare=lambda batch: time.sleep(0.01),
            objective=None,
            steps=1,
        )
    ]
    ((_, _, metrics),) = run(rounds, {"policy": learner})
    assert metrics.pop("step_seconds") >= metrics.pop("prepare_seconds") >= 0.02
    assert metrics == {"reward": 0.25, "loss": 1.5, "d_max": 3.0, "learn_seconds": 3.0, "clip": 0.5}


def test_batches_have_the_columns_that_pieces_read():
    batch = batch_of(experience(ALL_MIXED)(0))
    assert {"advantages", "sampling_logp", "sampling_entropy"} <= set(batch.columns)
    on = batch.trainable
    assert (
        (batch.columns["sampling_logp"][on] == -0.5).all()
        and (batch.columns["advantages"][~on] == 0).all()
        and (batch.columns["advantages"][on] != 0).any()
    )
    with pytest.raises(ValueError, match="filtered out"):
        pack([])
