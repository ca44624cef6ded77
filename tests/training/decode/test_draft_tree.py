"""Trees of drafts are exact: the same tokens as without drafts, whatever is drafted; and the numbers of GTO by hand."""

import numpy as np
import pytest
import tiny
import torch
from test_speculate import V, asks, engine, pairs

from tasks.planning.pieces import bind
from training.decode import Engine
from training.decode.draft_tree import Tree, budget, drafted, expected, policy_loss, tree_reward
from training.model.kv_cache import CachedRows
from training.model.model import hidden_states
from training.rollout.torch_sampler import TorchSampler


def treeing(source, **knobs):
    decode = bind("decode", {"piece": "draft_tree", "steps": 60, **knobs})
    fitted = decode.fit(source, pairs(source))
    return lambda requests: decode(source, requests, fitted)


def passes(done):
    words = [d.account.events[0].split() for d in done]
    return sum(int(w[0]) for w in words) / sum(int(w[3]) for w in words)


def test_greedy_answers_are_the_models_token_by_token():
    source = engine()
    plain = bind("decode", {"piece": "greedy"})(source, asks(20), None)
    for knobs in ({}, {"nodes": 40, "top_k": 6}, {"top_k": 1}):
        fast = treeing(source, temperature=0.0, **knobs)(asks(20))
        for a, b in zip(plain, fast, strict=True):
            assert a.segment.ids.tolist() == b.segment.ids.tolist() and a.segment.stop == b.segment.stop
            assert b.segment.logp == pytest.approx(a.segment.logp, abs=1e-4)
            assert b.segment.entropy == pytest.approx(a.segment.entropy, abs=1e-4)


def test_a_seed_draws_the_same_tokens_with_and_without_drafts_in_fewer_passes():
    source = engine(temperature=0.4)
    none = treeing(source, c_peak=1)(asks(30))
    chain = treeing(source, top_k=1, nodes=6)(asks(30))
    tree = treeing(source, nodes=24)(asks(30))
    for a, b, c in zip(none, chain, tree, strict=True):
        assert a.segment.ids.tolist() == b.segment.ids.tolist() == c.segment.ids.tolist()
        assert c.segment.logp == pytest.approx(a.segment.logp, abs=1e-4)
    assert passes(none) < passes(chain) < passes(tree)
    logp = source.logp([(a.prompt, d.segment.ids) for a, d in zip(asks(30), tree, strict=True)])
    at_one = treeing(engine(temperature=1.0), nodes=24)(asks(5))
    want = source.logp([(a.prompt, d.segment.ids) for a, d in zip(asks(5), at_one, strict=True)])
    assert [d.segment.logp.sum() for d in at_one] == pytest.approx(want.tolist(), abs=1e-3) and len(logp) == 30


def test_a_pass_over_a_tree_gives_each_token_what_its_own_path_gives():
    model = tiny.build(vocabulary=V, init_range=0.2)
    prompt, ids, parents = [5, 6, 7, 8], [9, 10, 11, 12, 13, 14], [-1, 0, 0, 1, 2, 3]

    def whole(row):
        cache = CachedRows(1)
        with torch.no_grad():
            return hidden_states(model, torch.tensor([row]), cache.begin(len(row)), cache)[0, -1]

    cache = CachedRows(1)
    with torch.no_grad():
        hidden_states(model, torch.tensor([prompt]), cache.begin(4), cache)
        cache.advance()
        out = hidden_states(model, torch.tensor([ids]), cache.branch(np.array(parents)), cache)[0]
    for i in range(len(ids)):
        path, at = [], i
        while at >= 0:
            path.insert(0, ids[at])
            at = parents[at]
        assert torch.allclose(out[i], whole(prompt + path), atol=1e-5)
    cache.follow([0, 2, 4])
    with torch.no_grad():
        after = hidden_states(model, torch.tensor([[15]]), cache.begin(1), cache)[0, -1]
    assert cache.held[0] == 7 and torch.allclose(after, whole([*prompt, 9, 11, 13, 15]), atol=1e-5)
    with pytest.raises(ValueError, match="each is a token before it"):
        cache.branch(np.array([1, -1]))
    with pytest.raises(ValueError, match="choose a window of one row"):
        CachedRows(2).branch(np.array([-1]))


