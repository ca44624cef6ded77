"""Divergences between whole distributions: the chunked operation against its float64 definition, and against TRL."""

import os

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from training.lm_head.divergence import dense_divergence, dense_head_divergence, fused_divergence
from training.lm_head.logprob import Head
from training.model import products

KINDS = [
    ("forward", 0.5),
    ("reverse", 0.5),
    ("jensen_shannon", 0.3),
    ("skewed_forward", 0.1),
    ("skewed_forward", 0.0),
    ("skewed_reverse", 0.1),
    ("skewed_reverse", 0.0),
]


def case(n=23, d=8, v=41, widths=(8, 12), scale=1.0):
    g = torch.Generator().manual_seed(3)
    drawn = lambda *shape: torch.randn(*shape, generator=g, dtype=torch.float64)
    hidden, weight, bias = drawn(n, d) * scale, drawn(v, d) / d**0.5, drawn(v)
    teachers = [(drawn(n, w) * scale, Head(weight=drawn(v, w) / w**0.5)) for w in widths]
    return hidden, weight, bias, teachers, torch.rand(len(widths), n, generator=g, dtype=torch.float64), drawn(n)


def single(teachers):
    return [(x.float(), Head(weight=h.weight.float(), vocabulary=h.vocabulary)) for x, h in teachers]


@pytest.mark.parametrize("kind, mix", KINDS)
@pytest.mark.parametrize("keep", [0, 1 << 25])
@pytest.mark.parametrize("knobs", [{}, {"temperature": 0.7, "softcap": 3.0}], ids=["plain", "softcap"])
def test_values_and_gradients_are_those_of_autograd(kind, mix, keep, knobs):
    hidden, weight, bias, teachers, weights, upstream = case()
    leaves = [x.clone().requires_grad_() for x in (hidden, weight, bias)]
    want = dense_head_divergence(
        leaves[0], Head(weight=leaves[1], bias=leaves[2], **knobs), teachers, kind, mix, weights
    )
    mine = [x.float().requires_grad_() for x in (hidden, weight, bias)]
    head = Head(weight=mine[1], bias=mine[2], **knobs)
    got = fused_divergence(mine[0], head, single(teachers), kind, mix, weights.float(), chunk=5, keep_elements=keep)
    torch.testing.assert_close(got.double(), want, atol=2e-6, rtol=1e-5)
    wanted = torch.autograd.grad((want * upstream).sum(), leaves)
    for a, b in zip(torch.autograd.grad((got * upstream.float()).sum(), mine), wanted, strict=True):
        torch.testing.assert_close(a.double(), b, atol=1e-6 * float(b.abs().max()) + 1e-6, rtol=1e-5)


@pytest.mark.parametrize("kind, mix", KINDS)
def test_a_model_that_is_its_teacher_has_nothing_to_learn(kind, mix):
    hidden, weight, *_ = case()
    own = hidden.float().requires_grad_()
    value = fused_divergence(own, Head(weight=weight.float()), [(own.detach(), Head(weight=weight.float()))], kind, mix)
    assert float(value.abs().max()) < 1e-6
    assert float(torch.autograd.grad(value.sum(), own)[0].abs().max()) < 1e-6


def test_sure_models_have_finite_divergences_and_gradients():
    hidden, weight, _, teachers, *_ = case(scale=200.0, widths=(8,))
    for kind, mix in KINDS:
        own = hidden.float().requires_grad_()
        value = fused_divergence(own, Head(weight=weight.float()), single(teachers), kind, mix)
        assert value.isfinite().all() and (value > -1e-4).all(), kind
        assert torch.autograd.grad(value.sum(), own)[0].isfinite().all(), kind


