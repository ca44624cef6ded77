"""The chunked (logp, entropy) operation against its float64 definition, values and gradients."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from training.lm_head.logprob import dense_logprob, fused_logprob


def inputs(n=37, d=16, v=61, scale=1.0, dtype=torch.float32):
    g = torch.Generator().manual_seed(1)
    hidden = (torch.randn(n, d, generator=g) * scale).to(dtype).requires_grad_()
    weight = torch.randn(v, d, generator=g).to(dtype).requires_grad_()
    return hidden, weight, torch.randint(0, v, (n,), generator=g)


def loss_of(logp, entropy):
    n = torch.arange(len(logp), dtype=logp.dtype)
    return (logp * torch.cos(n)).sum() + (entropy * torch.sin(n + 1)).sum() + (logp.exp() * entropy).sum()


@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.0])
@pytest.mark.parametrize("keep", [0, 1 << 25])
@pytest.mark.parametrize("scale", [1.0, 20.0])
def test_values_and_gradients_are_those_of_the_definition(temperature, keep, scale):
    hidden, weight, y = inputs(scale=scale)
    logp, entropy = fused_logprob(hidden, weight, y, temperature=temperature, chunk=8, keep_elements=keep)
    h64, w64 = hidden.detach().double().requires_grad_(), weight.detach().double().requires_grad_()
    want_logp, want_entropy = dense_logprob(h64, w64, y, temperature)
    size = want_logp.detach().abs().max()
    torch.testing.assert_close(logp.double(), want_logp, atol=2e-6 * float(size), rtol=1e-5)
    torch.testing.assert_close(entropy.double(), want_entropy, atol=2e-5, rtol=1e-4)
    loss_of(logp, entropy).backward()
    loss_of(want_logp, want_entropy).backward()
    for got, want in ((hidden.grad, h64.grad), (weight.grad, w64.grad)):
        torch.testing.assert_close(got.double(), want, atol=2e-5 * float(want.abs().max()), rtol=2e-4)


def test_the_shortcut_without_entropy_gradient_gives_the_same_gradient():
    hidden, weight, y = inputs()
    a = torch.autograd.grad(fused_logprob(hidden, weight, y)[0].sum(), (hidden, weight))
    logp, entropy = fused_logprob(hidden, weight, y)
    b = torch.autograd.grad(logp.sum() + 1e-30 * entropy.sum(), (hidden, weight))
    for x, z in zip(a, b, strict=True):
        torch.testing.assert_close(x, z, atol=1e-5, rtol=1e-4)


def test_chunking_changes_nothing():
    hidden, weight, y = inputs(n=100)
    whole = fused_logprob(hidden, weight, y, chunk=100)
    parts = fused_logprob(hidden, weight, y, chunk=7)
    for a, b in zip(whole, parts, strict=True):
        torch.testing.assert_close(a, b, atol=2e-6, rtol=1e-5)


def test_a_forbidden_token_has_no_mass_and_finite_gradients():
    hidden, weight, y = inputs(v=8)
    with torch.no_grad():
        hidden[:, 0] = 1.0
        weight[3] = 0.0
        weight[3, 0] = -torch.inf
    y = torch.where(y == 3, 0, y)
    logp, entropy = fused_logprob(hidden, weight, y)
    rest = [i for i in range(8) if i != 3]
    want = torch.log_softmax(hidden.detach().double() @ weight.detach()[rest].double().T, -1)
    torch.testing.assert_close(entropy.double(), -(want.exp() * want).sum(-1), atol=1e-5, rtol=1e-5)
    grad = torch.autograd.grad(logp.sum() + entropy.sum(), weight)[0]
    assert torch.isfinite(grad[rest]).all()


def test_an_empty_batch_and_a_greedy_temperature():
    hidden, weight, y = inputs(n=0)
    logp, entropy = fused_logprob(hidden, weight, y)
    assert logp.shape == entropy.shape == (0,)
    logp.sum().backward()
    assert weight.grad.abs().max() == 0
    with pytest.raises(ValueError, match="positive"):
        fused_logprob(*inputs(), temperature=0.0)


def test_gradcheck_through_the_definition():
    """The reference itself is right: its gradient is that of finite differences."""
    hidden, weight, y = inputs(n=3, d=4, v=5, dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda h, w: loss_of(*dense_logprob(h, w, y, 0.7)), (hidden, weight))


class Shapes(TorchDispatchMode):
    """The largest number of elements of any tensor that an operation returns."""

    def __init__(self):
        super().__init__()
        self.largest = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **kwargs or {})
        for x in out if isinstance(out, tuple | list) else [out]:
            self.largest = max(self.largest, x.numel() if isinstance(x, torch.Tensor) else 0)
        return out


@pytest.mark.parametrize("with_entropy", [True, False])
def test_no_tensor_of_all_logits_is_ever_made(with_entropy):
    """Neither forward nor backward: with nothing kept, the largest tensor is a chunk of logits, or the weight's
    gradient."""
    n, d, v, chunk = 256, 8, 300, 16
    hidden, weight, y = inputs(n=n, d=d, v=v)
    with Shapes() as seen:
        logp, entropy = fused_logprob(hidden, weight, y, chunk=chunk, keep_elements=0)
        (loss_of(logp, entropy) if with_entropy else logp.sum()).backward()
    assert seen.largest == max(chunk * v, n * d, v * d)
    with Shapes() as seen:
        fused_logprob(hidden, weight, y, chunk=n, keep_elements=0)
    assert seen.largest == n * v, "the measure sees a large tensor where there is one"


def test_what_is_kept_for_backward_is_bounded():
    """Saved tensors are hidden states, weight, targets and two numbers per row; the logits only where they fit in
    `keep_elements`."""
    hidden, weight, y = inputs(n=100, v=50)
    for keep, extra in ((0, 0), (4999, 0), (5000, 5000)):
        saved = []
        with torch.autograd.graph.saved_tensors_hooks(lambda t, saved=saved: saved.append(t.numel()) or t, lambda t: t):
            fused_logprob(hidden, weight, y, chunk=10, keep_elements=keep)
        assert sum(saved) == hidden.numel() + weight.numel() + 3 * 100 + extra