def test_the_numbers_of_gto_by_hand():
    """Chances (0.9, 0.8) and (0.5, 0.5): L = 0.9 + 0.72 and 0.5 + 0.25; r = log(e^1.62 + e^0.75)."""
    lengths = [float(np.cumprod(p).sum()) for p in ((0.9, 0.8), (0.5, 0.5))]
    assert lengths == pytest.approx([1.62, 0.75]) and tree_reward(lengths, 1.0) == pytest.approx(1.970, abs=5e-4)
    # R = (1, 3): A = (-1, 1). s = (1.5, 1.5), clipped at 1.2: min(-1.5, -1.2) = -1.5, min(1.5, 1.2) = 1.2.
    value = policy_loss(torch.tensor([1.5, 1.5], dtype=torch.float64), torch.tensor([1.0, 3.0]), 0.2)
    assert float(value) == pytest.approx(0.15, abs=1e-5)
    tree = Tree(ids=[4, 5, 6, 7], parents=[-1, -1, 0, 2], logp=[0.0] * 4)
    assert tree.leaves() == [[1], [0, 2, 3]]


def test_expected_lengths_are_those_of_draws():
    source = engine()
    decode = bind("decode", {"piece": "draft_tree", "steps": 60})
    head = decode.fit(source, pairs(source))
    row = np.array([5, 6, 7, 8])
    cache = CachedRows(1)
    with torch.no_grad():
        feature = hidden_states(source.sampler.model, torch.from_numpy(row)[None], cache.begin(4), cache)[0, -1]
        cache.advance()
        tree = drafted(head, feature, 9, 3, 2, 5, source.sampling)
    branches = tree.leaves()
    lengths = expected(source, cache, 9, tree, branches, source.sampling)
    assert len(tree.ids) == 5 and cache.held[0] == 4
    p, prefix = [], np.append(row, 9)
    branch = [tree.ids[i] for i in branches[0]]
    for i, token in enumerate(branch):
        p.append(float(np.exp(source.logp([(np.append(prefix, branch[:i]).astype(np.int64), np.array([token]))])[0])))
    assert lengths[0] == pytest.approx(float(np.cumprod(p).sum()), rel=1e-3)
    rng = np.random.default_rng(0)
    draws = rng.random((100_000, len(p))) < np.array(p)
    assert np.cumprod(draws, 1).sum(1).mean() == pytest.approx(lengths[0], rel=0.03)


def test_concurrency_sets_the_budget_and_an_adaptive_one_is_never_slower():
    assert [budget(256, b, 63) for b in (1, 4, 8, 64, 256, 1000)] == [63, 63, 31, 3, 0, 0] and budget(0, 999, 16) == 16
    # A pass costs max(1, rows * tokens / c_peak); a drafted chain of n with 0.8 each is accepted 0.8 + 0.8^2 + ...
    speed = lambda b, n: (1 + sum(0.8**i for i in range(1, n + 1))) / max(1.0, b * (n + 1) / 256) * max(1.0, b / 256)  # noqa: E731
    rows = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]
    ours = [speed(b, budget(256, b, 63)) for b in rows]
    best = [max(speed(b, n) for n in range(64)) for b in rows]
    assert all(a >= 1 and a >= 0.95 * b for a, b in zip(ours, best, strict=True))
    assert speed(128, 15) < 1


def test_gto_and_online_steps_change_the_head_and_bad_knobs_are_refused():
    source = engine()
    decode = bind("decode", {"piece": "draft_tree", "steps": 20, "gto": 3, "omega": 1.0, "online": 2})
    head = decode.fit(source, pairs(source))
    plain = bind("decode", {"piece": "draft_tree", "steps": 20, "gto": 3, "omega": 0.0}).fit(source, pairs(source))
    names = dict(plain.net.named_parameters())
    assert any(not torch.equal(p, names[n]) for n, p in head.net.named_parameters())
    before = [p.clone() for p in head.net.parameters()]
    decode(source, asks(3), head)
    assert any(not torch.equal(a, b) for a, b in zip(before, head.net.parameters(), strict=True))
    with pytest.raises(ValueError, match="1 or more of each"):
        bind("decode", {"piece": "draft_tree", "nodes": 0})(source, asks(1), head)
    small = Engine(sampler=TorchSampler(tiny.build(vocabulary=tiny.Vocabulary(24), hidden=16), 2), text=str, said=str)
    with pytest.raises(ValueError, match="made with another model"):
        decode(small, asks(1), head)