@pytest.mark.parametrize("beta", [0.0, 0.1, 0.5, 0.9, 1.0])
def test_values_and_gradients_are_those_of_trl(beta):
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
    pytest.importorskip("trl", reason="TRL is not installed: `pip install -e '.[test]'`")
    from trl.experimental.gkd.gkd_trainer import GKDTrainer

    hidden, weight, _, teachers, *_ = case(widths=(8,))
    (theirs, their_head), temperature = teachers[0], 0.9
    leaf = hidden.clone().requires_grad_()
    logits, teacher_logits = leaf @ weight.T, theirs @ their_head.weight.T
    want = GKDTrainer.generalized_jsd_loss(
        logits[None], teacher_logits[None], beta=beta, temperature=temperature, reduction="sum"
    )
    mine = hidden.float().requires_grad_()
    kind = {0.0: "forward", 1.0: "reverse"}.get(beta, "jensen_shannon")
    heads = [Head(weight=w.float(), temperature=temperature) for w in (weight, their_head.weight)]
    got = fused_divergence(mine, heads[0], [(theirs.float(), heads[1])], kind, beta or 0.5)
    torch.testing.assert_close(got.sum().double(), want, atol=1e-5, rtol=1e-6)
    (a,), (b,) = torch.autograd.grad(got.sum(), mine), torch.autograd.grad(want, leaf)
    torch.testing.assert_close(a.double(), b, atol=1e-6, rtol=1e-5)


class Largest(TorchDispatchMode):
    """The largest number of elements that any operation gives."""

    elements = 0

    def __torch_dispatch__(self, f, types, args=(), kwargs=None):
        out = f(*args, **(kwargs or {}))
        for x in out if isinstance(out, (tuple, list)) else [out]:
            if isinstance(x, torch.Tensor):
                self.elements = max(self.elements, x.numel())
        return out


def test_no_tensor_of_tokens_times_vocabulary_at_151936_ids():
    n, v, d, chunk = 24, 151_936, 4, 4
    g = torch.Generator().manual_seed(0)
    hidden, weight = torch.randn(n, d, generator=g).requires_grad_(), torch.randn(v, d, generator=g).requires_grad_()
    teacher = torch.randn(n, d, generator=g), Head(weight=torch.randn(v, d, generator=g))
    products.chosen()  # the first call on a machine measures products of its own
    with Largest() as seen:
        value = fused_divergence(hidden, Head(weight=weight), [teacher], "jensen_shannon", chunk=chunk, keep_elements=0)
        value.sum().backward()
    assert seen.elements <= chunk * v < n * v / 4
    with torch.no_grad():
        few = hidden[:2].detach()
        want = dense_head_divergence(few, Head(weight=weight), [(teacher[0][:2], teacher[1])], "jensen_shannon")
    torch.testing.assert_close(value[:2].double(), want, atol=1e-5, rtol=1e-5)


def test_vocabularies_padded_to_different_sizes_are_compared_on_the_ids_of_both():
    hidden, weight, _, [(theirs, their_head), _], *_ = case()
    longer = Head(weight=torch.cat([their_head.weight, torch.full((7, 8), 9.0, dtype=torch.float64)]))
    a, b = (
        fused_divergence(hidden.float(), Head(weight=weight.float()), single([(theirs, h)]), "reverse")
        for h in (their_head, longer)
    )
    assert torch.equal(a, b)


@pytest.mark.parametrize(
    "kind, mix, message",
    [
        ("backward", 0.5, "choose"),
        ("jensen_shannon", 1.0, "'forward' or 'reverse'"),
        ("skewed_reverse", 1.0, "below 1"),
    ],
)
def test_what_is_no_divergence_is_refused(kind, mix, message):
    with pytest.raises(ValueError, match=message):
        dense_divergence(torch.zeros(1, 2), torch.zeros(1, 2), kind, mix)


def test_a_teacher_of_other_rows_is_refused():
    hidden, weight, _, [(theirs, head), _], *_ = case()
    with pytest.raises(ValueError, match="hidden states of 3 tokens, and the model of 23"):
        fused_divergence(hidden, Head(weight=weight), [(theirs[:3], head)], "reverse")
