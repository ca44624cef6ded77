"""Triton kernels for rows of float32 logits on a GPU: statistics in one read, gradient in one read and one write, in
place.

cuBLAS does the products, and is near its limit; besides them a row of V logits needs one pass each way. One program
adds up the numbers of a row in a fixed order: no atomics, the same bits every time. Offsets are int64 (N x V passes
2^31 soon). `training/lm_head/logprob.py` uses them for plain heads on CUDA; its own torch code is the reference, and
handles all other heads.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 4096


@triton.jit
def _stats(z, targets, top, rest, weighted, v, stride, BLOCK: tl.constexpr):
    """Per row: m = max z; rest = sum e^(z - m) and weighted = sum e^(z - m) (z - m), both over all columns but the
    target's."""
    row = tl.program_id(0).to(tl.int64)
    target = tl.load(targets + row)
    m = tl.max(tl.full([BLOCK], float("-inf"), tl.float32), 0)
    s = tl.sum(tl.zeros([BLOCK], tl.float32), 0)
    w = s
    for lo in range(0, v, BLOCK):
        column = lo + tl.arange(0, BLOCK)
        x = tl.load(z + row * stride + column, mask=column < v, other=float("-inf"))
        new = tl.maximum(m, tl.max(x, 0))
        at = tl.where(new == float("-inf"), 0.0, new)  # a block of forbidden ids has no maximum
        moved = tl.where(m == float("-inf"), 0.0, m - at)
        d = tl.where(x == float("-inf"), 0.0, x - at)
        e = tl.where((x == float("-inf")) | (column == target), 0.0, tl.exp(d))
        shrink = tl.where(m == float("-inf"), 0.0, tl.exp(moved))
        w = (w + s * moved) * shrink + tl.sum(e * d, 0)
        s = s * shrink + tl.sum(e, 0)
        m = new
    tl.store(top + row, m)
    tl.store(rest + row, s)
    tl.store(weighted + row, w)


@triton.jit
def _gradient(
    z, targets, lse, alpha, beta, entry, out, v, z_stride, out_stride, scale, LOOKS: tl.constexpr, BLOCK: tl.constexpr
):
    """out = scale p (alpha + beta log p), and scale entry in the target's column. LOOKS: whether beta is anything but
    0.

    out may use the memory of z, with an element type of at most the same size: number i of a row is then written at or
    before the position where it was read.
    """
    row = tl.program_id(0).to(tl.int64)
    target, base, a, own = tl.load(targets + row), tl.load(lse + row), tl.load(alpha + row), tl.load(entry + row)
    if LOOKS:
        b = tl.load(beta + row)
    for lo in range(0, v, BLOCK):
        column = lo + tl.arange(0, BLOCK)
        log_p = tl.maximum(tl.load(z + row * z_stride + column, mask=column < v, other=float("-inf")) - base, -1e4)
        p = tl.exp(log_p)
        if LOOKS:
            dz = p * (a + b * log_p)
        else:
            dz = p * a
        dz = tl.where(column == target, own, dz) * scale
        # no warp writes before all have read: in place, this block writes where other threads of it still read
        tl.debug_barrier()
        tl.store(out + row * out_stride + column, dz.to(out.dtype.element_ty), mask=column < v)


def _launch(v: int, **constants: bool) -> dict[str, Any]:
    """The constants that a kernel is compiled with, and a launch option that its signature does not name."""
    return {**constants, "BLOCK": min(_BLOCK, triton.next_power_of_2(v)), "num_warps": 8}


def row_stats(z: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Logits z [n, V] float32 (left as they are), targets [n] -> logp, entropy, lse [n]."""
    n, v = z.shape
    top, rest, weighted = (torch.empty(n, dtype=torch.float32, device=z.device) for _ in range(3))
    if n:
        _stats[(n,)](z, targets, top, rest, weighted, v, z.stride(0), **_launch(v))
    own_z = (z.gather(1, targets[:, None]).squeeze(1) - top).clamp_min(-1e4)
    own = own_z.exp()
    total = rest + own
    log_total = torch.where(own == 1, rest.log1p(), total.log())
    return own_z - log_total, log_total - (weighted + own * own_z) / total, log_total + top


def row_gradient(
    z: Tensor,
    targets: Tensor,
    lse: Tensor,
    alpha: Tensor,
    beta: Tensor | None,
    entry: Tensor,
    scale: float,
    dtype: torch.dtype,
) -> Tensor:
    """dL/dz [n, V] in `dtype`, in the memory of z [n, V] float32: scale p (alpha + beta log p), `entry` at the
    target."""
    n, v = z.shape
    out = z.view(dtype)[:, :v]  # a row of half as many bytes, at the front of the old row
    if n:
        _gradient[(n,)](
            z,
            targets,
            lse,
            alpha,
            alpha if beta is None else beta,
            entry,
            out,
            v,
            z.stride(0),
            out.stride(0),
            scale,
            **_launch(v, LOOKS=beta is not None),
        )
    return out
