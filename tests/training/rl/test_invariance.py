"""What must not change a step: how its rows are split, whether they are packed, in which order they lie, in which order
groups and the rollouts of a group come. (The classes of TRL's tests/invariant.) Compared by the gradient of a whole
model; that no advantage depends on the order of groups and rollouts, and no piece on a split, is for every piece in
tests/training/test_pieces_contract.py."""

from dataclasses import replace
from functools import cache, partial

import numpy as np
import pytest
import tiny
import torch

from synth.types import Problem, Scored
from training.learner.learner import Learner, Optim, score
from training.learner.pack import count, pack, rollout_row, rollout_rows
from training.rl.advantage.batch_scale import batch_scale
from training.rl.advantage.grpo import grpo
from training.rl.advantage.rloo import rloo
from training.rl.objective import PolicyObjective
from training.rl.policy_loss.cispo import cispo
from training.rl.policy_loss.clip import clip
from training.rl.policy_loss.geometric import geometric
from training.rl.policy_loss.policy_gradient import policy_gradient
from training.rl.policy_loss.sapo import sapo
from training.rl.policy_loss.vespo import vespo
from training.rl.ratio.sequence import sequence
from training.rl.ratio.token import token
from training.rl.regulariser.entropy import entropy
from training.types import Group, Rollout, Segment

CASES = {
    "grpo": (partial(grpo, std="sample"), token, partial(clip, aggregate="sequences"), []),
    "dr-grpo": (partial(grpo, std="none"), token, partial(clip, aggregate="constant", max_length=8), []),
    "dapo with entropy": (
        partial(grpo, std="sample"),
        token,
        partial(clip, clip_high=0.28),
        [partial(entropy, coef=0.01)],
    ),
    "gspo": (partial(grpo, std="sample"), sequence, partial(clip, aggregate="sequences"), []),
    "gmpo": (partial(grpo, std="sample"), token, geometric, []),
    "cispo": (partial(grpo, std="sample"), token, cispo, []),
    "sapo": (partial(grpo, std="sample"), token, sapo, []),
    "vespo": (partial(grpo, std="sample"), token, vespo, []),
    "rloo": (rloo, token, partial(policy_gradient, aggregate="constant", max_length=1), []),
    "reinforce++": (batch_scale, token, clip, []),
}


@cache
def played(seed=0):
    """Four groups of three or four rollouts: a prompt, what the model wrote, for some a reply and more of the
    model's."""
    rng = np.random.default_rng(seed)
    problem = Problem.make(prompt="q", answer="a", verifier="exact", family="f", split="train")
    out = []
    for g in range(4):
        prompt = rng.integers(3, 300, 4)
        rollouts = []
        for i in range(3 + g % 2):
            segments = [Segment(ids=prompt, role="env")]
            for k in range(1 + (i + g) % 2):
                n = int(rng.integers(2, 9))
                segments += [Segment(ids=rng.integers(3, 300, 3), role="env")] * (k > 0)
                segments.append(Segment(ids=rng.integers(3, 300, n), role="model", logp=np.zeros(n, dtype=np.float32)))
            scored = Scored(value=float(rng.integers(0, 3) / 2))
            rollouts.append(near(Rollout(problem=problem, group=str(g), segments=tuple(segments), score=scored), rng))
        out.append(Group(id=str(g), rollouts=tuple(rollouts)))
    return out


def near(rollout, rng):
    """The rollout as a policy near the model's wrote it: so near that a ratio of whole answers is a number to speak
    of."""
    logp = score(tiny.build(), pack([rollout_row(rollout, 0.0, 0)])).logp.numpy()
    at, segments = 0, []
    for s in rollout.segments:
        noise = rng.normal(0.0, 0.15, len(s.ids))
        own = (logp[at : at + len(s.ids)] + noise).astype(np.float32)
        segments.append(replace(s, logp=own) if s.role == "model" else s)
        at += len(s.ids)
    return replace(rollout, segments=tuple(segments))


def gradient(groups, case, *, order=None, apart=False, budget=1 << 14):
    """The gradient of a step; `apart`: each row in a batch of its own, under the counts of all."""
    advantage, ratio, policy_loss, regularisers = CASES[case]
    rows = rollout_rows(groups, advantage(groups, [g.rewards for g in groups], {}, np.random.default_rng(0)))
    rows = rows if order is None else [rows[i] for i in order]
    batches = [pack([r], totals=count(rows)) for r in rows] if apart else [pack(rows)]
    objective = PolicyObjective(ratio=ratio, policy_loss=policy_loss, regularisers=regularisers)
    total = None
    for batch in batches:
        model = tiny.build()
        Learner(model, Optim(lr=0.0, max_grad_norm=1e9)).step(batch, objective, tokens_per_microbatch=budget)
        gradients = torch.cat([p.grad.ravel() for p in model.parameters()]).clone()
        total = gradients if total is None else total + gradients
    return total


def same(a, b):
    assert float(a.abs().max()) > 1e-4, "there is no gradient to speak of"
    assert float((a - b).abs().max()) <= 2e-6 * max(1.0, float(a.abs().max()))


@cache
def whole(case):
    """The gradient that all others are compared with."""
    return gradient(played(), case)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("budget", [1, 20, 45])
def test_splits(case, budget):
    same(whole(case), gradient(played(), case, budget=budget))


@pytest.mark.parametrize("case", CASES)
def test_packing(case):
    same(whole(case), gradient(played(), case, apart=True))


@pytest.mark.parametrize("case", CASES)
def test_order_of_rows(case):
    n = sum(len(g.rollouts) for g in played())
    same(whole(case), gradient(played(), case, order=np.random.default_rng(1).permutation(n)))


@pytest.mark.parametrize("case", CASES)
def test_order_of_groups_and_of_rollouts_within_them(case):
    groups = played()
    turned = [replace(g, rollouts=g.rollouts[::-1]) for g in groups[::-1]]
    same(whole(case), gradient(turned, case))


def test_a_step_that_depends_on_the_order_is_seen(monkeypatch):
    """A mean over the first row's group alone, as a stride that is taken for an identity would make it."""

    def strided(groups, rewards, state, rng):
        values = np.concatenate(rewards)
        means = np.repeat(values.reshape(-1, 2).mean(1), 2)
        cuts = np.cumsum([len(r) for r in rewards])[:-1]
        return np.split(values - means, cuts)

    monkeypatch.setitem(CASES, "strided", (strided, token, clip, []))
    groups = played()
    with pytest.raises(AssertionError):
        same(gradient(groups, "strided"), gradient([groups[i] for i in (1, 0, 3, 2)], "strided"))
