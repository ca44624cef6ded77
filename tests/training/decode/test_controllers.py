"""Small networks that decide over a frozen model: how long to ponder, which block comes next."""

import numpy as np
import pytest
import tiny
import torch

from synth.types import Sampling
from tasks.planning.pieces import bind
from training.decode import Ask, Engine, Example
from training.decode._dqn import Learning, Step, Values, chosen
from training.decode.fr_ponder import halted
from training.rollout.torch_sampler import TorchSampler

V = tiny.Vocabulary(16)


def engine(**more):
    model = tiny.build(vocabulary=V, init_range=0.2)
    known = {"rewards": lambda rows: [float(np.mean(r % 2 == 0)) for r in rows]}
    return Engine(sampler=TorchSampler(model, 2), text=str, said=str, sampling=Sampling(max_tokens=8), **known | more)


def pairs(n=8):
    rng = np.random.default_rng(5)
    return [
        Example(prompt=rng.integers(3, 16, 4), chosen=rng.integers(3, 8, 6), rejected=rng.integers(8, 16, 6))
        for _ in range(n)
    ]


def asks(n=4, **more):
    return [Ask(prompt=p, seed=i, max_tokens=8, **more) for i, p in enumerate(tiny.ids(*[5] * n, below=16))]


def test_depth_follows_the_cost():
    # Halt at once with 1/2, then with 1/4: depths 0, 1, 2 have 1/2, 1/8, 3/8.
    logp = halted(torch.tensor([[0.0, float(np.log(1 / 3))]]))
    assert logp.exp()[0].tolist() == pytest.approx([0.5, 0.125, 0.375])
    assert halted(torch.randn(5, 8)).exp().sum(1).tolist() == pytest.approx([1.0] * 5)

    source, likes = engine(rewards=lambda rows: [0.0] * len(rows)), {"steps": 30, "group": 8, "k_max": 4, "lr": 0.1}
    expensive = bind("decode", {"piece": "fr_ponder", "cost": 10.0, **likes}).fit(source, pairs())
    assert expensive.depth == 0.0 and expensive.vector.norm() == pytest.approx(1.0)
    # An answer pondered over to the end is all that is wanted: the edit of the last draws says how deep they were.
    depths = []

    def rewards(rows):
        return [d / 4 for d in depths[-len(rows) :]]

    class Noting(TorchSampler):
        def open(self, prompts, seeds, edits=(), policies=()):
            for e in edits:
                depths.append(round(float(e.vector.norm()) / unit))
            return super().open(prompts, seeds, edits, policies)

    model = tiny.build(vocabulary=V, init_range=0.2)
    deep = Engine(sampler=Noting(model, 2), text=str, said=str, sampling=Sampling(max_tokens=2), rewards=rewards)
    one = pairs()[:1] * 8
    unit = 0.2 * float(deep.streams([one[0].prompt], [1])[0][0, -1].norm())
    free = bind("decode", {"piece": "fr_ponder", "cost": 0.0, **likes}).fit(deep, one)
    assert free.depth == 4.0


def test_a_fixed_depth_is_the_one_that_earns_most_whatever_it_costs():
    depths = []

    class Noting(TorchSampler):
        def open(self, prompts, seeds, edits=(), policies=()):
            depths.extend(round(float(e.vector.norm()) / unit) for e in edits)
            return super().open(prompts, seeds, edits, policies)

    def rewards(rows):  # the third of five depths is the best
        return [-abs(d - 3.0) for d in depths[-len(rows) :]]

    model, one = tiny.build(vocabulary=V, init_range=0.2), pairs()[:1] * 8
    source = Engine(sampler=Noting(model, 2), text=str, said=str, sampling=Sampling(max_tokens=2), rewards=rewards)
    unit = 0.2 * float(source.streams([one[0].prompt], [1])[0][0, -1].norm())
    decode = bind("decode", {"piece": "fr_ponder", "halting": "fixed", "k_max": 4, "steps": 5, "cost": 10.0})
    fitted = decode.fit(source, one)
    assert fitted.fixed == 3 and fitted.depth == 3.0
    assert len(depths) == 8 * 5 * 8, "as many answers as the controller learns from: 5 steps of 8 answers to 8 prompts"
    done = decode(source, asks(3, forward_tokens=0), fitted)
    assert [d.account.events for d in done] == [["pondered 3 of 4 steps"]] * 3
    learned = bind("decode", {"piece": "fr_ponder", "k_max": 4, "steps": 5})
    assert done[0].account.spent == learned(source, asks(1), learned.fit(source, one))[0].account.spent


