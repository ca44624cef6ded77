"""Speculation is exact: the greedy answer token by token, and the model's own distribution, whatever is drafted."""

import numpy as np
import pytest
import tiny
import torch

from benchmarks.speculation import ASKED, DRAFTERS, deviation, own_answers, remembering, small_engine, statistic, under
from synth.types import Sampling
from tasks.planning.pieces import bind
from training.decode import Ask, Engine, Example
from training.decode._drafts import drawn
from training.decode.speculate import checked
from training.model.model import train_tokenizer
from training.model.render import Renderer
from training.rollout.torch_sampler import TorchSampler

V = tiny.Vocabulary(16)


def engine(**sampling):
    model = tiny.build(vocabulary=V, init_range=0.2)
    return Engine(sampler=TorchSampler(model, 2), text=str, said=str, sampling=Sampling(max_tokens=12, **sampling))


def pairs(source, n=40):
    """What the model itself says, so that drafts can be learned."""
    rng = np.random.default_rng(5)
    requests = [Ask(prompt=rng.integers(3, 16, 4), seed=i, max_tokens=12) for i in range(n)]
    done = bind("decode", {"piece": "sample"})(source, requests, None)
    return [
        Example(prompt=a.prompt, chosen=d.segment.ids, rejected=d.segment.ids)
        for a, d in zip(requests, done, strict=True)
    ]


def asks(n, **more):
    return [Ask(prompt=p, seed=i, max_tokens=12, **more) for i, p in enumerate(tiny.ids(*[5] * n, below=16))]


def speculating(source, **knobs):
    decode = bind("decode", {"piece": "speculate", **knobs})
    fitted = decode.fit(source, pairs(source))
    return lambda requests: decode(source, requests, fitted)


def kept(done):
    words = [d.account.events[0].split() for d in done]
    return sum(int(w[5]) for w in words) / max(sum(int(w[7]) for w in words), 1), sum(int(w[3]) for w in words)


@pytest.mark.parametrize("draft", ["learned", "uniform"])
def test_greedy_answers_are_the_models_token_by_token(draft):
    source = engine()
    plain = bind("decode", {"piece": "greedy"})(source, asks(20), None)
    fast = speculating(source, draft=draft, temperature=0.0)(asks(20))
    for a, b in zip(plain, fast, strict=True):
        assert a.segment.ids.tolist() == b.segment.ids.tolist() and a.segment.stop == b.segment.stop
        assert b.segment.logp == pytest.approx(a.segment.logp, abs=1e-4)
        assert b.segment.entropy == pytest.approx(a.segment.entropy, abs=1e-4)


def test_a_hundred_thousand_draws_have_the_distribution_of_the_target():
    rng = np.random.default_rng(0)
    p, q = (torch.softmax(torch.from_numpy(rng.normal(size=12) * s), 0) for s in (1.0, 1.5))
    counts, wrong, n = np.zeros(12), np.zeros(12), 100_000
    hot, accepted = Sampling(), 0
    for _ in range(n):
        token = drawn(q, hot, rng)
        wrong[token] += 1
        token, same = checked(p, q, token, hot, rng)
        counts[token] += 1
        accepted += same
    value, bound = statistic(counts, p.numpy())
    assert value < bound
    assert statistic(wrong, p.numpy())[0] > 10 * bound, "the drafts alone have not"
    assert accepted / n == pytest.approx(float(torch.minimum(p, q).sum()), abs=0.01)


@pytest.mark.parametrize("name", sorted(DRAFTERS))
def test_drafted_answers_have_the_distribution_of_the_model(name):
    """The smaller version of `make bench-speculation --exact`, which counts 100,000 answers of each."""
    source, knobs = small_engine(), DRAFTERS[name]
    plain = bind("decode", knobs)
    requests = [Ask(prompt=ASKED, seed=i, max_tokens=4) for i in range(30)]
    fitted = plain.fit(source, own_answers(source))
    memory = remembering(source)
    known = [d.segment.ids.tolist() for d in plain(memory, requests, fitted)]
    assert known == [d.segment.ids.tolist() for d in plain(memory, requests, fitted)]
    value, bound, _ = deviation(memory, plain, fitted, 300 if knobs["piece"] == "draft_tree" else 2000)
    assert known == [d.segment.ids.tolist() for d in plain(source, requests, fitted)], "as without the memory"
    assert value < bound


