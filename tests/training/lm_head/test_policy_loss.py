"""The LM head with options and the loss in three products, against the float64 definition, values and gradients."""

import weakref

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from training.lm_head import fused_loss, logprob
from training.lm_head.fused_loss import fused_policy_loss, plan
from training.lm_head.logprob import Asked, Head, dense_stats, fused_stats
from training.types import TokenStats

N, D, V, LENGTHS = 41, 12, 67, [7, 1, 12, 9, 12]


def inputs(dtype=torch.float32, scale=1.0, bias=True, v=V, n=N):
    g = torch.Generator().manual_seed(3)
    hidden = (torch.randn(n, D, generator=g) * scale).to(dtype).requires_grad_()
    weight = torch.randn(v, D, generator=g).to(dtype).requires_grad_()
    b = torch.randn(v, generator=g).to(dtype).requires_grad_() if bias else None
    return hidden, weight, b, torch.randint(0, min(v, V), (n,), generator=g)


def as64(*tensors):
    return [None if t is None else t.detach().double().requires_grad_() for t in tensors]


def close(got, want, tolerance):
    """Relative to the size of the whole: ||got - want|| / ||want||."""
    error = float((got.double() - want.double()).norm() / want.double().norm().clamp_min(1e-30))
    assert error < tolerance, error


OPTIONS = {
    "plain": {},
    "temperature": {"temperature": 0.6},
    "softcap": {"softcap": 5.0},
    "both": {"softcap": 4.0, "temperature": 1.7},
    "padded": {"vocabulary": 60},
}


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("keep", [0, 1 << 20])
@pytest.mark.parametrize("bias", [True, False])
def test_everything_that_can_be_asked_is_the_definition(name, keep, bias):
    hidden, weight, b, y = inputs(bias=bias)
    y = y % 60
    ref_hidden, ref_weight, ref_bias, _ = inputs(scale=0.5)
    g = torch.Generator().manual_seed(5)
    selected = torch.randint(0, 60, (N, 4), generator=g)
    selected[:, 1] = selected[:, 0]  # duplicates count twice
    selected[3, 2] = y[3]
    limits = {"vocabulary": OPTIONS[name].get("vocabulary")}

    def asked(h, w, c):
        head = Head(weight=w.detach(), bias=c.detach(), **limits)
        return Asked(selected=selected, reference=(h.detach(), head), squares=True, top_k=3)

    def total(s):
        t = torch.arange(N, dtype=s.logp.dtype)
        return (
            (s.logp * t.cos()).sum()
            + (s.entropy * t.sin()).sum()
            + 0.3 * s.lse.square().sum()
            + (s.kl * (t + 1).cos()).sum()
            + (s.selected * torch.linspace(-1, 1, 4, dtype=s.logp.dtype)).sum()
        )

    got = fused_stats(
        hidden,
        Head(weight=weight, bias=b, **OPTIONS[name]),
        y,
        asked(ref_hidden, ref_weight, ref_bias),
        chunk=8,
        keep_elements=keep,
    )
    h, w, c = as64(hidden, weight, b)
    want = dense_stats(h, Head(weight=w, bias=c, **OPTIONS[name]), y, asked(*as64(ref_hidden, ref_weight, ref_bias)))
    for k, x in vars(want).items():
        if k != "top_ids":
            torch.testing.assert_close(
                getattr(got, k).double(), x, atol=2e-5, rtol=2e-5, msg=lambda m, k=k: f"{k}: {m}"
            )
    torch.testing.assert_close(got.top_ids, want.top_ids)
    total(got).backward()
    total(want).backward()
    for a, b64 in ((hidden, h), (weight, w), *([(b, c)] if bias else [])):
        close(a.grad, b64.grad, 2e-6)


def grpo(stats, batch):
    """A clipped policy gradient with an entropy bonus and a mask, of its own denominator."""
    ratio = (stats.logp - batch["old"].to(stats.logp.dtype)).exp()
    advantages = batch["advantages"].to(stats.logp.dtype)
    values = -torch.minimum(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages) - 0.01 * stats.entropy
    values = torch.where(batch["mask"], values, 0.0)
    return values.sum() / 17, {"clipped": ((ratio - 1).abs() > 0.2).sum()}


def gspo(stats, batch):
    """One ratio per sequence: the mean log-ratio of its tokens."""
    row = torch.repeat_interleave(torch.arange(len(LENGTHS)), torch.tensor(LENGTHS))
    d = (stats.logp - batch["old"].to(stats.logp.dtype)) / torch.tensor(LENGTHS, dtype=stats.logp.dtype)[row]
    ratio = torch.zeros(len(LENGTHS), dtype=d.dtype).index_add(0, row, d).exp()
    return -(ratio * torch.linspace(-1, 2, len(LENGTHS), dtype=d.dtype)).sum(), {}


