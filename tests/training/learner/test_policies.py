"""Several policies on one base: each learns as if it were alone, costs its adapters, and leaves nothing behind."""

import copy

import numpy as np
import pytest
import tiny
import torch

from synth.types import Sampling
from training.learner.learner import Learner, Optim, nll
from training.learner.pack import Row, pack
from training.learner.policies import Policies
from training.model.lora import adapt
from training.rollout.torch_sampler import TorchSampler

LORA = {"rank": 4}


def batch(seed):
    return pack([Row(ids=x, trainable=np.ones(len(x), bool)) for x in tiny.ids(12, 9, 15, seed=seed)])


def learn(policies, name, seed):
    with policies.using(name):
        learner = policies.named[name].learner
        out = learner.forward_backward(batch(seed), nll)
        return out | learner.optim_step(lr=1e-2, weight_decay=0.01, max_grad_norm=1.0)


def trained(*, beside):
    policies = Policies(tiny.build(seed=1))
    policies.create("a", LORA, seed=5)
    if beside:
        policies.create("b", {"rank": 2}, seed=6)
    for step in range(3):
        learn(policies, "a", step)
        if beside:
            learn(policies, "b", 10 + step)
    return policies


def test_one_trained_beside_another_has_the_bytes_of_one_trained_alone():
    alone, beside = trained(beside=False).named["a"], trained(beside=True).named["a"]
    assert alone.weights.keys() == beside.weights.keys() and alone.weights
    for name, p in alone.weights.items():
        assert torch.equal(p, beside.weights[name]), name


def test_the_two_halves_are_a_step():
    policies = Policies(tiny.build(seed=1))
    halves = policies.create("a", LORA, seed=5)
    model = tiny.build(seed=1)
    adapt(model, LORA, seed=5)
    o = Optim(lr=1e-2, warmup=0, decay="constant")
    whole = Learner(model, o)
    for step in range(3):
        metrics = learn(policies, "a", step)
        was = whole.step(batch(step), nll)
        assert (
            metrics["loss"] == was["loss"] and metrics["grad_norm"] == was["grad_norm"] and metrics["nll"] == was["nll"]
        )
    for p, q in zip(halves.learner.weights, whole.weights, strict=True):
        assert torch.equal(p, q)


def test_gradients_of_one_wait_while_another_learns():
    alone = Policies(tiny.build(seed=1))
    alone.create("a", LORA, seed=5)
    learn(alone, "a", 0)
    policies = Policies(tiny.build(seed=1))
    a, _ = policies.create("a", LORA, seed=5), policies.create("b", LORA, seed=6)
    with policies.using("a"):
        a.learner.forward_backward(batch(0), nll)
    learn(policies, "b", 1)
    with policies.using("a"):
        a.learner.optim_step(lr=1e-2, weight_decay=0.01, max_grad_norm=1.0)
    assert all(torch.equal(p, alone.named["a"].weights[n]) for n, p in a.weights.items())


def said(policies, name, weights=None):
    with policies.using(name, weights):
        session = TorchSampler(policies.model, 0).open([np.arange(5, 12)], [3])
        return session.generate(Sampling(max_tokens=6))[0]


def test_each_speaks_for_itself_and_the_base_for_none():
    policies = trained(beside=True)
    a, b, base = (said(policies, n) for n in ("a", "b", None))
    plain = TorchSampler(tiny.build(seed=1), 0).open([np.arange(5, 12)], [3]).generate(Sampling(max_tokens=6))[0]
    assert np.array_equal(base.ids, plain.ids) and np.allclose(base.logp, plain.logp, atol=1e-5)
    assert not np.array_equal(a.logp, b.logp) and not np.array_equal(a.logp, base.logp)


def test_a_snapshot_speaks_as_it_was_and_the_policy_goes_on():
    policies = trained(beside=True)
    kept, before = policies.named["a"].snapshot(), said(policies, "a")
    learn(policies, "a", 7)
    now = policies.named["a"].snapshot()
    assert np.array_equal(said(policies, "a", kept).logp, before.logp)
    assert not np.array_equal(said(policies, "a").logp, before.logp)
    assert all(torch.equal(p, now[n]) for n, p in policies.named["a"].weights.items())


def test_a_saved_state_takes_the_same_next_step():
    policies = trained(beside=False)
    state = copy.deepcopy(policies.named["a"].state())
    other = Policies(tiny.build(seed=1))
    other.create("c", state["lora"], seed=99).load_state(state)
    learn(other, "c", 4)
    learn(policies, "a", 4)
    assert other.named["c"].learner.step_count == 4
    assert all(torch.equal(p, policies.named["a"].weights[n]) for n, p in other.named["c"].weights.items())
    with pytest.raises(ValueError, match="same rank and modules"):
        other.create("d", {"rank": 2}).load_state(state)


def test_what_a_policy_costs_and_that_nothing_of_it_stays():
    policies = trained(beside=True)
    names = {n for n, _ in policies.model.named_parameters()}
    weights = sum(p.numel() for p in policies.named["a"].weights.values())
    steps = 4 * len(policies.named["a"].weights)  # AdamW counts the steps of each tensor
    assert policies.bytes("a") == 3 * 4 * weights + steps  # weights and two moments: no gradient waits
    with policies.using("a"):
        policies.named["a"].learner.forward_backward(batch(0), nll)
    assert policies.bytes("a") == 4 * 4 * weights + steps
    policies.remove("b")
    assert "b" not in policies.named and not any(".b." in n for n, _ in policies.model.named_parameters())
    assert any(".b." in n for n in names) and said(policies, "a").logp is not None


def test_a_name_that_cannot_be():
    policies = Policies(tiny.build(seed=1))
    policies.create("a", LORA)
    for name in ("a", "", "a.b"):
        with pytest.raises(ValueError, match="cannot be called"):
            policies.create(name, LORA)