def test_no_steps_are_a_plain_draw_and_depths_are_told():
    source = engine()
    plain = bind("decode", {"piece": "sample"})(source, asks(), None)
    expensive = bind("decode", {"piece": "fr_ponder", "cost": 10.0, "steps": 30, "lr": 0.1})
    done = expensive(source, asks(), expensive.fit(source, pairs()))
    for a, b in zip(plain, done, strict=True):
        assert a.segment.ids.tolist() == b.segment.ids.tolist()
        assert b.account.events == ["pondered 0 of 8 steps"]
        assert b.account.spent == a.account.spent + 5, "the prompt is read once more, for the controller"
    deep = bind("decode", {"piece": "fr_ponder", "halting": "never", "steps": 0})
    assert deep(source, asks(1), deep.fit(source, pairs()))[0].account.events == ["pondered 8 of 8 steps"]


def test_q_learning_finds_the_values_of_a_small_chain():
    """Three places in a row: on (0) costs 0.1 and leads to the next, the last one earns 1; out (1) earns 0.3 and ends. With
    gamma 0.9: Q(2, on) = 1, Q(1, on) = -0.1 + 0.9 = 0.8, Q(0, on) = -0.1 + 0.72 = 0.62; Q(., out) = 0.3."""
    rng, eye, both = np.random.default_rng(0), np.eye(3), np.array([True, True])
    learning = Learning(values=Values(3, 2, 32, 0), gamma=0.9, rng=rng)
    for _ in range(300):
        at = int(rng.integers(3))
        action = int(rng.integers(2))
        reward = 0.3 if action else (1.0 if at == 2 else -0.1)
        after = None if action or at == 2 else (eye[at + 1], both)
        learning.see(Step(state=eye[at], action=action, reward=reward, after=after))
    for _ in range(1500):
        learning.learn()
    with torch.no_grad():
        q = learning.values(torch.eye(3), torch.ones(3, 2, dtype=torch.bool))
    assert q[:, 0].tolist() == pytest.approx([0.62, 0.8, 1.0], abs=0.02)
    assert q[:, 1].tolist() == pytest.approx([0.3] * 3, abs=0.02)
    only_out = np.array([False, True])
    assert chosen(learning.values, list(eye), [both, only_out, both]) == [0, 1, 0]


def test_a_navigator_is_small_learns_and_keeps_to_what_is_allowed():
    source = engine()
    decode = bind("decode", {"piece": "rlot", "piece_tokens": 2, "episodes": 64, "max_steps": 4})
    fitted = decode.fit(source, pairs())
    assert fitted.weights < 3000 and all(np.isfinite(fitted.returns))
    for budget in (0, 9, 40, 120):
        for done, ask in zip(decode(source, asks(forward_tokens=budget), fitted), asks(), strict=True):
            assert 0 < len(done.segment.ids) <= ask.max_tokens
            assert not budget or done.account.spent <= budget
    for spec, words in (({"max_steps": 1}, "max_steps is 1"), ({"piece_tokens": 0}, "piece_tokens 0")):
        with pytest.raises(ValueError, match=words):
            bind("decode", {"piece": "rlot", **spec}).fit(source, pairs())
    with pytest.raises(ValueError, match="k_max is 0"):
        bind("decode", {"piece": "fr_ponder", "k_max": 0}).fit(source, pairs())
    with pytest.raises(ValueError, match="there is no layer 9"):
        bind("decode", {"piece": "fr_ponder", "layer": 9}).fit(source, pairs())
    with pytest.raises(ValueError, match="there is none: train one"):
        decode(engine(rewards=None), asks(), fitted)
