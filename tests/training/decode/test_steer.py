"""Steering by preference pairs, on a small model that has learned to answer in two styles, half of the time in each."""

import numpy as np
import pytest
import tiny
import torch

from synth.types import Sampling
from tasks.planning.pieces import bind
from training.decode import Ask, Engine, Example
from training.learner.learner import Learner, Optim, nll
from training.learner.pack import Row, pack
from training.rollout.torch_sampler import TorchSampler

V = tiny.Vocabulary(16)
LOW, HIGH = range(3, 9), range(10, 16)


def answer(rng, style):
    return rng.choice(list(style), 6)


def prompt(rng):
    return rng.integers(0, 16, 3)


@pytest.fixture(scope="module")
def engine():
    """The first token of an answer is one of either style, and the others stay in it."""
    model, rng = tiny.build(vocabulary=V, init_range=0.1, hidden=32), np.random.default_rng(0)
    learner = Learner(model, Optim(lr=5e-3, warmup=5, steps=150))
    for _ in range(150):
        rows = []
        for _ in range(24):
            ids = np.concatenate([prompt(rng), answer(rng, LOW if rng.random() < 0.5 else HIGH)])
            rows.append(Row(ids=ids, trainable=np.arange(9) >= 3))
        learner.step(pack(rows), nll)
    sampler = TorchSampler(model, V.eos_token_id)
    return Engine(sampler=sampler, text=str, said=str, sampling=Sampling(max_tokens=6))


def pairs(n=100):
    rng = np.random.default_rng(1)
    return [Example(prompt=prompt(rng), chosen=answer(rng, HIGH), rejected=answer(rng, LOW)) for _ in range(n)]


def rate(engine, **knobs):
    """Share of new tokens of the preferred style."""
    rng = np.random.default_rng(2)
    asks = [Ask(prompt=prompt(rng), seed=i, max_tokens=6) for i in range(100)]
    decode = bind("decode", {"piece": "steer", "layer": 0, **knobs})
    done = decode(engine, asks, decode.fit(engine, pairs()))
    return np.mean([np.mean(d.segment.ids >= 10) for d in done])


def test_a_preference_becomes_a_direction(engine):
    """The claim of the recipe palrs, with its negative control."""
    assert rate(engine, alpha=0.0) == pytest.approx(0.5, abs=0.1)
    up, down = (rate(engine, alpha=a, normalise=False) for a in (0.8, -0.8))
    controls = [rate(engine, alpha=0.8, normalise=False, direction="random", seed=s) for s in range(6)]
    assert up >= 0.85 and down <= 0.15
    assert np.mean(controls) == pytest.approx(0.5, abs=0.15)
    # In 32 dimensions a random direction has a part of any other: one alone moves the rate, less than the preference's.
    assert max(abs(c - 0.5) for c in controls) < up - 0.5


def test_where_the_sides_differ_most_is_chosen(engine):
    fitted = bind("decode", {"piece": "steer"}).fit(engine, pairs())
    every = [
        bind("decode", {"piece": "steer", "layer": layer, "positions": 5}).fit(engine, pairs()) for layer in (0, 1)
    ]
    assert fitted.cosine == min(f.cosine for f in every) and fitted.vector.norm() == pytest.approx(1.0)
    random = bind("decode", {"piece": "steer", "direction": "random", "normalise": False}).fit(engine, pairs())
    means = bind("decode", {"piece": "steer", "normalise": False}).fit(engine, pairs())
    assert random.vector.norm() == pytest.approx(float(means.vector.norm()), rel=1e-5)
    assert abs(float(torch.cosine_similarity(random.vector, means.vector, dim=0))) < 0.6


def test_pairs_without_a_direction_and_layers_that_are_not_there_are_refused(engine):
    same = [Example(prompt=p.prompt, chosen=p.chosen, rejected=p.chosen) for p in pairs(3)]
    with pytest.raises(ValueError, match="these pairs give no direction"):
        bind("decode", {"piece": "steer"}).fit(engine, same)
    with pytest.raises(ValueError, match="there is no layer 2: this model has 2"):
        bind("decode", {"piece": "steer", "layer": 2}).fit(engine, pairs(3))
    with pytest.raises(ValueError, match="positions is 0"):
        bind("decode", {"piece": "steer", "positions": 0}).fit(engine, pairs(3))
    fitted = bind("decode", {"piece": "steer"}).fit(engine, pairs(3))
    other = Engine(
        sampler=TorchSampler(tiny.build(vocabulary=V, hidden=16), 2),
        text=str,
        said=str,
        sampling=Sampling(max_tokens=6),
    )
    with pytest.raises(ValueError, match="made with another model"):
        bind("decode", {"piece": "steer"})(other, [Ask(prompt=np.array([1]), seed=0, max_tokens=4)], fitted)