def centred(stats, batch):
    """A statistic of the whole batch."""
    return (stats.logp - stats.logp.mean()).square().sum(), {}


LOSSES = {"token": grpo, "sequence": gspo, "batch": centred}


def columns():
    g = torch.Generator().manual_seed(9)
    mask = torch.rand(N, generator=g) > 0.2
    return {"old": -4 + torch.randn(N, generator=g), "advantages": torch.randn(N, generator=g), "mask": mask}


def reference(hidden, weight, b, y, loss_fn, batch, **options):
    h, w, c = as64(hidden, weight, b)
    s = dense_stats(h, Head(weight=w, bias=c, **options), y)
    loss, metrics = loss_fn(TokenStats(logp=s.logp, entropy=s.entropy), batch)
    loss.backward()
    return loss, metrics, [x.grad for x in (h, w, c) if x is not None]


@pytest.mark.parametrize("scope", LOSSES)
@pytest.mark.parametrize("elements", [V * 14, 1 << 20])
@pytest.mark.parametrize("options", [{}, {"temperature": 0.7, "softcap": 8.0}])
def test_the_loss_and_its_gradients_are_those_of_the_definition(scope, elements, options):
    """In every strategy, with another factor than 1 above the loss."""
    hidden, weight, b, y = inputs()
    batch = columns()
    kind = plan(N, V, scope=scope, longest=max(LENGTHS), elements=elements).kind
    assert kind == ("kept" if elements > N * V else "two-pass" if scope == "batch" else "local")
    loss, metrics, stats = fused_policy_loss(
        hidden,
        Head(weight=weight, bias=b, **options),
        y,
        LOSSES[scope],
        batch,
        scope=scope,
        lengths=LENGTHS,
        elements=elements,
        verify=True,
    )
    (3 * loss).backward()
    want, want_metrics, grads = reference(hidden, weight, b, y, LOSSES[scope], batch, **options)
    torch.testing.assert_close(loss.double(), want, atol=1e-5, rtol=1e-5)
    assert metrics.keys() == want_metrics.keys() and all(int(metrics[k]) == int(want_metrics[k]) for k in metrics)
    for x, g in zip((hidden, weight, b), grads, strict=True):
        close(x.grad, 3 * g, 1e-6)
    assert not stats.logp.requires_grad


@pytest.mark.parametrize("loss_fn, scope", [(gspo, "token"), (centred, "token"), (centred, "sequence")])
def test_a_loss_that_looks_beyond_its_scope_is_seen(loss_fn, scope):
    hidden, weight, b, y = inputs()
    with pytest.raises(ValueError, match="beyond the scope"):
        fused_policy_loss(
            hidden,
            Head(weight=weight),
            y,
            loss_fn,
            columns(),
            scope=scope,
            lengths=LENGTHS,
            elements=V * 14,
            verify=True,
        )


def test_chunks_of_any_size_agree():
    grads = []
    for rows in (1, 5, 13, 40):
        hidden, weight, b, y = inputs()
        fused_policy_loss(hidden, Head(weight=weight, bias=b), y, grpo, columns(), scope="token", elements=V * rows)[
            0
        ].backward()
        grads.append((hidden.grad, weight.grad, b.grad))
    for other in grads[1:]:
        for x, y in zip(grads[0], other, strict=True):
            close(x, y, 1e-6)


@pytest.mark.parametrize("dtype, tolerance", [(torch.bfloat16, 3e-3), (torch.float16, 5e-4)])
def test_half_precision_operands(dtype, tolerance):
    """Logits, statistics and sums are float32: what remains is the rounding of the gradients to their own type."""
    hidden, weight, b, y = inputs(dtype)
    batch = columns()
    loss, _, stats = fused_policy_loss(
        hidden, Head(weight=weight, bias=b), y, grpo, batch, scope="token", elements=V * 14
    )
    loss.backward()
    want, _, grads = reference(hidden, weight, b, y, grpo, batch)
    torch.testing.assert_close(loss.double(), want, atol=1e-5, rtol=1e-5)
    for x, g in zip((hidden, weight, b), grads, strict=True):
        assert x.grad.dtype == dtype
        close(x.grad, g, tolerance)


