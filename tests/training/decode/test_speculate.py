"""Speculation is exact: the greedy answer token by token, and the model's own distribution, whatever is drafted."""

from collections import Counter

import numpy as np
import pytest
import tiny
import torch
from scipy.stats import chi2

from synth.types import Sampling
from tasks.planning.pieces import bind
from training.decode import Ask, Engine, Example
from training.decode._drafts import Answer, drawn
from training.decode.speculate import _checked
from training.model.kv_cache import CachedRows
from training.model.model import hidden_states, train_tokenizer
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


class Known:
    """In the place of a cache of keys and values: the ids that were read; what the model says of them is computed once."""

    def __init__(self, model, memo):
        self.model, self.memo, self.row, self.device = model, memo, [], torch.device("cpu")
        self.held = np.zeros(1, dtype=np.int64)

    def window(self, lo, hi):
        pass

    def features(self, row):
        if row not in self.memo:
            cache = CachedRows(1)
            self.memo[row] = hidden_states(self.model, torch.tensor([row]), cache.begin(len(row)), cache)[0, -1]
        return self.memo[row]

    def read(self, ids, parents):
        before = self.row[: int(self.held[0])]
        parents = range(-1, len(ids) - 1) if parents is None else parents
        self.new = [int(i) for i in ids]
        paths = []
        for i, parent in zip(self.new, parents, strict=True):
            paths.append([*(paths[parent] if parent >= 0 else []), i])
        self.row = [*before, *self.new]
        self.before, self.held[0] = before, len(self.row)
        return torch.stack([self.features((*before, *path)) for path in paths])

    def follow(self, path):
        self.row = [*self.before, *(self.new[i] for i in path)]
        self.held[0] = len(self.row)


def remembering(monkeypatch, source):
    """Answers read from a memory of what the model says behind each row of ids: the same numbers, computed once."""
    memo, said = {}, {}
    chances = Answer.chances

    def read(self, ids, parents=None):
        self.account.charge("policy", len(ids))
        if not isinstance(self.cache, Known):
            self.cache = Known(source.sampler.model, memo)
        return self.cache.read(ids, parents)

    def remembered(self, features):
        keys = [f.tobytes() for f in features.numpy()]
        for key, f in zip(keys, features, strict=True):
            if key not in said:
                (said[key],) = chances(self, f[None])
        return [said[key] for key in keys]

    monkeypatch.setattr(Answer, "read", read)
    monkeypatch.setattr(Answer, "chances", remembered)


FEW = tiny.Vocabulary(6)
ASKED = np.array([4, 3, 5, 5])


def deviation(source, decode, n):
    """Chi-square of the first four tokens of n answers to one prompt under the model's own distribution of them, and its
    bound; shortest first, an answer that ended is one outcome."""
    fitted = decode.fit(source, pairs_of(source))
    done = decode(source, [Ask(prompt=ASKED, seed=i, max_tokens=4) for i in range(n)], fitted)
    said, open_ = {}, [((), 1.0)]
    words = len(source.read_out()[1])
    for length in range(4):
        rows = [(*row, v) for row, _ in open_ for v in range(words)]
        each = np.exp(source.logp([(ASKED, np.array(row)) for row in rows])).reshape(len(open_), words)
        cut = np.where(each >= np.sort(each, 1)[:, -4:-3], each, 0)  # top_k
        behind = np.array([[p] for _, p in open_]) * cut / cut.sum(1, keepdims=True)
        now = {row: p for row, p in zip(rows, behind.ravel(), strict=True) if p > 0}
        said |= {row: p for row, p in now.items() if row[-1] == 2 or length == 3}
        open_ = [(row, p) for row, p in now.items() if row[-1] != 2]
    counts = Counter(tuple(d.segment.ids.tolist()) for d in done)
    often = [row for row, p in said.items() if p * n >= 5]
    want = np.array([said[row] for row in often])
    got = np.array([counts[row] for row in often], dtype=float)
    return statistic(np.append(got, n - got.sum()), np.append(want, max(1 - want.sum(), 0)))


def pairs_of(source):
    rng = np.random.default_rng(5)
    asked = [Ask(prompt=rng.integers(3, 6, 4), seed=i, max_tokens=8) for i in range(20)]
    done = bind("decode", {"piece": "sample"})(source, asked, None)
    return [
        Example(prompt=a.prompt, chosen=d.segment.ids, rejected=d.segment.ids) for a, d in zip(asked, done, strict=True)
    ]


def drafting_engine():
    model = tiny.build(vocabulary=FEW, init_range=0.2)
    return Engine(sampler=TorchSampler(model, 2), text=str, said=str, sampling=Sampling(max_tokens=4, top_k=4))


DRAFTERS = [
    {"piece": "speculate", "depth": 2, "steps": 60},
    {"piece": "speculate", "depth": 2, "draft": "uniform"},
    {"piece": "draft_tree", "depth": 2, "nodes": 6, "top_k": 2, "steps": 60},
]


@pytest.mark.parametrize("knobs", DRAFTERS, ids=["chain", "uniform", "tree"])
def test_drafted_answers_have_the_distribution_of_the_model(monkeypatch, knobs):
    source = drafting_engine()
    plain = bind("decode", knobs)
    asked = [Ask(prompt=ASKED, seed=i, max_tokens=4) for i in range(30)]
    fitted = plain.fit(source, pairs_of(source))
    with monkeypatch.context() as patch:
        remembering(patch, source)
        known = [d.segment.ids.tolist() for d in plain(source, asked, fitted)]
        assert known == [d.segment.ids.tolist() for d in plain(source, asked, fitted)]
        value, bound = deviation(source, plain, 300 if knobs["piece"] == "draft_tree" else 2000)
    assert known == [d.segment.ids.tolist() for d in plain(source, asked, fitted)], "as without the memory"
    assert value < bound


@pytest.mark.parametrize("rule", ["keep all", "keep none, draw from the rest", "draw from the model, not the rest"])
def test_a_wrong_rule_would_be_seen(monkeypatch, rule):
    def wrong(p, q, token, sampling, rng):
        keep = rule == "keep all" or (rule.startswith("draw") and rng.random() * float(q[token]) < float(p[token]))
        rest = p if rule.startswith("draw") else (p - q).clamp(min=0)
        return (token, True) if keep else (drawn(rest, sampling, rng), False)

    source = drafting_engine()
    remembering(monkeypatch, source)
    monkeypatch.setattr("training.decode.speculate._checked", wrong)
    value, bound = deviation(source, bind("decode", DRAFTERS[1]), 2000)
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
