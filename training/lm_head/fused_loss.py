"""A loss and its gradients in three matrix products: computes the LM head, the loss of its rows and both gradients
chunk by chunk.

`fused_logprob` followed by a loss needs all logits twice (4 products) or keeps them (3 products, N x V numbers). If the
gradient of a row's statistics depends only on that row (token-level losses) or on its sequence (sequence-level losses),
it is known as soon as the chunk that holds the row or sequence has been read: 3 products, one chunk of logits. The loss
is the caller's function of all rows' statistics; autograd on those [N] vectors gives dL/dlogp and dL/dentropy, so this
file does not depend on the algorithm either.

`plan` chooses among the strategies and says why:
    score      no gradient wanted: 1 product, one chunk
    kept       all logits fit into the budget: 3 products
    local      rows (or whole sequences) are finished one chunk after the other: 3 products, one chunk
    two-pass   statistics of the whole batch enter the loss: 4 products, one chunk
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor

from training.lm_head.logprob import (
    CPU,
    Asked,
    Gradient,
    Head,
    Limits,
    Sums,
    check_ids,
    fused_stats,
    in_cache,
    limits,
    logits,
    operand,
    read,
    row_kernels,
    logit_gradient,
)
from training.types import TokenStats

# (statistics [N], whatever the caller passes through) -> (loss, already divided; metrics)
M = TypeVar("M")
LossFn = Callable[[TokenStats, Any], tuple[Tensor, M]]
Scope = Literal["token", "sequence", "batch"]


@dataclass(frozen=True)
class Strategy:
    """How a head is computed: `chunk` rows at a time, `products` of N x V x d, `elements` of float32 logits alive at
    most."""

    kind: Literal["score", "kept", "local", "two-pass"]
    chunk: int
    products: int
    elements: int
    why: str


def plan(
    n: int,
    vocabulary: int,
    *,
    scope: Scope = "batch",
    grad: bool = True,
    longest: int = 1,
    elements: int | None = None,
    on: Limits = CPU,
) -> Strategy:
    """The strategy for n rows. scope: what a row's gradient depends on. longest: rows of the longest sequence.
    elements: float32 logits that may be alive (4 bytes each; None: the device's default). Raises ValueError if not even
    one row, or for scope "sequence" one sequence, fits."""
    elements = on.elements if elements is None else elements
    rows = elements // vocabulary
    least = longest if scope == "sequence" and grad and n * vocabulary > elements else 1
    if n and rows < least:
        what = "one row" if least == 1 else f"the longest sequence ({longest} rows)"
        raise ValueError(
            f"{what} of logits over {vocabulary} ids needs {least * vocabulary * 4 / 1e6:.0f} MB, allowed are {elements * 4 / 1e6:.0f} MB: "
            f"allow more, or choose a loss of scope 'batch', which is computed row by row in two passes"
        )
    chunk = max(1, min(n or 1, rows, on.rows))
    chunk = (
        max(least, -(-n // -(-n // chunk))) if n else chunk
    )  # the same number of chunks, of equal size, so that the last product is not small
    if not grad:
        return Strategy("score", chunk, 1, chunk * vocabulary, "no gradient is wanted")
    if n * vocabulary <= elements:
        return Strategy("kept", min(chunk, on.kept), 3, n * vocabulary, f"all {n} x {vocabulary} logits fit")
    if scope == "batch":
        return Strategy(
            "two-pass",
            chunk,
            4,
            chunk * vocabulary,
            "statistics of the whole batch enter the loss, and its logits do not fit",
        )
    what = (
        "a row's gradient depends on its own statistics"
        if scope == "token"
        else "a row's gradient depends on its sequence"
    )
    return Strategy("local", chunk, 3, chunk * vocabulary, f"{what}, and the logits do not fit")


def fused_policy_loss(
    hidden: Tensor,
    head: Head,
    targets: Tensor,
    loss_fn: LossFn[M],
    batch: Any = None,
    *,
    scope: Scope = "batch",
    lengths: Sequence[int] | None = None,
    elements: int | None = None,
    verify: bool = False,
) -> tuple[Tensor, M, TokenStats]:
    """hidden [N, d], targets [N] -> loss (0-d, differentiable), metrics, and the statistics [N] (detached).

    loss_fn   sees TokenStats of all N rows (and `batch`) and divides by itself; in the local strategy it is called once
              per chunk, when rows of later chunks still read 0, and once at the end for the loss and its metrics
    scope     "token": dL/dlogp_t depends on row t alone; "sequence": on the rows of its sequence, of which `lengths`
              [rows each] tells; "batch": on any
    verify    at the end, compare the gradients that were used with those of the complete statistics. Raises ValueError
              if they differ: then the loss depends on more than its scope says
    Raises ValueError for ids beyond the head, lengths that do not sum to N, and a chunk that does not fit.
    """
    n, vocabulary = len(targets), len(head.used)
    if scope == "sequence" and (lengths is None or sum(lengths) != n):
        raise ValueError(
            f"a loss of scope 'sequence' needs the rows of each sequence, {n} in all: lengths is {lengths}"
        )
    grad = torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in (hidden, head.weight, head.bias))
    how = plan(n, vocabulary, scope=scope, grad=grad, longest=max(lengths or [1]), elements=elements, on=limits(hidden))
    if how.kind != "local":
        keep = how.elements if how.kind == "kept" else 0
        stats = fused_stats(hidden, head, targets, chunk=how.chunk, keep_elements=keep)
        loss, metrics = loss_fn(TokenStats(logp=stats.logp, entropy=stats.entropy), batch)
        return loss, metrics, TokenStats(logp=stats.logp.detach(), entropy=stats.entropy.detach())
    check_ids(head, targets, Asked())
    outcome: dict[str, Any] = {}
    cuts = _cuts(n, how.chunk, lengths if scope == "sequence" else None)
    loss, logp, entropy = _Local.apply(
        hidden, head.weight, head.bias, targets, head, loss_fn, batch, cuts, verify, outcome
    )
    return loss, outcome["metrics"], TokenStats(logp=logp, entropy=entropy)


def _cuts(n: int, chunk: int, lengths: Sequence[int] | None) -> list[slice]:
    """Slices of at most `chunk` rows; if lengths are given, each slice ends at the end of a sequence."""
    ends, at = [], 0
    if lengths is None:
        ends = [*range(chunk, n, chunk), n]
    else:
        start = 0
        for length in lengths:
            if at + length - start > chunk and at > start:
                ends.append(at)
                start = at
            at += length
        ends.append(n)
    return [slice(lo, hi) for lo, hi in zip([0, *ends[:-1]], ends, strict=True) if hi > lo]


class _Local(torch.autograd.Function):
    """Forward computes everything; backward scales the result."""

    @staticmethod
    def forward(
        ctx,
        hidden,
        weight,
        bias,
        targets,
        head: Head,
        loss_fn: LossFn,
        batch,
        cuts: list[slice],
        verify: bool,
        outcome: dict,
    ):
        n = len(targets)
        matrix, sums = operand(head), Sums(hidden, head, ctx.needs_input_grad[:3], main=False)
        logp, entropy = (torch.zeros(n, dtype=torch.float32, device=hidden.device) for _ in range(2))
        used = []
        for rows in cuts:
            z = logits(hidden[rows], matrix, head)
            kernels = row_kernels(z, head, Asked())
            row = read(z, targets[rows], Asked(), kernels=kernels)
            logp[rows], entropy[rows] = row.logp, row.entropy
            _, _, given = _gradients(loss_fn, batch, logp, entropy)
            given = given.part(rows)
            used.append(given)
            some = _some(given)
            if (
                some is not None
                # rows without gradient (masked, clipped, zero advantage) are left out of two products, which is exact
            ):
                z, given, row = (
                    _front(z, some),
                    given.part(some),
                    type(row)(logp=row.logp[some], entropy=row.entropy[some], lse=row.lse[some]),
                )
                rows = torch.arange(rows.start, rows.stop, device=hidden.device)[some]
            dz, unit = logit_gradient(z, targets[rows], given, row, head, Asked(), kernels=kernels, dtype=hidden.dtype)
            sums.add(rows, dz, hidden[rows], matrix, unit)
            del z, dz  # before the next chunk's logits are made, or two chunks would be alive
        loss, outcome["metrics"], final = _gradients(loss_fn, batch, logp, entropy)
        if verify:
            _same(used, final)
        ctx.sums, ctx.weight, ctx.bias = sums, weight, bias
        ctx.mark_non_differentiable(logp, entropy)
        return loss, logp, entropy

    @staticmethod
    def backward(ctx, scale, *_):
        sums, ctx.sums = (
            ctx.sums,
            None,
        )  # another reference to the weight's gradient would make autograd copy it, which doubles the memory
        if sums is None:
            raise RuntimeError(
                "the gradients of fused_policy_loss were handed out: it has one backward pass; call it again for another"
            )
        return *sums.out(ctx.weight, ctx.bias, scale), *(None,) * 7


def _gradients(loss_fn: LossFn[M], batch: Any, logp: Tensor, entropy: Tensor) -> tuple[Tensor, M, Gradient]:
    """Loss, metrics and dL/dlogp, dL/dentropy [N] at these statistics."""
    with torch.enable_grad():
        leaves = logp.detach().requires_grad_(), entropy.detach().requires_grad_()
        loss, metrics = loss_fn(TokenStats(logp=leaves[0], entropy=leaves[1]), batch)
        a, b = torch.autograd.grad(loss, leaves, allow_unused=True) if loss.requires_grad else (None, None)
    return loss.detach().clone(), metrics, Gradient(logp=a, entropy=b)


def _some(given: Gradient) -> Tensor | None:
    """Indices of the rows with a gradient, if they are few enough for a gather to pay off; on a CPU only (a GPU would
    have to wait)."""
    if not given.given or given.given[0].is_cuda:
        return None
    on = torch.stack([g != 0 for g in given.given]).any(0)
    return on.nonzero().squeeze(1) if float(on.float().mean()) < 0.75 else None


def _front(z: Tensor, some: Tensor) -> Tensor:
    """The rows `some` (rising) of z, moved to its front: block by block, because a second buffer would double the
    memory."""
    for rows in in_cache(z[: len(some)]):  # a row never moves towards the end, so none is overwritten before it is read
        z[rows] = z[some[rows]]
    return z[: len(some)]


def _same(used: list[Gradient], final: Gradient) -> None:
    for name in ("logp", "entropy"):
        want = getattr(final, name)
        if want is not None:
            parts = [getattr(u, name) for u in used]
            gradient = torch.cat([torch.zeros(0, device=want.device) if p is None else p for p in parts])
            if len(gradient) != len(want) or not torch.allclose(
                gradient, want, rtol=1e-5, atol=1e-7 * float(want.abs().max())
            ):
                worst = int((gradient - want).abs().argmax()) if len(gradient) == len(want) else 0
                raise ValueError(
                    f"the gradient of row {worst} changed when later rows were known: this loss looks beyond the scope that it was given; "
                    f"use scope='sequence' or scope='batch'"
                )
