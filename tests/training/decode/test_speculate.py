"""Speculation is exact: the greedy answer token by token, and the model's own distribution, whatever is drafted."""

import numpy as np
import pytest
import tiny
import torch
from scipy.stats import chi2

from synth.types import Sampling
from tasks.planning.pieces import bind
from training.decode import Ask, Engine, Example
from training.decode._drafts import drawn
from training.decode.speculate import _checked
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
    asked = [Ask(prompt=rng.integers(3, 16, 4), seed=i, max_tokens=12) for i in range(n)]
    done = bind("decode", {"piece": "sample"})(source, asked, None)
    return [
        Example(prompt=a.prompt, chosen=d.segment.ids, rejected=d.segment.ids) for a, d in zip(asked, done, strict=True)
    ]


def asks(n, **more):
    return [Ask(prompt=p, seed=i, max_tokens=12, **more) for i, p in enumerate(tiny.ids(*[5] * n, below=16))]


def speculating(source, **knobs):
    decode = bind("decode", {"piece": "speculate", **knobs})
    fitted = decode.fit(source, pairs(source))
    return lambda asked: decode(source, asked, fitted)


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


def statistic(counts, p):
    """Chi-square of counts [V] under p [V], and its bound at 1 in 1,000."""
    want = p * counts.sum()
    at = want > 0
    return float(((counts - want)[at] ** 2 / want[at]).sum()), float(chi2.ppf(0.999, at.sum() - 1))


def test_a_hundred_thousand_draws_have_the_distribution_of_the_target():
    rng = np.random.default_rng(0)
    p, q = (torch.softmax(torch.from_numpy(rng.normal(size=12) * s), 0) for s in (1.0, 1.5))
    counts, wrong, n = np.zeros(12), np.zeros(12), 100_000
    hot, accepted = Sampling(), 0
    for _ in range(n):
        token = drawn(q, hot, rng)
        wrong[token] += 1
        token, same = _checked(p, q, token, hot, rng)
        counts[token] += 1
        accepted += same
    value, bound = statistic(counts, p.numpy())
    assert value < bound
    assert statistic(wrong, p.numpy())[0] > 10 * bound, "the drafts alone have not"
    assert accepted / n == pytest.approx(float(torch.minimum(p, q).sum()), abs=0.01)


def test_the_second_token_of_a_model_has_its_distribution_too():
    """The first drafted token of an answer, which the model has checked, beside its exact marginal."""
    source = engine()
    prompt = asks(1)[0].prompt
    fast = speculating(source, depth=2, steps=60)
    done = fast([Ask(prompt=prompt, seed=i, max_tokens=2) for i in range(4000)])
    first = torch.tensor(source.logp([(prompt, np.array([v])) for v in range(16)])).exp().numpy()
    two = source.logp([(prompt, np.array([v, w])) for v in range(16) for w in range(16)])
    counts = np.zeros(17)
    for d in done:
        counts[d.segment.ids[1] if len(d.segment.ids) > 1 else 16] += 1
    joint = np.exp(two).reshape(16, 16)
    others = 1 - first.sum()  # a head may have more rows than the vocabulary
    want = np.append(joint[np.arange(16) != 2].sum(0), first[2] + max(others, 0))
    value, bound = statistic(counts, want / want.sum())
    assert others < 1e-3 and value < bound


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
