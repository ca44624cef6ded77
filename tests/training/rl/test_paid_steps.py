"""Group transforms that pay steps: what they learn, against worlds whose truth is known."""

from dataclasses import replace

import numpy as np
import pytest

from synth.types import Scored
from tasks.lab.toy import groups, problems
from training.rl.group_transform._steps import Small
from training.rl.group_transform.return_decomposition import return_decomposition
from training.rl.group_transform.stage_progress import stage_progress
from training.types import Group, Rollout, Segment


def episode(observations, score=0.0, name="observation"):
    segments = [
        Segment(ids=np.zeros(1, dtype=np.int64), role="env", extras={name: np.zeros((1, len(observations[0])))})
    ]
    for x in observations:
        one = np.zeros(1, dtype=np.float32)
        segments.append(
            Segment(
                ids=np.zeros(1, dtype=np.int64), role="model", logp=one, extras={name: np.asarray(x, dtype=float)[None]}
            )
        )
    return Rollout(
        problem=problems(1)[0], group="g", segments=tuple(segments), score=Scored(value=float(score), parts={})
    )


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
        (out,) = return_decomposition(
            [Group(id="g", rollouts=tuple(whole))], None, state, np.random.default_rng(call), updates=100, kept=200
        )
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
    saved = {
        "episodes": [[x.copy(), r] for x, r in two["episodes"]],
        "net": {
            "weights": [w.copy() for w in two["net"]["weights"]],
            "moments": [[m.copy() for m in ms] for ms in two["net"]["moments"]],
            "updates": two["net"]["updates"],
        },
    }
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


def staged(observations, stage):
    whole = episode(observations)
    return replace(whole, score=Scored(value=0.0, parts={"stage": float(stage)}))


def test_progress_within_a_stage_is_paid_and_never_more_than_the_next_stage():
    """Two flags and a place: episodes that go to the right pass each stage, those that stay do not."""
    rng = np.random.default_rng(0)
    there = [staged([[0, 0, 0.2], [0, 0, 0.9], [1, 0, 0.2], [1, 0, 0.9]], 2) for _ in range(20)]
    here = [staged([[0, 0, -0.2 - 0.7 * rng.random()] for _ in range(4)], 0) for _ in range(20)]
    between = [staged([[0, 0, 0.5], [1, 0, -0.5], [1, 0, -0.5]], 1) for _ in range(20)]
    state = {}
    (out,) = stage_progress(
        [Group(id="g", rollouts=(*there, *here, *between))],
        None,
        state,
        np.random.default_rng(1),
        done=[0, 1],
        updates=100,
    )
    paid, stayed, half = (rewards(out.rollouts[i]) for i in (0, 20, 40))
    # A step is paid the state that it leads to; the last one is paid the stage that the score says.
    assert 0.25 < paid[0] < 1 / 3 and 1.25 < paid[2] < 4 / 3 and paid[3] == 2
    assert all(-1 / 3 < r < -0.25 for r in stayed)
    assert all(2 / 3 < r < 0.75 for r in half)  # stage 1, and no progress in it: still above all of stage 0
    assert [len(s) for pair in state["states"] for s in pair] == [80, 60, 40, 40]
    assert [r.score for r in out.rollouts] == [r.score for r in (*there, *here, *between)]


def test_stages_that_cannot_be_read_are_refused():
    one = [Group(id="g", rollouts=(staged([[0, 0]], 0),))]
    go = lambda **knobs: stage_progress(one, None, {}, np.random.default_rng(0), **knobs)  # noqa: E731
    with pytest.raises(ValueError, match="an observation has 2 numbers"):
        go(done=[0, 2])
    with pytest.raises(ValueError, match="done is empty"):
        go(done=[])
    with pytest.raises(ValueError, match="below 1/2"):
        go(done=[0], alpha=0.5)