@pytest.mark.parametrize("rule", ["keep all", "keep none, draw from the rest", "draw from the model, not the rest"])
def test_a_wrong_rule_would_be_seen(rule):
    def wrong(p, q, token, sampling, rng):
        keep = rule == "keep all" or (rule.startswith("draw") and rng.random() * float(q[token]) < float(p[token]))
        rest = p if rule.startswith("draw") else (p - q).clamp(min=0)
        return (token, True) if keep else (drawn(rest, sampling, rng), False)

    source, decode = small_engine(), bind("decode", DRAFTERS["speculate, uniform drafts"])
    fitted = decode.fit(source, own_answers(source))
    value, bound, _ = deviation(remembering(source), under(wrong), fitted, 2000)
    assert value > bound


def test_a_learned_draft_saves_passes_over_a_uniform_one():
    source = engine(temperature=0.4)
    learned, few = kept(speculating(source)(asks(60)))
    uniform, many = kept(speculating(source, draft="uniform")(asks(60)))
    assert learned > 1.5 * uniform and few < many


def test_concurrency_bounds_the_drafts_and_bad_knobs_are_refused():
    source = engine()
    done = speculating(source, c_peak=8)(asks(8))
    assert all(d.account.events[0].endswith("0 of 0 drafts kept") for d in done), "8 asks: one token a pass each"
    assert kept(speculating(source, c_peak=64)(asks(8)))[0] > 0
    with pytest.raises(ValueError, match="depth is 0"):
        speculating(source, depth=0)(asks(1))
    other = bind("decode", {"piece": "speculate"})
    fitted = other.fit(source, pairs(source))
    small = Engine(sampler=TorchSampler(tiny.build(vocabulary=tiny.Vocabulary(24), hidden=16), 2), text=str, said=str)
    with pytest.raises(ValueError, match="made with another model"):
        other(small, asks(1), fitted)


def test_a_drafter_of_a_model_with_other_words_is_refused_though_the_shapes_agree():
    source = Engine(sampler=TorchSampler(tiny.build(), 2, renderer=Renderer(tiny.tokenizer())), text=str, said=str)
    words = sorted(tiny.TEXTS, key=len) * 2
    other = train_tokenizer([w.replace("a", "o") for w in words], vocab_size=len(tiny.tokenizer()))
    same = Engine(sampler=TorchSampler(tiny.build(), 2, renderer=Renderer(other)), text=str, said=str)
    for name in ("speculate", "draft_tree"):
        decode = bind("decode", {"piece": name, "steps": 2})
        fitted = decode.fit(source, pairs(source, 3))
        assert decode(source, asks(1), fitted)
        with pytest.raises(ValueError, match="gives other ids to the same text: make it anew"):
            decode(same, asks(1), fitted)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_drafts_of_few_words_are_as_exact(temperature):
    """A head that drafts among six ids of sixteen: the greedy answer, and a seed's tokens with and without drafts."""
    source = engine(temperature=temperature)
    if temperature == 0:
        plain = bind("decode", {"piece": "greedy"})(source, asks(10), None)
        for name in ("speculate", "draft_tree"):
            decode = bind("decode", {"piece": name, "words": 6, "steps": 60, "temperature": 0.0})
            fitted = decode.fit(source, pairs(source))
            assert len(fitted.few) == 6 and fitted.weight.shape[0] == 6
            fast = decode(source, asks(10), fitted)
            assert [d.segment.ids.tolist() for d in fast] == [d.segment.ids.tolist() for d in plain]
            assert any(d.account.passes < len(d.segment.ids) - 1 for d in fast), "some are kept"
    tree = bind("decode", {"piece": "draft_tree", "words": 6, "steps": 60, "gto": 2, "omega": 1.0})
    drafted = tree(source, asks(10), tree.fit(source, pairs(source)))
    none = bind("decode", {"piece": "draft_tree", "c_peak": 1, "steps": 2})
    alone = none(source, asks(10), none.fit(source, pairs(source)))
    assert [d.segment.ids.tolist() for d in drafted] == [d.segment.ids.tolist() for d in alone]
