"""The kernels of training/lm_head/kernels.py in Triton's interpreter, against training/lm_head/logprob.py in torch:
`python tests/support/interpreted_kernels.py`.

A process of its own: the variable that switches the interpreter on is read when triton is imported. Prints one line per
case that agrees.
"""

import os
import weakref
from contextlib import contextmanager

os.environ["TRITON_INTERPRET"] = "1"

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from training.lm_head import kernels, logprob
from training.lm_head.fused_loss import fused_policy_loss, plan
from training.lm_head.logprob import Asked, Gradient, Head, dense_stats

torch.manual_seed(0)


def agree(name, got, want, tolerance):
    error = float((got.double() - want.double()).norm() / want.double().norm().clamp_min(1e-30))
    assert error < tolerance, f"{name}: relative error {error:.1e} is not below {tolerance:.0e}"
    print(f"{name}: {error:.1e}")


def rows(n, v, scale=1.0):
    z = torch.randn(n, v) * scale
    return z, torch.randint(0, v, (n,))


for n, v, scale in ((5, 37, 1.0), (3, 4096, 3.0), (3, 5000, 30.0), (1, 1, 1.0), (0, 9, 1.0)):
    z, y = rows(n, v, scale)
    if v == 5000:
        z[0, 17], z[1, 4096:] = -torch.inf, -torch.inf
        y[:] = 3
    got = kernels.row_stats(z, y)
    log_p = torch.log_softmax(z.double(), -1)
    entropy = -torch.where(log_p.isinf(), 0.0, log_p.exp() * log_p).sum(-1)
    for what, a, b in zip(
        ("logp", "entropy", "lse"),
        got,
        (log_p.gather(1, y[:, None]).squeeze(1), entropy, z.double().logsumexp(-1)),
        strict=True,
    ):
        if v > 1 and n:
            agree(f"{what} of {n} x {v}", a, b, 1e-6)

z = torch.zeros(1, 5000)
z[0, 4321] = 25.0  # 1 - p is 7e-8
agree(
    "log p of a confident token",
    kernels.row_stats(z, torch.tensor([4321]))[0],
    torch.log_softmax(z.double(), -1)[:, 4321],
    1e-5,
)

# The interpreter cuts bfloat16 off, a GPU rounds.
for dtype, tolerance in (
    (torch.float32, 1e-6),
    (torch.bfloat16, 6e-3),
    (torch.float16, 1e-3),
):
    for looks in (False, True):
        z, y = rows(4, 5000, 2.0)
        a, b = torch.randn(4), torch.randn(4) if looks else None
        logp, h, lse = kernels.row_stats(z, y)
        row, given = logprob.HeadStats(logp=logp, entropy=h, lse=lse), Gradient(logp=a, entropy=b)
        head = Head(weight=torch.zeros(5000, 1), temperature=0.5)
        want, none = logprob.logit_gradient(logprob.shift(z.clone(), lse), y, given, row, head, Asked())
        memory = z.clone()
        got, unit = logprob.logit_gradient(memory, y, given, row, head, Asked(), kernels=kernels, dtype=dtype)
        assert (
            got.dtype == dtype
            and got.data_ptr() == memory.data_ptr()
            and none is None
            and (unit is not None) == (dtype == torch.float16)
        )
        agree(f"gradient in {dtype}, entropy {looks}", got.float() * (1.0 if unit is None else unit), want, tolerance)

# A gradient that lies where the target does not: the bound that float16 is scaled by has to know of it.
z, y = torch.zeros(1, 300), torch.tensor([7])
z[0, 3] = 20.0
logp, h, lse = kernels.row_stats(z, y)
row, given = logprob.HeadStats(logp=logp, entropy=h, lse=lse), Gradient(lse=torch.tensor([1e-7]))
want, _ = logprob.logit_gradient(
    logprob.shift(z.clone(), lse), y, given, row, Head(weight=torch.zeros(300, 1)), Asked()
)
got, unit = logprob.logit_gradient(
    z.clone(), y, given, row, Head(weight=torch.zeros(300, 1)), Asked(), kernels=kernels, dtype=torch.float16
)
agree("float16 gradient away from the target", got.float() * unit, want, 1e-3)


# The way of a GPU, whole: what the operation does where tensors say that they are a GPU's, in each schedule.

torch.Tensor.is_cuda = True
plain = {"mm": torch.mm, "addmm": torch.addmm}


