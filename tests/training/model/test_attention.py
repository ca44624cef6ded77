"""Packed and cached attention against transformers' own on single sequences, and against each other."""

import copy
import random
from functools import partial

import numpy as np
import pytest
import tiny
import torch
from transformers import AutoModelForCausalLM

from training.learner.learner import token_stats
from training.learner.pack import Row, pack
from training.model import kv_cache as cache_module
from training.model.attention import PackedRows
from training.model.native.cached import CachedLayers
from training.model.kv_cache import CachedRows, plain_partial
from training.model.kv_cache import partial as partial_attention
from training.model.model import head_weight, hidden_states

pytestmark = pytest.mark.usefixtures("either_way")

RAGGED = (5, 1, 17, 2, 2, 40, 9, 1, 33, 16, 3)


def packed_hidden(model, rows):
    """Hidden states of the rows end to end, cut into rows again."""
    stream = torch.from_numpy(np.concatenate(rows))
    position = torch.from_numpy(np.concatenate([np.arange(len(r)) for r in rows]))
    lengths = [len(r) for r in rows]
    return hidden_states(model, stream, position, PackedRows(lengths)).split(lengths)


def twin(model, kind):
    """The same weights under transformers' own attention `kind`."""
    # Else both would share one kind.
    other = AutoModelForCausalLM.from_config(copy.deepcopy(model.config), attn_implementation=kind)
    other.load_state_dict(model.state_dict())
    return other.eval()


@pytest.mark.parametrize("heads", [(4, 4), (4, 2), (4, 1)], ids=["mha", "gqa", "mqa"])
@pytest.mark.parametrize("kind", ["eager", "sdpa"])
def test_values_and_gradients_are_those_of_transformers(kind, heads):
    model = tiny.build(heads=heads[0], kv_heads=heads[1])
    theirs, rows = twin(model, kind), tiny.ids(*RAGGED)
    weights = [
        torch.randn(len(r), model.config.vocab_size, generator=torch.Generator().manual_seed(i))
        for i, r in enumerate(rows)
    ]
    ours = [h @ head_weight(model).T for h in packed_hidden(model, rows)]
    want = [theirs(input_ids=torch.from_numpy(r)[None]).logits[0] for r in rows]
    for a, b in zip(ours, want, strict=True):
        torch.testing.assert_close(torch.log_softmax(a, -1), torch.log_softmax(b, -1), atol=1e-5, rtol=1e-5)
    for logits in (ours, want):
        sum((torch.log_softmax(x, -1) * w).sum() for x, w in zip(logits, weights, strict=True)).backward()
    for (name, a), b in zip(model.named_parameters(), theirs.parameters(), strict=True):
        assert float((a.grad - b.grad).abs().max()) <= 1e-5 * float(b.grad.abs().max()), name


