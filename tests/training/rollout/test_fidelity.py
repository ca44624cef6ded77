"""Whether sampler and learner are the same: checksums, probes, versions, and what is measured of a mismatch before
anything is clipped."""

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import tiny
import torch

from tests.training.rl.test_experience import experience
from training.learner.learner import Learner, Optim, nll
from training.learner.pack import Row, pack
from training.rollout.engine import WrongVersion
from training.rollout.mismatch import Compared, Disagreement, check_versions, checksum, mismatch, stop_beyond
from training.rollout.torch_sampler import TorchSampler


def weights():
    rng = torch.Generator().manual_seed(0)
    return {"a": torch.randn(70, 40, generator=rng), "b": torch.randn(5, generator=rng).bfloat16(), "c": torch.zeros(3)}


def flipped(x, place):
    """The tensor with one bit of one number turned."""
    x = x.clone()
    bits = x.view(-1).view(torch.int32 if x.element_size() == 4 else torch.int16)
    bits[place] ^= 1
    return x


def swapped(x, i, j):
    x = x.clone()
    flat = x.view(-1)
    flat[i], flat[j] = flat[j].clone(), flat[i].clone()
    return x


@pytest.mark.parametrize(
    "change",
    [
        *(lambda w, p=p: {**w, "a": flipped(w["a"], p)} for p in (0, 1023, 1024, 2799)),
        lambda w: {**w, "b": flipped(w["b"], 4)},
        *(lambda w, j=j: {**w, "a": swapped(w["a"], 3, j)} for j in (4, 1027, 2048, 2790)),
        lambda w: {**w, "a": w["a"].T.contiguous()},
        lambda w: {**w, "b": w["b"].float()},
        lambda w: {**w, "c": -w["c"]},  # -0.0 is another number to the bit
        lambda w: {"d" if k == "c" else k: x for k, x in w.items()},
        lambda w: {k: w[k] for k in "ab"},
    ],
)
def test_a_checksum_sees_a_bit_a_place_a_type_and_a_name(change):
    assert checksum(change(weights())) != checksum(weights())


def test_a_checksum_is_that_of_the_numbers_however_they_lie():
    w = weights()
    other = {k: w[k].clone() for k in reversed(w)} | {"a": w["a"].T.contiguous().T}
    assert not other["a"].is_contiguous() and checksum(other) == checksum(w)


def learn(model):
    Learner(model, Optim(warmup=0)).step(pack([Row(ids=tiny.ids(20)[0], trainable=np.ones(20, dtype=bool))]), nll)


def test_a_synced_sampler_is_the_learner():
    model = tiny.build()
    sampler = TorchSampler(model, 2, version=4)
    sampler.open(tiny.ids(3), [0])
    assert sampler.cached is not None, "the copies are what is compared"
    assert Compared(model=model, sampler=sampler)(4)["probe_gap"] < 1e-5


def test_a_sampler_that_missed_an_update_stops_the_run_and_the_weight_is_named():
    model = tiny.build()
    sampler = TorchSampler(model, 2)
    sampler.open(tiny.ids(3), [0])
    learn(model)
    compared = Compared(model=model, sampler=sampler)
    with pytest.raises(WrongVersion, match=r"checksum .*first model\.embed_tokens\.weight"):
        compared()
    sampler.open(tiny.ids(3), [0])
    assert compared()["probe_gap"] < 1e-5
    with pytest.raises(WrongVersion, match="version 0 and the learner is at version 1: sync"):
        compared(1)


def test_equal_weights_and_other_log_probs_stop_the_run(monkeypatch):
    model = tiny.build()
    sampler = TorchSampler(model, 2)
    sampler.open(tiny.ids(3), [0])
    real = sampler.logp
    compared = Compared(model=model, sampler=sampler)
    for wrong in (0.01, math.nan):
        monkeypatch.setattr(
            sampler, "logp", lambda *x, wrong=wrong: real(*x) + np.array([0, 0, wrong, 0], dtype=np.float32)
        )
        with pytest.raises(Disagreement, match="differ by (0.01|nan) nats"):
            compared()


def test_a_sampler_that_cannot_be_asked_is_not():
    assert Compared.of(tiny.build(), tiny.Scripted(None)) is None
    half = tiny.build().bfloat16()
    assert Compared.of(half, TorchSampler(half, 2)).most > Compared.of(tiny.build(), TorchSampler(tiny.build(), 2)).most


