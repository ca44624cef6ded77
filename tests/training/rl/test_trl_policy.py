"""Parity with TRL's GRPO, GMPO and RLOO: values and gradients of every loss type, and the advantages, by TRL's own
code.

A bare trainer is made without its __init__ and given what its loss reads; a function that returns the test's log-probs
stands in the place of the model. The advantages are computed in the middle of a long method: those lines of its source
are run on their own.
"""

import inspect
import math
import os
import re
import textwrap
from collections import defaultdict
from importlib.util import find_spec
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from trl_classes import trl_class, trl_module

from tasks.lab import toy
from training.learner.pack import Row, pack
from training.rl.advantage.batch_scale import batch_scale
from training.rl.advantage.gdpo import gdpo
from training.rl.advantage.grpo import grpo
from training.rl.advantage.rloo import rloo
from training.rl.objective import PolicyObjective
from training.rl.policy_loss.cispo import cispo
from training.rl.policy_loss.clip import clip
from training.rl.policy_loss.entropy_clip import entropy_clip, prepare
from training.rl.policy_loss.geometric import geometric
from training.rl.policy_loss.policy_gradient import policy_gradient
from training.rl.policy_loss.sapo import sapo
from training.rl.policy_loss.vespo import vespo
from training.rl.ratio.sequence import sequence
from training.rl.ratio.token import token
from training.rl.regulariser.kl import kl
from training.types import TokenStats

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
pytestmark = pytest.mark.skipif(find_spec("trl") is None, reason="TRL is not installed: `pip install -e '.[test]'`")
LENGTHS, PROMPT, WIDTH = [5, 1, 7, 3, 6, 2], 2, 7
NAN = float("nan")


def numbers(seed=0, spread=0.8):
    """Per row of LENGTHS: log-probs, old, reference, entropies [n] and one advantage; far enough off policy that clips
    act."""
    rng = np.random.default_rng(seed)
    logp = [-rng.exponential(1.0, n) for n in LENGTHS]
    near = lambda s: [x + s * rng.standard_normal(len(x)) for x in logp]  # noqa: E731
    return SimpleNamespace(
        logp=logp,
        old=near(spread),
        reference=near(0.5),
        entropy=[rng.exponential(1.0, n) for n in LENGTHS],
        advantages=rng.standard_normal(len(LENGTHS)),
    )


def padded(rows):
    out = torch.zeros(len(rows), WIDTH, dtype=torch.float64)
    for i, row in enumerate(rows):
        out[i, : len(row)] = torch.tensor(row)
    return out


def theirs(
    x,
    *,
    loss_type,
    level="token",
    beta=0.0,
    low=0.2,
    high=0.28,
    delta=None,
    quantile=1.0,
    kind="GRPOTrainer",
):
    """TRL's loss and its gradient per token, as lists like LENGTHS."""
    trainer = object.__new__(trl_class(kind))
    mask = padded([np.ones(n) for n in LENGTHS])
    leaf, entropy = padded(x.logp).requires_grad_(), padded(x.entropy)
    identity = SimpleNamespace(
        num_processes=1,
        sync_gradients=False,
        gather=lambda t: t,
        reduce=lambda t, reduction: t,
        pad_across_processes=lambda t, dim, pad_index: t,
    )
    trainer.__dict__.update(
        aux_loss_enabled=False,
        _get_per_token_logps_and_entropies=lambda *a, **k: (leaf, entropy, None),
        top_entropy_quantile=quantile,
        off_policy_mask_threshold=None,
        importance_sampling_level=level,
        beta=beta,
        epsilon_low=low,
        epsilon_high=high,
        loss_type=loss_type,
        use_vllm=False,
        vllm_importance_sampling_correction=False,
        model=SimpleNamespace(training=True),
        max_completion_length=16,
        current_gradient_accumulation_steps=1,
        accelerator=identity,
        _entropy_bonus_enabled=False,
        _metrics={"train": defaultdict(list)},
        args=SimpleNamespace(
            use_bias_correction_kl=False,
            delta=delta,
            sapo_temperature_pos=1.0,
            sapo_temperature_neg=1.05,
            vespo_k_pos=2.0,
            vespo_lambda_pos=3.0,
            vespo_k_neg=3.0,
            vespo_lambda_neg=2.0,
            steps_per_generation=1,
        ),
    )
    ids = torch.zeros(len(LENGTHS), PROMPT, dtype=torch.long)
    inputs = {
        "prompt_ids": ids,
        "prompt_mask": torch.ones_like(ids),
        "completion_ids": torch.zeros(len(LENGTHS), WIDTH, dtype=torch.long),
        "completion_mask": mask,
        "advantages": torch.tensor(x.advantages),
        "old_per_token_logps": padded(x.old),
        "ref_per_token_logps": padded(x.reference),
        "num_items_in_batch": mask.sum(),
        "old_logps": padded(x.old).sum(1),
    }
    loss = trainer._compute_loss(None, inputs)
    (g,) = torch.autograd.grad(loss, leaf)
    return loss.item(), [g[i, :n].tolist() for i, n in enumerate(LENGTHS)]


