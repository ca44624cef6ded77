"""Group transforms that pay steps: what they learn, against worlds whose truth is known."""

import numpy as np
import pytest

from synth.types import Scored
from tasks.lab.toy import groups, problems
from training.rl.group_transform._steps import Small
from training.rl.group_transform.return_decomposition import return_decomposition
from training.types import Group, Rollout, Segment


def episode(observations, score=0.0, name="observation"):
    segments = [
        Segment(ids=np.zeros(1, dtype=np.int64), role="env", extras={name: np.zeros((1, len(observations[0])))})
    ]
    for x in observations:
        one = np.zeros(1, dtype=np.float32)
        segments.append(Segment(ids=np.zeros(1, dtype=np.int64), role="model", logp=one, extras={name: np.asarray(x, dtype=float)[None]}))  # fmt: skip
    return Rollout(problem=problems(1)[0], group="g", segments=tuple(segments), score=Scored(value=float(score), parts={}))  # fmt: skip


def rewards(rollout):
    return np.array([s.reward for s in rollout.segments if s.role == "model"])


def test_rewards_of_steps_are_found_from_returns_alone():
    """The check of the paper's kind: 200 episodes of 10 steps, four factors, R^2 per step above 0.95."""
    rng = np.random.default_rng(0)
    truth = np.array([1.0, -0.5, 0.25, 0.0])
    x = rng.normal(size=(200, 10, 4))
    whole = [episode(e, (e @ truth).sum(), "factors") for e in x]
    state = {}
    for call in range(4):
        (out,) = return_decomposition([Group(id="g", rollouts=tuple(whole))], None, state, np.random.default_rng(call), updates=100, kept=200)  # fmt: skip
    given = np.array([rewards(r) for r in out.rollouts])
    assert np.corrcoef(given.ravel(), (x @ truth).ravel())[0, 1] ** 2 > 0.95
    assert [r.score for r in out.rollouts] == [r.score for r in whole]


def test_it_goes_on_from_its_state():
    rng = np.random.default_rng(0)
    first, second = ([episode(e, e.sum(), "factors") for e in rng.normal(size=(6, 5, 2))] for _ in range(2))
    one = {}
    for part, seed in ((first, 1), (second, 2)):
        (straight,) = return_decomposition(
            [Group(id="g", rollouts=tuple(part))], None, one, np.random.default_rng(seed)
        )
    two = {}
    return_decomposition([Group(id="g", rollouts=tuple(first))], None, two, np.random.default_rng(1))
    saved = {"episodes": [[x.copy(), r] for x, r in two["episodes"]], "net": {"weights": [w.copy() for w in two["net"]["weights"]], "moments": [[m.copy() for m in ms] for ms in two["net"]["moments"]], "updates": two["net"]["updates"]}}  # fmt: skip
    (resumed,) = return_decomposition([Group(id="g", rollouts=tuple(second))], None, saved, np.random.default_rng(2))
    assert [rewards(r).tolist() for r in straight.rollouts] == [rewards(r).tolist() for r in resumed.rollouts]


def test_texts_have_no_steps_to_read():
    with pytest.raises(ValueError, match="worlds of numbers"):
        return_decomposition(groups([[1.0]]), None, {}, np.random.default_rng(0))


def test_the_small_network_learns_with_adam_as_torch_does():
    import torch

    x, y = np.random.default_rng(0).normal(size=(20, 3)), torch.from_numpy(np.random.default_rng(1).normal(size=20))
    kept = {}
    ours = Small(kept, 3, hidden=4, seed=5)
    theirs = [w.detach().clone().requires_grad_() for w in ours.weights]
    adam = torch.optim.Adam(theirs, lr=0.01)
    for _ in range(5):
        ours.learn(lambda: ((ours(x) - y) ** 2).mean(), 0.01)
        a, b, c, d = theirs
        adam.zero_grad()
        (((torch.tanh(torch.from_numpy(x) @ a + b) @ c + d).squeeze(1) - y) ** 2).mean().backward()
        adam.step()
    for w, v in zip(ours.weights, theirs, strict=True):
        torch.testing.assert_close(w.detach(), v.detach(), atol=1e-12, rtol=0)