def test_what_is_measured_is_the_definition():
    rng = np.random.default_rng(0)
    d, on = rng.normal(0, 0.3, 500), rng.random(500) < 0.7
    d[np.flatnonzero(~on)[0]] = np.nan  # what is not looked at may be anything
    sampling_logp = rng.normal(-2, 1, 500)
    got = mismatch(torch.from_numpy(sampling_logp + d), torch.from_numpy(sampling_logp), torch.from_numpy(on))
    mean = {k: float(s) / float(n) for k, (s, n) in got.items()}
    w = np.exp(d[on])
    assert mean["mismatch_kl"] == pytest.approx((w - 1 - d[on]).mean(), rel=1e-9)
    assert mean["mismatch_max"] == pytest.approx(np.abs(d[on]).max())
    assert mean["ess"] == pytest.approx(w.sum() ** 2 / (len(w) * (w**2).sum()))
    for name, q in (("ratio_p01", 0.01), ("ratio_p50", 0.5), ("ratio_p99", 0.99)):
        assert mean[name] == pytest.approx(np.quantile(w, q, method="inverted_cdf"), rel=0.02)


def test_no_token_and_equal_log_probs():
    x = torch.linspace(-3, -1, 8)
    assert float(mismatch(x, x, torch.zeros(8, dtype=torch.bool))["mismatch_kl"][0]) == 0
    got = {k: float(s) / float(n) for k, (s, n) in mismatch(x, x, torch.ones(8, dtype=torch.bool)).items()}
    assert got == {"mismatch_kl": 0, "mismatch_max": 0, "ratio_p01": 1, "ratio_p50": 1, "ratio_p99": 1, "ess": 1}


@pytest.mark.parametrize(
    ("metrics", "stops"),
    [
        ({"mismatch_kl": 0.04}, False),
        ({"mismatch_kl": 0.06}, True),
        ({"mismatch_kl": math.nan}, True),
        ({}, False),
        ({"mismatch_kl": 0.5, "mismatch_kl_first": 0.01}, False),
        ({"mismatch_kl": 0.01, "mismatch_kl_first": 0.5}, True),
    ],
)
def test_the_hard_stop(metrics, stops):
    if stops:
        with pytest.raises(ValueError, match=r"nats per token at step 7 \(max_mismatch = 0.05\)"):
            stop_beyond(metrics, 7, 0.05)
    else:
        stop_beyond(metrics, 7, 0.05)


def test_a_step_sampled_by_other_weights_stops_the_run():
    e = experience()
    e.player.sampler.version = 3
    list(e(0)[0])
    groups, off_policy = (
        e.groups,
        [replace(g, rollouts=tuple(replace(r, info={"off_policy": True}) for r in g.rollouts)) for g in e.groups],
    )
    check_versions(groups, 3)
    check_versions(groups, 5, lag=2)
    check_versions(off_policy, 9)
    for newest, lag in ((4, 0), (5, 1), (2, 5)):
        with pytest.raises(
            WrongVersion, match="was sampled by version 3 of the weights, and this step learns from version"
        ):
            check_versions(groups, newest, lag)


def test_an_experience_asks_after_each_step():
    calls = []
    e = experience(compared=lambda: calls.append(1) or {"probe_gap": 0.25})
    _, metrics = e(0)
    assert calls == [1] and metrics["probe_gap"] == 0.25
    e.player = SimpleNamespace(**vars(e.player), play=lambda *_: e.groups)
    e.player.sampler.version = 9  # what comes now says that it is older
    with pytest.raises(WrongVersion, match="not synced"):
        e(1)


def test_tensors_that_both_sides_share_are_not_added_up(monkeypatch):
    model = tiny.build()
    sampler = TorchSampler(model=model, end_id=2)
    mine = dict(model.named_parameters())
    monkeypatch.setattr(sampler, "weights", lambda: mine)
    seen = []
    real = checksum
    monkeypatch.setattr("training.rollout.mismatch.checksum", lambda w: seen.append(1) or real(w))
    Compared(model=model, sampler=sampler)()
    assert not seen
    name = next(iter(mine))
    mine[name] = mine[name].detach().clone()
    Compared(model=model, sampler=sampler)()
    assert len(seen) == 2, "a copy is looked at"