def ours(x, policy_loss, *, ratio=token, regularisers=(), before=None):
    """The objective's loss on the same rows, packed, as the learner divides it."""
    rows, at = [], lambda values: [np.concatenate([np.zeros(PROMPT), v]) for v in values]  # noqa: E731
    columns = {"sampling_logp": at(x.old), "reference": at(x.reference), "sampling_entropy": at(x.entropy)}
    for i, n in enumerate(LENGTHS):
        own = {k: v[i] for k, v in columns.items()} | {"advantages": np.full(PROMPT + n, x.advantages[i])}
        rows.append(
            Row(
                ids=np.zeros(PROMPT + n, dtype=np.int64),
                trainable=np.arange(PROMPT + n) >= PROMPT,
                group=i,
                columns=own,
            )
        )
    batch = pack(rows)
    batch.columns = {k: v.double() for k, v in batch.columns.items()}
    if before:
        before(batch)
    leaf = torch.tensor(np.concatenate(at(x.logp)), requires_grad=True)
    objective = PolicyObjective(ratio=ratio, policy_loss=policy_loss, regularisers=regularisers)
    terms = objective(TokenStats(logp=leaf, entropy=torch.zeros_like(leaf)), batch)
    loss = sum(t.values.sum() / batch.totals[t.denominator] for t in terms)
    (g,) = torch.autograd.grad(loss, leaf)
    return loss.item(), [r[PROMPT:].tolist() for r in g.split(batch.lengths)]


def partial(f, **knobs):
    from functools import partial as bound

    return bound(f, **knobs)


RANGE = {"clip_low": 0.2, "clip_high": 0.28}
LOSSES = {
    "grpo": (dict(loss_type="grpo"), partial(clip, aggregate="sequences", **RANGE), {}),
    "bnpo": (dict(loss_type="bnpo"), partial(clip, aggregate="tokens", **RANGE), {}),
    "dapo": (dict(loss_type="dapo"), partial(clip, aggregate="tokens", **RANGE), {}),
    "dr_grpo": (dict(loss_type="dr_grpo"), partial(clip, aggregate="constant", max_length=16, **RANGE), {}),
    "gspo": (
        dict(loss_type="grpo", level="sequence"),
        partial(clip, aggregate="sequences", **RANGE),
        {"ratio": sequence},
    ),
    "luspo": (
        dict(loss_type="luspo", level="sequence"),
        partial(clip, aggregate="constant", max_length=1, **RANGE),
        {"ratio": sequence},
    ),
    "dual clip": (dict(loss_type="grpo", delta=1.5), partial(clip, aggregate="sequences", dual_clip=1.5, **RANGE), {}),
    "gmpo": (
        dict(loss_type="grpo", low=0.4, high=0.4, kind="GMPOTrainer"),
        partial(geometric, width=0.4),
        {},
    ),
    "rloo": (
        dict(loss_type="grpo", kind="RLOOTrainer"),
        partial(clip, aggregate="sequences", **RANGE),
        {"ratio": partial(sequence, mean=False)},
    ),
    "vespo": (dict(loss_type="vespo"), vespo, {}),
    "cispo": (dict(loss_type="cispo", high=2.0), partial(cispo, low=0.0, high=2.0), {}),
    "sapo": (dict(loss_type="sapo"), partial(sapo, tau_pos=1.0, tau_neg=1.05), {}),
    "kl": (
        dict(loss_type="grpo", beta=0.1),
        partial(clip, aggregate="sequences", **RANGE),
        {"regularisers": [partial(kl, coef=0.1, estimator="k3", aggregate="sequences")]},
    ),
    "high entropy": (
        dict(loss_type="dapo", quantile=0.25),
        partial(entropy_clip, rho=0.25, denominator="all", **RANGE),
        {"before": partial(prepare, rho=0.25)},
    ),
}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", LOSSES)
def test_loss_and_gradient_are_those_of_trl(name, seed):
    knobs, policy_loss, more = LOSSES[name]
    x = numbers(seed)
    (loss, gradient), (want, wanted) = ours(x, policy_loss, **more), theirs(x, **knobs)
    assert loss == pytest.approx(want, rel=1e-6, abs=1e-9)
    for a, b in zip(gradient, wanted, strict=True):
        assert a == pytest.approx(b, rel=1e-5, abs=1e-8)
    assert any(v == 0 for row in wanted for v in row) or name in ("cispo", "sapo", "vespo", "kl", "gspo"), (
        "no clip acted: the case says too little"
    )


def test_no_loss_of_the_grpo_trainer_is_left_out():
    """Its own list of loss types, as its source compares them."""
    source = inspect.getsource(trl_class("GRPOTrainer")._compute_loss)
    kinds = set(re.findall(r'"(\w+)"', " ".join(re.findall(r"self\.loss_type (?:==|in) (\[[^\]]*\]|\"\w+\")", source))))
    assert kinds == {knobs["loss_type"] for knobs, _, _ in LOSSES.values()} and len(kinds) >= 8