def test_gradcheck_through_both_ways():
    """Finite differences of our own operation, in float64 where the products stay float64 for float64 operands of a
    CPU."""
    hidden, weight, b, y = (
        x.double().detach().requires_grad_() if x.is_floating_point() else x for x in inputs(n=5, v=9)
    )
    y = y % 9

    def loss(h, w, c):
        s = dense_stats(h, Head(weight=w, bias=c, softcap=3.0), y)
        return (s.logp * s.entropy).sum()

    assert torch.autograd.gradcheck(loss, (hidden, weight, b))


def test_main_grad_takes_the_gradient_of_the_weight():
    for elements in (V * 14, 1 << 20):
        hidden, weight, b, y = inputs(torch.bfloat16)
        weight.main_grad = torch.full((V, D), 2.0)
        loss, _, _ = fused_policy_loss(
            hidden, Head(weight=weight), y, grpo, columns(), scope="token", elements=elements
        )
        (0.5 * loss).backward()
        _, _, grads = reference(hidden, weight, None, y, grpo, columns())
        assert weight.grad is None
        close(weight.main_grad - 2, 0.5 * grads[1], 1e-5)


def test_frozen_and_tied_heads():
    hidden, weight, _, y = inputs()
    fused_policy_loss(hidden, Head(weight=weight.detach()), y, grpo, columns(), scope="token", elements=V * 14)[
        0
    ].backward()
    frozen = hidden.grad.clone()
    hidden, weight, _, y = inputs()
    h = (weight[y] * 0.1 + hidden).detach().requires_grad_()
    tied = weight[y] * 0.1 + hidden  # the head's own rows are the inputs
    fused_policy_loss(tied, Head(weight=weight), y, grpo, columns(), scope="token", elements=V * 14)[0].backward()
    h64, w64 = as64(hidden, weight)
    s = dense_stats(w64[y] * 0.1 + h64, Head(weight=w64), y)
    grpo(TokenStats(logp=s.logp, entropy=s.entropy), columns())[0].backward()
    close(weight.grad, w64.grad, 1e-6)
    assert frozen.abs().sum() > 0 and h.grad is None


def test_forbidden_ids_a_mask_of_zeros_and_no_rows():
    hidden, weight, b, y = inputs()
    b = b.detach().clone()
    b[[3, 5]] = -torch.inf
    y = torch.where((y == 3) | (y == 5), 0, y)
    fused_policy_loss(hidden, Head(weight=weight, bias=b), y, grpo, columns(), scope="token", elements=V * 14)[
        0
    ].backward()
    assert (
        torch.isfinite(hidden.grad).all() and torch.isfinite(weight.grad).all() and weight.grad[[3, 5]].abs().max() == 0
    )

    hidden, weight, _, y = inputs()
    nothing = {**columns(), "mask": torch.zeros(N, dtype=torch.bool)}
    loss, _, _ = fused_policy_loss(hidden, Head(weight=weight), y, grpo, nothing, scope="token", elements=V * 14)
    loss.backward()
    assert float(loss.detach()) == 0 and hidden.grad.abs().max() == 0 == weight.grad.abs().max()

    for elements in (V, 1 << 20):
        empty = torch.zeros(0, D, requires_grad=True)
        cols = {k: v[:0] for k, v in columns().items()}
        loss, _, _ = fused_policy_loss(empty, Head(weight=weight), y[:0], grpo, cols, scope="token", elements=elements)
        loss.backward()
        assert float(loss.detach()) == 0 and empty.grad.shape == (0, D)


def test_a_confident_token_keeps_its_gradient():
    """1 - p is 1e-9: float32 probabilities would round it to 0."""
    weight = torch.zeros(3, 1, requires_grad=True)
    hidden = torch.ones(1, 1)
    with torch.no_grad():
        weight[0] = 21.0
    fused_stats(hidden, Head(weight=weight), torch.tensor([0])).logp.sum().backward()
    want = 1 / (1 + torch.tensor(21.0, dtype=torch.float64).exp() / 2)
    assert abs(float(weight.grad[0]) / float(want) - 1) < 1e-5


@pytest.mark.parametrize("bad", [-1, V, 60])
def test_ids_beyond_the_head_are_refused(bad):
    hidden, weight, _, y = inputs()
    y = y % 60
    y[4] = bad
    for call in (
        lambda: fused_stats(hidden, Head(weight=weight, vocabulary=60), y),
        lambda: fused_policy_loss(
            hidden, Head(weight=weight, vocabulary=60), y, grpo, columns(), scope="token", elements=V * 14
        ),
    ):
        with pytest.raises(ValueError, match=f"target is {bad}.*60 rows"):
            call()