def mm(a, b, out_dtype=None):
    """Products of half-precision operands that add up in float32 exist on a GPU only: here they are made from float32
    copies."""
    assert a.dtype == b.dtype, (a.dtype, b.dtype)
    with Account.closed():
        out = plain["mm"](a.float(), b.float()) if out_dtype else plain["mm"](a, b)
    return out.view(out.shape)  # into the account


def addmm(to, a, b, *, beta, out_dtype, out):
    assert out is to and to.dtype == out_dtype == torch.float32 and a.dtype == b.dtype != torch.float32
    with Account.closed():
        return to.addmm_(a.float(), b.float(), beta=beta)


class Account(TorchDispatchMode):
    """The most bytes alive at once in tensors of at least `least` bytes that operations made; a storage counts once."""

    counting = True

    def __init__(self, least):
        super().__init__()
        self.least, self.made, self.peak = least, [], 0

    @classmethod
    @contextmanager
    def closed(cls):
        cls.counting = False
        yield
        cls.counting = True

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        if self.counting:
            parts = out if isinstance(out, tuple | list) else [out]
            self.made += [
                weakref.ref(x)
                for x in parts
                if isinstance(x, torch.Tensor) and x.untyped_storage().nbytes() >= self.least
            ]
            self.made = [r for r in self.made if r() is not None]
            storages = {
                x.untyped_storage().data_ptr(): x.untyped_storage().nbytes()
                for x in (r() for r in self.made)
                if x is not None
            }
            self.peak = max(self.peak, sum(storages.values()))
        return out


torch.mm, torch.addmm = mm, addmm


def loss_of(s, _=None):
    return s.logp.square().sum() + s.entropy.sum(), {}


for dtype, tolerance in ((torch.float32, 1e-6), (torch.bfloat16, 6e-3), (torch.float16, 1e-3)):
    for kind, scope, elements in (
        ("kept", "token", 1 << 20),
        ("local", "token", 4 * 300),
        ("two-pass", "batch", 4 * 300),
    ):
        # With a soft-cap torch does what the kernels would.
        for vocabulary, softcap in (
            (None, None),
            (290, None),
            (None, 9.0),
        ):
            h, w = torch.randn(11, 6).to(dtype).requires_grad_(), torch.randn(300, 6).to(dtype).requires_grad_()
            c, y = torch.randn(300).to(dtype).requires_grad_(), torch.randint(0, 290, (11,))
            assert plan(11, 300, scope=scope, elements=elements).kind == kind
            head = Head(weight=w, bias=c, temperature=0.7, vocabulary=vocabulary, softcap=softcap)
            (1e-4 * fused_policy_loss(h, head, y, loss_of, scope=scope, elements=elements)[0]).backward()
            leaves = [x.detach().double().requires_grad_() for x in (h, w, c)]
            s = dense_stats(
                leaves[0],
                Head(weight=leaves[1], bias=leaves[2], temperature=0.7, vocabulary=vocabulary, softcap=softcap),
                y,
            )
            (1e-4 * loss_of(s)[0]).backward()
            for what, x, d in zip(("dH", "dW", "db"), (h, w, c), leaves, strict=True):
                assert x.grad.dtype == dtype
                agree(
                    f"{what} as on a GPU, {dtype}, {kind}, {vocabulary} ids in use, soft-cap {softcap}",
                    x.grad,
                    d.grad,
                    tolerance,
                )

# What a step needs beside its operands and the float32 sum of dW: one chunk of float32 logits, which become their
# gradient in place.
n, d, v, rows = 64, 4, 2000, 16
# float16 takes its unit off a product before that is added.
for dtype, products in (
    (torch.bfloat16, 0),
    (torch.float16, 1),
):
    h, w = torch.randn(n, d).to(dtype).requires_grad_(), torch.randn(v, d).to(dtype).requires_grad_()
    w.main_grad = torch.zeros(v, d)
    with Account(least=v * d * 4) as account:
        loss = fused_policy_loss(
            h, Head(weight=w), torch.randint(0, v, (n,)), loss_of, scope="token", elements=rows * v
        )[0]
        loss.backward()
    extra, chunk, product = account.peak - v * d * 4, rows * v * 4, v * d * 4
    assert chunk <= extra <= chunk + products * product, (dtype, extra, chunk, product)
    print(f"extra memory as on a GPU, {dtype}: {extra / chunk:.3f} chunks of logits")
