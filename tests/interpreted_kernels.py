"""The kernels of training/kernels.py in Triton's interpreter, against training/logprob.py in torch: `python tests/interpreted_kernels.py`.

A process of its own: the variable that switches the interpreter on is read when triton is imported. Prints one line per case that agrees.
"""

import os

os.environ["TRITON_INTERPRET"] = "1"

import torch

from training import kernels, logprob
from training.logprob import Asked, Gradient, Head, dense_stats

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
        ("logp", "entropy", "lse"), got, (log_p.gather(1, y[:, None]).squeeze(1), entropy, z.double().logsumexp(-1)), strict=True
    ):
        if v > 1 and n:
            agree(f"{what} of {n} x {v}", a, b, 1e-6)

z = torch.zeros(1, 5000)
z[0, 4321] = 25.0  # 1 - p is 7e-8
agree("log p of a confident token", kernels.row_stats(z, torch.tensor([4321]))[0], torch.log_softmax(z.double(), -1)[:, 4321], 1e-5)

for dtype, tolerance in (
    (torch.float32, 1e-6),
    (torch.bfloat16, 6e-3),
    (torch.float16, 1e-3),
):  # the interpreter cuts bfloat16 off, a GPU rounds
    for looks in (False, True):
        z, y = rows(4, 5000, 2.0)
        a, b = torch.randn(4), torch.randn(4) if looks else None
        logp, h, lse = kernels.row_stats(z, y)
        row, given = logprob.HeadStats(logp=logp, entropy=h, lse=lse), Gradient(logp=a, entropy=b)
        head = Head(weight=torch.zeros(5000, 1), temperature=0.5)
        want = logprob.turn(logprob.shift(z.clone(), lse), y, given, row, head, Asked())
        got = logprob.turn(z.clone(), y, given, row, head, Asked(), kernels=kernels, dtype=dtype)
        assert got.dtype == dtype
        agree(f"gradient in {dtype}, entropy {looks}", got, want, tolerance)

logprob.row_kernels = lambda *_: kernels  # the whole operation through the kernels
for keep in (0, 1 << 20):
    h, w = torch.randn(11, 6).requires_grad_(), torch.randn(300, 6).requires_grad_()
    y = torch.randint(0, 300, (11,))
    s = logprob.fused_stats(h, Head(weight=w, temperature=0.7), y, chunk=4, keep_elements=keep)
    (s.logp.square().sum() + s.entropy.sum()).backward()
    h64, w64 = h.detach().double().requires_grad_(), w.detach().double().requires_grad_()
    d = dense_stats(h64, Head(weight=w64, temperature=0.7), y)
    (d.logp.square().sum() + d.entropy.sum()).backward()
    agree(f"dH through the operation, kept {keep > 0}", h.grad, h64.grad, 1e-6)
    agree(f"dW through the operation, kept {keep > 0}", w.grad, w64.grad, 1e-6)
