"""Weights of several wishes, sentence by sentence (dynamic_control)."""

from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest
import tiny
import torch

from synth.types import Message, PreferencePair, Sampling, seed_for
from tasks.evaluation.decoding import examples
from tasks.lab.decode_worlds import _WISHES, END, HIGH, LOW, _prompt, _taught, engine_of
from tasks.planning.pieces import bind
from training.decode import Ask, Engine, Example
from training.decode.dynamic_control import Controller, _Course, _gains, _replayed, _written, _learned
from training.rollout.torch_sampler import TorchSampler

V = tiny.Vocabulary(16)


def engine(**more):
    model = tiny.build(vocabulary=V, init_range=0.2)
    known = {"rewards": lambda rows: [float(np.mean(r % 2 == 0)) for r in rows]}
    text = lambda ids: "".join("." if i == 9 else chr(97 + i) for i in ids)  # noqa: E731
    return Engine(
        sampler=TorchSampler(model, 2), text=text, said=text, sampling=Sampling(max_tokens=12), **known | more
    )


def pairs(n=8, rated=True):
    rng = np.random.default_rng(5)
    marks = lambda: {"a": tuple(rng.random(2)), "b": tuple(rng.random(2))} if rated else {}  # noqa: E731
    return [
        Example(
            prompt=rng.integers(3, 16, 4),
            chosen=rng.integers(3, 16, 6),
            rejected=rng.integers(3, 16, 6),
            ratings=marks(),
        )
        for _ in range(n)
    ]


def asks(n=4, **more):
    return [Ask(prompt=p, seed=i, max_tokens=12, **more) for i, p in enumerate(tiny.ids(*[5] * n, below=16))]


def bound(**knobs):
    return bind("decode", {"piece": "dynamic_control", "steps": 2, **knobs})


@cache
def world(seed=101):
    """The world `wishes`, and pairs and questions of it: nothing of a test changes them."""
    source = engine_of(_WISHES, _taught(_WISHES, seed), np.zeros(0), seed)
    rng = np.random.default_rng(seed_for(seed, "test"))
    rated = []
    for _ in range(_WISHES.pairs):
        prompt = _prompt(rng)
        two = _WISHES.pair(rng, prompt, np.zeros(0))
        of = [_WISHES.rated(x) for x in two]
        rated.append(
            Example(prompt=prompt, chosen=two[0], rejected=two[1], ratings={d: (of[0][d], of[1][d]) for d in of[0]})
        )
    requests = [Ask(prompt=_prompt(rng), seed=i, max_tokens=_WISHES.tokens) for i in range(160)]
    return source, rated, requests


def test_more_weight_of_a_dimension_gives_more_of_it():
    source, rated, requests = world()
    vectors = bound(weights=["novelty: 0"]).fit(source, rated)  # they know no weights
    for name, kind, other in (("novelty", LOW, HIGH), ("feasibility", HIGH, LOW)):
        shares_by_weight = []
        for eps in (0, 1, 2, 3, 4, 5):
            decode = bound(weights=[f"{name}: {eps}"])
            ids = np.concatenate([d.segment.ids for d in decode(source, requests, vectors)])
            shares_by_weight.append((np.isin(ids, kind).mean(), np.isin(ids, other).mean()))
        shares = [s for s, _ in shares_by_weight]
        assert shares == sorted(shares) and len(set(shares)) == 6 and shares[-1] > 2 * shares[0]
        assert shares_by_weight[-1][1] < shares_by_weight[0][1], "they conflict"


@pytest.mark.slow
def test_a_weight_per_sentence_earns_a_tenth_more_than_any_static_one():
    source, rated, requests = world()
    worth = {}
    for controller in ("learned", "static"):
        decode = bind("decode", {"piece": "dynamic_control", "controller": controller})
        done = decode(source, requests, decode.fit(source, rated))
        ids = [d.segment.ids[d.segment.ids != END] for d in done]
        worth[controller] = np.mean(
            [_WISHES.wanted(x, a.prompt, np.zeros(0)) for x, a in zip(ids, requests, strict=True)]
        )
    assert worth["learned"] > 1.1 * worth["static"]


def test_the_credit_of_a_sentence_by_hand():
    """Rewards 0.2, 0.5, 0.4 of one, two and three parts: 0.2, 0.3, -0.1 are gained. With gamma 0.5 the last has -0.1, the second
    0.3 - 0.05 = 0.25, the first 0.2 + 0.125 = 0.325. Another answer has one part, of 0.7."""
    reward = {1: 0.2, 2: 0.5, 3: 0.4, 9: 0.7}
    part = lambda i: SimpleNamespace(ids=np.array([i]))  # noqa: E731
    ask = SimpleNamespace(prompt=np.zeros(0, dtype=np.int64))
    courses = [
        _Course(writing=SimpleNamespace(ask=ask, parts=[part(1), part(2), part(3)])),
        _Course(writing=SimpleNamespace(ask=ask, parts=[part(9)])),
    ]
    gains = _gains(engine(rewards=lambda rows: [reward[int(r[-1])] for r in rows]), courses, 0.5)
    assert gains.tolist() == [pytest.approx([0.325, 0.25, -0.1]), pytest.approx([0.7, 0.0, 0.0])]