def test_heads_that_make_no_sense_are_refused():
    weight = torch.zeros(4, 2)
    for options, word in (
        ({"temperature": 0.0}, "positive"),
        ({"softcap": -1.0}, "softcap"),
        ({"vocabulary": 5}, "4 rows"),
    ):
        with pytest.raises(ValueError, match=word):
            Head(weight=weight, **options)


def test_the_plan_says_what_fits():
    assert plan(100, 50, elements=5000).kind == "kept"
    assert plan(100, 50, elements=4999).kind == "two-pass"
    assert plan(100, 50, scope="token", elements=4999).products == 3
    assert plan(10_000, 50, grad=False).products == 1
    for how in (plan(10_000, 500, scope=s, longest=90, elements=50_000) for s in LOSSES):
        assert how.elements <= 50_000 and how.why
    with pytest.raises(ValueError, match="one row of logits over 500 ids needs"):
        plan(10, 500, elements=499)
    with pytest.raises(ValueError, match="longest sequence .30 rows"):
        plan(100, 500, scope="sequence", longest=30, elements=500 * 29)


def test_nan_hidden_states_are_no_silent_zero():
    hidden, weight, _, y = inputs()
    with torch.no_grad():
        hidden[0, 0] = torch.nan
    loss, _, _ = fused_policy_loss(
        hidden, Head(weight=weight), y, lambda s, _: (s.logp.sum(), {}), scope="token", elements=V * 14
    )
    assert torch.isnan(loss)


class Largest(TorchDispatchMode):
    """The largest number of elements of any tensor that an operation returns."""

    largest = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **kwargs or {})
        for x in out if isinstance(out, tuple | list) else [out]:
            self.largest = max(self.largest, x.numel() if isinstance(x, torch.Tensor) else 0)
        return out


def test_the_local_schedule_makes_one_chunk_of_logits_and_three_products():
    n, d, v = 256, 4, 300
    g = torch.Generator().manual_seed(1)
    hidden = torch.randn(n, d, generator=g).requires_grad_()
    weight = torch.randn(v, d, generator=g).requires_grad_()
    y = torch.randint(0, v, (n,), generator=g)
    with Largest() as seen:
        fused_policy_loss(
            hidden, Head(weight=weight), y, lambda s, _: (s.logp.sum(), {}), scope="token", elements=16 * v
        )[0].backward()
    assert seen.largest == 16 * v

    class Products(TorchDispatchMode):
        flops = 0

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            out = function(*args, **kwargs or {})
            if function.overloadpacket in (torch.ops.aten.mm, torch.ops.aten.addmm, torch.ops.aten.addmm_):
                a, b = args[-2:]
                self.flops += a.shape[0] * a.shape[1] * b.shape[1]
            return out

    for scope, want in (("token", 3), ("batch", 4)):
        with Products() as seen:
            fused_policy_loss(
                hidden, Head(weight=weight), y, lambda s, _: (s.logp.sum(), {}), scope=scope, elements=16 * v
            )[0].backward()
        assert seen.flops == want * n * d * v


def test_what_nobody_says_is_what_the_device_is_given(monkeypatch):
    """Logits beyond it are neither made at once nor kept."""
    monkeypatch.setattr(logprob, "CPU", logprob.Limits(elements=14 * V, rows=1024, kept=512))
    hidden, weight, _, y = inputs()
    with Largest() as seen:
        fused_stats(hidden, Head(weight=weight), y).logp.sum().backward()
    assert seen.largest == 14 * V
    with Largest() as seen:
        fused_policy_loss(hidden, Head(weight=weight), y, grpo, columns(), scope="token")[0].backward()
    assert 8 * V <= seen.largest <= 14 * V


@pytest.mark.parametrize("scope", ["token", "batch"])
def test_one_chunk_of_logits_is_alive_at_a_time(monkeypatch, scope):
    """Not the next one beside the last, in none of the passes."""
    n, v = 64, 300
    g = torch.Generator().manual_seed(1)
    hidden, weight = torch.randn(n, 4, generator=g).requires_grad_(), torch.randn(v, 4, generator=g).requires_grad_()
    chunks, most = [], []

    def watched(*args, real=logprob.logits):
        most.append(sum(x() is not None for x in chunks))
        z = real(*args)
        chunks.append(weakref.ref(z))
        return z

    monkeypatch.setattr(logprob, "logits", watched)
    monkeypatch.setattr(fused_loss, "logits", watched)
    fused_policy_loss(
        hidden,
        Head(weight=weight),
        torch.zeros(n, dtype=torch.long),
        lambda s, _: (s.logp.sum(), {}),
        scope=scope,
        elements=16 * v,
    )[0].backward()
    assert len(chunks) == {"token": 4, "batch": 8}[scope] and max(most) == 0
