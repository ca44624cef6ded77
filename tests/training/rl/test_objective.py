"""What objectives make of pieces: preference losses start at ln 2, weights are applied once, the mismatch is seen
before any clipping."""

import copy
import math

import numpy as np
import pytest
import tiny
import torch

from tasks.lab import toy
from training.learner.learner import Learner, Optim, score, token_stats
from training.learner.pack import Row, pack
from training.preference.loss.bradley_terry import bradley_terry
from training.preference.loss.dpo import dpo
from training.preference.loss.simpo import simpo
from training.preference.objective import PairObjective
from training.preference.reward_model import RewardObjective, reward_of
from training.rl.correction.truncated import truncated
from training.rl.objective import PolicyObjective
from training.rl.policy_loss.clip import clip
from training.rl.ratio.token import token
from training.types import TokenStats


def pairs(n=4, seed=0):
    rng = np.random.default_rng(seed)
    rows = tiny.ids(*(int(x) for x in rng.integers(6, 20, 2 * n)), seed=seed)
    return pack([Row(ids=r, trainable=np.arange(len(r)) >= 4, group=i // 2) for i, r in enumerate(rows)])


@pytest.mark.parametrize("budget", [10**6, 30])
def test_dpo_starts_at_ln_2_and_learns_the_pairs(budget):
    model = tiny.build(init_range=0.1)
    objective, batch = PairObjective(loss=dpo, reference=copy.deepcopy(model)), pairs()
    objective.prepare(batch)
    learner = Learner(model, Optim(lr=3e-3, warmup=0, decay="constant"))
    metrics = [learner.step(batch, objective, rows_per_unit=2, tokens_per_microbatch=budget) for _ in range(15)]
    assert metrics[0]["loss"] == pytest.approx(math.log(2), abs=1e-4) and metrics[0]["margin"] == pytest.approx(
        0, abs=1e-4
    )
    assert metrics[-1]["loss"] < 0.3 and metrics[-1]["accuracy"] == 1.0 and metrics[-1]["margin"] > 1


def test_without_a_reference_its_sums_are_nothing():
    model, batch = tiny.build(init_range=0.1), pairs()
    objective = PairObjective(loss=simpo)
    objective.prepare(batch)
    assert "reference" not in batch.columns
    (terms,) = objective(token_stats(model, batch), batch)
    sums = batch.row_sum(score(model, batch).logp) / batch.row_tokens
    want = -torch.nn.functional.logsigmoid(2.0 * (sums[0::2] - sums[1::2]) - 1.0)
    torch.testing.assert_close(terms.values.detach(), want, atol=1e-5, rtol=1e-5)
    assert terms.denominator == "pairs" and batch.totals["pairs"] == 4


def test_the_next_token_loss_is_that_of_the_chosen_alone():
    model, batch = tiny.build(init_range=0.1), pairs()
    stats = token_stats(model, batch)
    _, extra = PairObjective(loss=simpo, sft=0.5)(stats, batch)
    loss = extra.values.sum() / batch.totals["pairs"]
    rows = stats.logp.split(batch.lengths)
    want = -0.5 * sum(rows[2 * i][4:].mean() for i in range(4)) / 4
    assert float(loss.detach()) == pytest.approx(float(want.detach()), rel=1e-5)
    (g,) = torch.autograd.grad(loss, stats.logp)
    assert all((x != 0).any() == (i % 2 == 0) for i, x in enumerate(g.split(batch.lengths)))


@pytest.mark.parametrize("logp", [0.0, -1e-9, -1e-3, -0.7, -30.0, -1e4])
def test_a_reward_is_the_log_odds_of_the_verdict_and_finite(logp):
    batch = pack([Row(ids=np.arange(3), trainable=np.array([False, False, True]))])
    leaf = torch.tensor([0.0, 0.0, logp], requires_grad=True)
    r = reward_of(TokenStats(logp=leaf), batch)
    (g,) = torch.autograd.grad(r.sum(), leaf)
    assert torch.isfinite(r).all() and torch.isfinite(g).all() and (g[:2] == 0).all()
    if -20 < logp < -1e-5:
        assert float(r.detach()) == pytest.approx(math.log(math.exp(logp) / (1 - math.exp(logp))), rel=1e-4)


def test_a_reward_model_learns_the_order_of_its_pairs():
    rows = tiny.ids(9, 7, 12, 8, 6, 10)
    verdict = 7
    batch = pack(
        [
            Row(ids=np.append(r, verdict), trainable=np.arange(len(r) + 1) == len(r), group=i // 2)
            for i, r in enumerate(rows)
        ]
    )
    learner = Learner(tiny.build(init_range=0.1), Optim(lr=3e-3, warmup=0, decay="constant"))
    metrics = [learner.step(batch, RewardObjective(loss=bradley_terry), rows_per_unit=2) for _ in range(15)]
    assert metrics[-1]["loss"] < 0.2 < metrics[0]["loss"] and metrics[-1]["accuracy"] == 1.0


# --- policy -----------------------------------------------------------------------------------------------------------

ROWS = [
    {
        "logp": [-1.0, -2.0, -0.5],
        "sampling_logp": [-1.5, -1.0, -0.5],
        "advantages": 1.0,
        "trainable": [True, True, False],
    },
    {"logp": [-0.2], "sampling_logp": [-0.1], "advantages": -1.0},
]


def toy_batch():
    t = toy.batch(ROWS)
    del t.batch.columns["old"], t.batch.columns["reference"]
    t.stats.entropy = torch.full_like(t.leaf, 0.5)
    return t


def test_the_mismatch_is_that_of_sampler_and_learner_on_trained_tokens():
    t = toy_batch()
    (terms,) = PolicyObjective(ratio=token, policy_loss=clip)(t.stats, t.batch)
    d = [0.5, -1.0, -0.1]  # learner - sampler at the three trained tokens
    got = {k: float(s) / float(n) for k, (s, n) in terms.metrics.items()}
    assert got["mismatch_kl"] == pytest.approx(sum(math.exp(x) - 1 - x for x in d) / 3, rel=1e-5)
    assert got["mismatch_max"] == pytest.approx(1.0) and got["entropy"] == pytest.approx(0.5)


def test_the_largest_mismatch_is_the_largest_in_any_split():
    model, rows = tiny.build(init_range=0.1), tiny.ids(8, 5, 9)
    columns = [np.full(len(r), -v) for r, v in zip(rows, (2.0, 5.0, 40.0), strict=True)]
    batch = pack(
        [
            Row(ids=r, trainable=np.ones(len(r), dtype=bool), columns={"advantages": c, "sampling_logp": c})
            for r, c in zip(rows, columns, strict=True)
        ]
    )
    objective = PolicyObjective(ratio=token, policy_loss=clip)
    metrics = [Learner(copy.deepcopy(model), Optim()).step(batch, objective, tokens_per_microbatch=b) for b in (100, 6)]
    assert (
        metrics[0]["mismatch_max"] == pytest.approx(metrics[1]["mismatch_max"], rel=1e-5)
        and metrics[0]["mismatch_max"] > 30
    )


def test_corrections_weigh_the_policy_loss_and_multiply():
    t = toy_batch()
    plain = PolicyObjective(ratio=token, policy_loss=clip)(t.stats, t.batch)[0].values
    t = toy_batch()
    t.batch.add("old", t.batch.columns["sampling_logp"] + torch.tensor([0.0, 0.1, 5.0, 0.0, 0.0, -1.0]), "token")
    objective = PolicyObjective(
        ratio=lambda logp, old, batch: token(logp, batch.columns["sampling_logp"], batch),
        policy_loss=clip,
        corrections=[truncated, truncated],
    )
    objective.prepare(t.batch)
    want = torch.tensor([1.0, math.exp(0.1), 2.0, 1.0, 1.0, math.exp(-1.0)]).square()
    torch.testing.assert_close(t.batch.columns["weight"], want)
    torch.testing.assert_close(objective(t.stats, t.batch)[0].values, plain * want)


def test_every_piece_prepares_once_on_the_whole_batch_before_corrections_weigh():
    seen = []

    def piece(name, result):
        def f(*args):
            seen.append(name)
            return result

        f.prepare = lambda batch: (
            seen.append(f"prepare {name}") or batch.columns.__setitem__(name, torch.zeros(batch.rows))
        )
        return f

    t = toy_batch()
    weigh = piece("weigh", torch.ones(6))
    PolicyObjective(
        ratio=token, policy_loss=piece("policy_loss", None), corrections=[weigh], regularisers=[piece("rein", None)]
    ).prepare(t.batch)
    assert seen == ["prepare policy_loss", "prepare weigh", "prepare rein", "weigh"] and {
        "policy_loss",
        "weigh",
        "rein",
    } <= set(t.batch.columns)


def test_passes_are_made_where_a_piece_needs_them_at_the_temperature_of_sampling():
    model, other = tiny.build(seed=1, init_range=0.1), tiny.build(seed=2, init_range=0.1)
    rows = tiny.ids(8, 5)
    batch = pack(
        [Row(ids=r, trainable=np.ones(len(r), dtype=bool), columns={"sampling_logp": np.zeros(len(r))}) for r in rows]
    )
    PolicyObjective(
        ratio=token,
        policy_loss=clip,
        policy=model,
        reference=other,
        needs=frozenset({"old", "reference"}),
        temperature=0.7,
    ).prepare(batch)
    assert torch.equal(batch.columns["old"], score(model, batch, temperature=0.7).logp)
    assert torch.equal(batch.columns["reference"], score(other, batch, temperature=0.7).logp)
    del batch.columns["old"], batch.columns["reference"]
    PolicyObjective(ratio=token, policy_loss=clip, policy=model, reference=other).prepare(batch)
    assert set(batch.columns) == {"sampling_logp"}