def test_what_was_drawn_is_replayed_with_the_same_chances():
    source = engine()
    steers = bound(weights=["a: 0"]).fit(source, pairs())
    by = Controller(
        torch.randn(6, 2 * len(steers.vectors["a"]), generator=torch.Generator().manual_seed(0)), 2, 3, 8, 0
    )
    object.__setattr__(steers, "controller", by)
    grid = np.linspace(0, 5, 3)
    choose = _learned(steers, grid, 4, torch.Generator().manual_seed(1))
    courses = _written(source, asks(5), steers, choose, 0.2, 4, None)
    logp = _replayed(by, courses)
    for i, c in enumerate(courses):
        memory = by.memory(1)
        assert len(c.writing.parts) == len(c.taken) == len(c.eps)
        for s, (read, level, eps) in enumerate(zip(c.reads, c.taken, c.eps, strict=True)):
            scores, memory = by(read[None], memory)
            assert float(logp[i, s]) == pytest.approx(float(scores[0].gather(1, level[:, None]).sum()), abs=1e-5)
            assert eps == tuple(grid[level.numpy()])
    assert logp.requires_grad and len({tuple(t.tolist()) for c in courses for t in c.taken}) > 1


def test_sentences_end_and_their_weights_are_told():
    source = engine()
    fixed = bound(weights=["b: 2"], sentence_tokens=3)
    for done in fixed(source, asks(), fixed.fit(source, pairs())):
        assert set(e.partition(": ")[2] for e in done.account.events) == {"a 0, b 2"}
        assert len(done.account.events) >= len(done.segment.ids) / 3
        assert done.segment.sampling.stop_ids == () and done.segment.stop in ("end", "length")
    dots = bound(weights=["a: 0"], sentence_tokens=12)
    assert dots.fit(source, pairs()).ends == (9,)
    for done in dots(source, asks(20), dots.fit(source, pairs())):
        inside = int((done.segment.ids[:-1] == 9).sum())
        assert len(done.account.events) == inside + 1
    static = bound(controller="static", levels=2)
    fitted = static.fit(source, pairs())
    (done,) = static(engine(rewards=None), asks(1), fitted)
    assert len(fitted.static) == 2 and len({e.partition(": ")[2] for e in done.account.events}) == 1


def test_without_ratings_there_is_one_wish_and_what_cannot_be_is_refused():
    source = engine()
    assert list(bound().fit(source, pairs(rated=False)).vectors) == ["preferred"]
    assert list(bound(dims=["b"]).fit(source, pairs()).vectors) == ["b"]
    for knobs, words in (
        ({"dims": ["c"]}, "no pair rates all of c; the pairs rate a, b: name those in dims"),
        ({"weights": ["c: 1"]}, r"the weight 'c: 1': write .name: number., a number from 0 to eps_max \(5\), of a, b"),
        ({"weights": ["a: 6"]}, "the weight 'a: 6'"),
        ({"weights": ["a"]}, "the weight 'a'"),
        ({"layer": 9}, "there is no layer 9"),
        ({"levels": 1}, "levels 1"),
    ):
        with pytest.raises(ValueError, match=words):
            bound(**knobs).fit(source, pairs())
    alike = [Example(prompt=p.prompt, chosen=p.chosen, rejected=p.rejected, ratings={"a": (1, 1)}) for p in pairs()]
    with pytest.raises(ValueError, match="ratings of a give no direction"):
        bound().fit(source, alike)
    with pytest.raises(ValueError, match="there is none: train one"):
        bound().fit(engine(rewards=None), pairs())
    assert bound(weights=["a: 1"]).fit(engine(rewards=None), pairs()).controller is None
    small = Engine(sampler=TorchSampler(tiny.build(vocabulary=V, hidden=8), 2), text=source.text, said=str)
    with pytest.raises(ValueError, match="made with another model"):
        bound(weights=["a: 1"])(small, asks(1), bound(weights=["a: 1"]).fit(source, pairs()))


def test_a_rating_that_is_no_pair_of_numbers_is_refused():
    renderer = SimpleNamespace(prompt=lambda m: np.array([3]), turn=lambda t: np.array([4]))
    pair = lambda value: PreferencePair.make(  # noqa: E731
        prompt=[Message(role="user", content="q")],
        chosen="a",
        rejected="b",
        source="s",
        split="train",
        columns={"ratings": {"clear": value}},
    )
    assert examples([pair([2, 1.5])], renderer)[0].ratings == {"clear": (2.0, 1.5)}
    with pytest.raises(ValueError, match="rates 'clear' with .* a rating is .number of chosen, number of rejected."):
        examples([pair([1])], renderer)