def test_packed_log_probs_are_those_of_each_row_alone():
    model, rows = tiny.build(), [r for r in tiny.ids(*RAGGED) if len(r) > 1]
    row = [Row(ids=r, trainable=np.ones(len(r), dtype=bool)) for r in rows]
    whole = token_stats(model, pack(row))
    for at, r in zip(np.cumsum([0, *(len(r) for r in rows)]), row, strict=False):
        alone = token_stats(model, pack([r]))
        for a, b in ((whole.logp, alone.logp), (whole.entropy, alone.entropy)):
            torch.testing.assert_close(a[at : at + len(r.ids)], b, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("changed", range(6))
def test_changing_a_row_leaves_the_others_as_they_were_to_the_bit(changed):
    model, rows = tiny.build(), tiny.ids(7, 7, 8, 30, 29, 3)
    before = packed_hidden(model, rows)
    rows[changed] = tiny.ids(len(rows[changed]), seed=1)[0]
    after = packed_hidden(model, rows)
    for i, (a, b) in enumerate(zip(before, after, strict=True)):
        assert torch.equal(a, b) == (i != changed)


@pytest.mark.parametrize("changed", range(6))
def test_no_gradient_flows_from_one_row_into_another(changed):
    model, rows = tiny.build(), tiny.ids(7, 7, 8, 30, 29, 3)
    embedded = []
    hook = model.get_input_embeddings().register_forward_hook(
        lambda m, i, out: embedded.append(out.requires_grad_()) or out
    )
    out = packed_hidden(model, rows)
    hook.remove()
    (g,) = torch.autograd.grad(out[changed].sum(), embedded[0])
    for i, part in enumerate(g[0].split([len(r) for r in rows])):
        assert bool((part != 0).any()) == (i == changed)


def test_a_token_sees_nothing_later_to_the_bit():
    model, (row,) = tiny.build(), tiny.ids(20)
    before = packed_hidden(model, [row])[0]
    row[12] = (row[12] + 1) % 300
    after = packed_hidden(model, [row])[0]
    assert torch.equal(before[:12], after[:12]) and not torch.equal(before[12:], after[12:])


@pytest.mark.parametrize("waste", [0.0, 0.2, 1.0])
def test_buckets_hold_every_token_once_and_waste_no_more_than_allowed(waste):
    draw = random.Random(3)
    for _ in range(50):
        lengths = [draw.choice((1, 2, 5, draw.randint(1, 300))) for _ in range(draw.randint(1, 60))]
        rows = PackedRows(lengths, waste=waste)
        total = sum(lengths)
        flat = torch.cat([index.reshape(-1) for index in rows.gather])
        assert torch.equal(flat[rows.scatter], torch.arange(total))
        assert len(set(rows.scatter.tolist())) == total and rows.longest == max(lengths)
        start = 0
        for index in rows.gather:
            real = int(((rows.scatter >= start) & (rows.scatter < start + index.numel())).sum())
            assert index.numel() <= (1 + waste) * real
            start += index.numel()


def test_equal_lengths_make_one_bucket():
    assert [tuple(i.shape) for i in PackedRows([9] * 7).gather] == [(7, 9)]


@pytest.mark.parametrize("compiled", [False, True], ids=["own forward", "compiled"])
def test_the_cache_gives_what_the_packed_pass_gives(compiled, either_way):
    """Prompts of different lengths, shared by rows; growth at different paces over several passes; rows that change
    places, and passes over some of them."""
    model = tiny.build()
    forward = CachedLayers.of(model) if compiled else partial(hidden_states, model)
    if forward is None:  # the model's own forward is what serves then
        assert either_way == "torch"
        return
    final = np.array([0, 0, 1, 2, 2])  # which prompt each row continues
    prompts = tiny.ids(4, 11, 1)
    cached = CachedRows(3)
    first = feed(forward, cached, prompts)
    cache = cached.share(final)
    seen = [([prompts[f]], [first[f]]) for f in final]  # ids fed and hidden states got, per slot
    for lengths in ((3, 1, 6, 2, 1), (1, 1, 1, 1, 1), (70, 2, 1, 9, 4)):
        grow(forward, cache, seen, tiny.ids(*lengths, seed=lengths[0]))
    cache.swap(np.array([0, 1]), np.array([4, 2]))
    seen = [seen[i] for i in (4, 2, 1, 3, 0)]
    for lo, hi, lengths in ((1, 4, (2, 3, 1)), (0, 2, (1, 1)), (0, 5, (1, 1, 1, 1, 1)), (4, 5, (1,))):
        cache.window(lo, hi)
        grow(forward, cache, seen[lo:hi], tiny.ids(*lengths, seed=lo + 9))
    rows = [np.concatenate(fed) for fed, _ in seen]
    assert cache.held.tolist() == [len(r) - len(fed[0]) for r, (fed, _) in zip(rows, seen, strict=True)]
    for (_, got), want in zip(seen, packed_hidden(model, rows), strict=True):
        logp = [torch.log_softmax(h @ head_weight(model).T, -1) for h in (torch.cat(got), want)]
        torch.testing.assert_close(*logp, atol=1e-5, rtol=1e-5)


def test_passes_that_know_nothing_of_how_far_rows_have_come_give_the_same():
    """What a CUDA graph replays, step by step on any device: a fixed number of columns, places counted up where they
    lie."""
    model = tiny.build()
    forward, prompts = partial(hidden_states, model), tiny.ids(4, 11)
    cached = CachedRows(2)
    feed(forward, cached, prompts)
    caches = [cached.share(np.array([0, 1, 1])) for _ in range(2)]
    for c in caches:
        feed(forward, c, tiny.ids(3, 1, 6))
    caches[1].reserve(64)
    for step in range(5):
        token = torch.tensor([[step], [step + 7], [3]])
        plain, fixed = caches
        with torch.no_grad():
            want = forward(token, plain.begin(), plain)
            plain.advance()
            if step == 1:  # the first pass made room
                fixed.fix(64)
            got = forward(token, fixed.begin(), fixed)
        if step == 0:
            fixed.advance()
        else:
            fixed.move()
            fixed.count()
        torch.testing.assert_close(got, want, atol=1e-5, rtol=1e-5)
    assert caches[0].held.tolist() == caches[1].held.tolist() == [8, 6, 11]


def grow(forward, cache, seen, new):
    for (fed, got), x, h in zip(seen, new, feed(forward, cache, new), strict=True):
        fed.append(x)
        got.append(h)


def feed(forward, cache, new):
    ids = torch.full((len(new), max(map(len, new))), 7)  # padding is written too, and must never be seen
    for i, x in enumerate(new):
        ids[i, : len(x)] = torch.from_numpy(x)
    lengths = np.array([len(x) for x in new])
    with torch.no_grad():
        hidden = forward(ids, cache.begin(1 if (lengths == 1).all() else lengths), cache)
    cache.advance()
    return [h[: len(x)] for h, x in zip(hidden, new, strict=True)]


def test_a_prompt_is_read_once_however_many_rows_share_it(monkeypatch):
    """Of 12 rows of three prompts no tensor of keys is larger than that of the three, or of what the rows hold of their
    own."""
    model, sizes = tiny.build(), []
    forward = partial(hidden_states, model)
    monkeypatch.setattr(
        cache_module,
        "partial",
        lambda q, k, *rest: sizes.append((k.shape[0], k.shape[2])) or partial_attention(q, k, *rest),
    )
    cached = CachedRows(3)
    feed(forward, cached, tiny.ids(50, 50, 50))
    feed(forward, cached.share(np.repeat(np.arange(3), 4)), tiny.ids(*[1] * 12))
    assert set(sizes) == {(12, 1), (3, 50)}


@pytest.mark.parametrize("shape", [(3, 2, 4, 1), (2, 2, 6, 5)])
def test_two_parts_put_together_are_the_whole_on_every_device(shape):
    """`partial` against softmax in float64, with a mask, as a CPU computes it and as other devices do."""
    rng = torch.Generator().manual_seed(0)
    b, g, q, k = shape
    x, y, z = (torch.randn(b, g, n, 8, generator=rng) for n in (q, k + 3, k + 3))
    mask = torch.zeros(b, 1, q, k + 3).masked_fill_(torch.rand(b, 1, q, k + 3, generator=rng) < 0.3, -torch.inf)
    mask[..., 0] = 0
    s = (x.double() @ y.double().transpose(-1, -2)) * 0.3 + mask
    for out, lse in (partial_attention(x, y, z, 0.3, mask), plain_partial(x, y, z, 0.3, mask)):
        torch.testing.assert_close(out, (s.softmax(-1) @ z.double()).float(), atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(lse, s.logsumexp(-1).float(), atol=1e-5, rtol=1e-5)


def test_no_attention_mask_reaches_the_layers(monkeypatch):
    model, seen = tiny.build(), []
    attend = PackedRows.attend
    monkeypatch.setattr(PackedRows, "attend", lambda self, *args: seen.append(args) or attend(self, *args))
    layer = model.model.layers[0].self_attn
    layer.register_forward_pre_hook(lambda m, args, kwargs: seen.append(kwargs["attention_mask"]), with_kwargs=True)
    packed_hidden(model, tiny.ids(3, 4))
    assert seen[0] is None and len(seen) == 1 + len(model.model.layers)


def test_attention_that_is_not_ours_is_recompiled():
    model = tiny.build()
    row = torch.arange(6)
    with pytest.raises(ValueError, match="needs rows=PackedRows"):
        model(input_ids=row[None])
    attention = model.model.layers[0].self_attn
    attention.sliding_window = 5
    with pytest.raises(ValueError, match="6 tokens and this model looks back 5"):
        hidden_states(model, row, row, PackedRows([6]))
    hidden_states(model, row[:5], row[:5], PackedRows([5]))
