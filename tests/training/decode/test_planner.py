"""An order of sub-tasks that is learned (rlap)."""

import numpy as np
import pytest
import tiny

from synth.types import Sampling
from tasks.planning.pieces import bind
from training.decode import Ask, Engine, Example
from training.rollout.torch_sampler import TorchSampler
from training.types import Segment

V = tiny.Vocabulary(16)
TASKS = ["3", "4"]


class Told:
    """Says 9 behind the sub-task that fits (3 first where the question begins with 5, else 4 first), 8 behind another; the
    prompts that it was given are kept."""

    version = 0

    def __init__(self):
        self.model, self.prompts = tiny.build(vocabulary=V, init_range=0.2), []

    def open(self, prompts, seeds):
        told = self
        told.prompts += [p.tolist() for p in prompts]

        class Session:
            def generate(self, sampling):
                return [told.turn(p) for p in prompts]

        return Session()

    def turn(self, p):
        if len(p) < 4:
            right = (p[2] == 3) == (p[0] == 5)
        else:
            right = p[-1] == 9
        ids = np.array([9 if right else 8, 2])
        return Segment(ids=ids, role="model", logp=np.zeros(2, dtype=np.float32), stop="end")


def engine(sampler, **more):
    known = {
        "rewards": lambda rows: [float((r == 9).sum()) for r in rows],
        "ids": lambda text: np.array([int(text)]),
    }
    return Engine(sampler=sampler, text=str, said=str, sampling=Sampling(max_tokens=8), **known | more)


def ask(first, **more):
    return Ask(prompt=np.array([first, 7]), seed=first, max_tokens=8, **more)


def test_the_order_is_learned_for_each_question():
    source = engine(Told())
    pairs = [Example(prompt=np.array([p, 7]), chosen=np.zeros(0), rejected=np.zeros(0)) for p in (5, 6)]
    decode = bind("decode", {"piece": "rlap", "tasks": TASKS, "piece_tokens": 2, "episodes": 320})
    fitted = decode.fit(source, pairs)
    assert fitted.returns[1] > fitted.returns[0]
    told = Told()
    done = decode(engine(told, rewards=None), [ask(5), ask(6)], fitted)
    # The sub-task is read behind the question and is no part of the answer; a result loses its end token.
    assert told.prompts == [[5, 7, 3], [6, 7, 4], [5, 7, 4, 9], [6, 7, 3, 9], [5, 7, 9, 9], [6, 7, 9, 9]]
    assert [d.segment.ids.tolist() for d in done] == [[9, 9, 9, 2]] * 2
    assert done[0].account.tokens == {"policy": (3 + 2) + (4 + 2) + (4 + 2)}


def test_the_controls_learn_nothing_and_differ_in_the_order():
    for order, firsts in (("listed", {3}), ("random", {3, 4})):
        decode = bind("decode", {"piece": "rlap", "tasks": TASKS, "order": order})
        told = Told()
        assert decode.fit(engine(told), []) is None
        decode(engine(told), [ask(5 + i) for i in range(8)], None)
        assert {p[2] for p in told.prompts if len(p) == 3} == firsts


def test_what_is_refused():
    for spec in ({"tasks": ["3"]}, {"tasks": ["3", "3"]}, {"piece_tokens": 0}):
        with pytest.raises(ValueError, match="two sub-tasks or more, each of them once"):
            bind("decode", {"piece": "rlap", **spec}).fit(engine(Told()), [])
    small = bind("decode", {"piece": "rlap", "tasks": TASKS, "episodes": 0})
    fitted = small.fit(engine(Told()), [])
    with pytest.raises(ValueError, match="made for 2 sub-tasks .* there are 3 .* fit it anew"):
        bind("decode", {"piece": "rlap"})(engine(Told()), [ask(5)], fitted)
    with pytest.raises(ValueError, match="there is none: train one"):
        more = bind("decode", {"piece": "rlap", "episodes": 1})
        pairs = [Example(prompt=np.array([5, 7]), chosen=np.zeros(0), rejected=np.zeros(0))]
        more.fit(engine(TorchSampler(tiny.build(vocabulary=V), 2), rewards=None, ids=None), pairs)