def test_on_the_policy_that_sampled_rloo_is_the_plain_policy_gradient():
    x = numbers()
    x.old = x.logp
    (_, gradient), (_, wanted) = (
        ours(x, partial(policy_gradient, aggregate="constant", max_length=1)),
        theirs(x, loss_type="grpo", kind="RLOOTrainer"),
    )
    for a, b in zip(gradient, wanted, strict=True):
        assert a == pytest.approx(b, rel=1e-6)


def test_a_wrong_clip_range_is_seen():
    x = numbers()
    wider = ours(x, partial(clip, aggregate="sequences", clip_low=0.2, clip_high=0.3))[0]
    assert wider != pytest.approx(theirs(x, loss_type="grpo")[0], rel=1e-4)


# --- advantages
# ------------------------------------------------------------------------------------------------------------------------


def lines(method, first, last):
    """The source between two lines of a method, which begin with these texts, as code of its own."""
    source = inspect.getsource(inspect.unwrap(method)).splitlines()
    a = next(i for i, line in enumerate(source) if line.strip().startswith(first))
    b = next(i for i, line in enumerate(source) if i > a and line.strip().startswith(last))
    return textwrap.dedent("\n".join(source[a : b + 1]))


REWARDS = [[1.0, 0.0, 0.0, 1.0], [0.2, 0.9, 0.4, 0.4], [1.0, 1.0, 1.0, 1.0], [0.0, NAN, 1.0, 0.0]]


def trl_grpo(rewards_per_func, scale="group", aggregation="sum_then_normalize"):
    method = trl_class("GRPOTrainer")._generate_and_score_completions
    code = lines(method, "if self.multi_objective_aggregation ==", "advantages = torch.nan_to_num")
    n = rewards_per_func.shape[1]
    itself = SimpleNamespace(
        multi_objective_aggregation=aggregation,
        reward_weights=torch.ones(n, dtype=torch.float64),
        scale_rewards=scale,
        reward_funcs=[None] * n,
    )
    space = {
        **vars(trl_module("GRPOTrainer")),
        "self": itself,
        "rewards_per_func": rewards_per_func,
        "num_generations": 4,
        "device": "cpu",
        "unscorable_mask": torch.isnan(rewards_per_func).all(dim=1),
    }
    exec(code, space)
    return space["advantages"].view(-1, 4).tolist()


def advantages(f, **knobs):
    given = [np.array(r) for r in REWARDS]
    return [list(c) for c in f(toy.groups(REWARDS), given, {}, np.random.default_rng(0), **knobs)]


@pytest.mark.parametrize(("scale", "std"), [("group", "sample"), ("none", "none")])
def test_group_advantages_are_those_of_trl(scale, std):
    want = trl_grpo(torch.tensor(REWARDS, dtype=torch.float64).view(-1, 1), scale)
    for a, b in zip(advantages(grpo, std=std, eps=1e-4), want, strict=True):
        assert a == pytest.approx(b, abs=1e-7)


def test_batch_scaled_advantages_are_those_of_trl_but_for_its_sample_deviation():
    want = trl_grpo(torch.tensor(REWARDS, dtype=torch.float64).view(-1, 1), "batch")
    n = sum(not math.isnan(x) for r in REWARDS for x in r)
    for a, b in zip(advantages(batch_scale, centre="group", std="rewards", eps=0.0), want, strict=True):
        assert a == pytest.approx([x * np.sqrt(n / (n - 1)) for x in b], rel=1e-3)


def test_gdpo_is_trls_but_for_its_sample_deviation():
    second = [[0.5, 0.5, 1.0, 0.0], [1.0, 0.0, 0.0, 0.5], [0.2, 0.2, 0.2, 0.2], [0.3, NAN, 0.1, 0.9]]
    both = torch.tensor([REWARDS, second], dtype=torch.float64).view(2, -1).T.contiguous()
    want = trl_grpo(both, aggregation="normalize_then_sum")
    parts = [[{"b": x} for x in row] for row in second]
    given, rng = [np.array(r) for r in REWARDS], np.random.default_rng(0)
    got = gdpo(toy.groups(REWARDS, parts=parts), given, {}, rng, parts=("value", "b"), eps=1e-4)
    n = sum(not math.isnan(x) for r in REWARDS for x in r)
    for a, b in zip(got, want, strict=True):
        assert list(a) == pytest.approx([x * np.sqrt(n / (n - 1)) for x in b], rel=1e-3, abs=1e-9)


def test_rloo_advantages_are_those_of_trl():
    method = trl_class("RLOOTrainer")._generate_and_score_completions
    code = lines(method, "grouped_rewards =", "advantages = torch.nan_to_num")
    rewards = torch.tensor(REWARDS, dtype=torch.float64).view(-1)
    space = {
        **vars(trl_module("RLOOTrainer")),
        "self": SimpleNamespace(normalize_advantages=False),
        "rewards": rewards,
        "num_generations": 4,
        "unscorable_mask": torch.isnan(rewards),
        "device": "cpu",
    }
    exec(code, space)
    for a, b in zip(advantages(rloo), space["advantages"].view(-1, 4).tolist(), strict=True):
        assert a == pytest.approx(b, abs=1e-12)
