"""Log-probs, entropies and other statistics of target tokens from a language model's head, without a tensor of tokens x
vocabulary: the only place where a head is applied.

For row t with logits z_t = softcap(W h_t + bias) / temperature, target y_t, p_t = softmax(z_t):
    lse_t = log sum_j exp z_tj     logp_t = z_t[y_t] - lse_t     H_t = lse_t - sum_j p_tj z_tj
and, asked for: log-probs of `selected` ids, KL_t = sum_j p_tj (log p_tj - log q_tj) to a reference head's q, sum_j
p_tj^2, the top k ids. For any loss L with a = dL/dlogp, b = dL/dH, c = dL/dlse, s_k = dL/dlogp(id_k), k = dL/dKL the
gradient with respect to the logits is
    dz_j = a [j = y] + sum_k s_k [j = id_k] + p_j (alpha + beta log p_j - k log q_j),
    alpha = c - a - sum_k s_k - b H - k KL,     beta = k - b
so that the operation does not depend on the algorithm above it. Rows are computed in chunks, in float32 whatever the
operands are, and each chunk in place: one buffer of chunk x vocabulary. Backward recomputes a chunk's logits (4
products of N x V x d in all), unless all of them fit in `keep_elements`; then they are kept (3 products).
training/lm_head/fused_loss.py has the strategy of 3 products that keeps none.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import ModuleType

import torch
from torch import Tensor

from training.model import products
from training.model.products import blocks

_FLOOR = -1e4  # exp(-1e4) is 0 in every float type
_CACHED = 1 << 18  # elements of a block of rows that stays in the processor's cache over several passes


@dataclass(frozen=True)
class Limits:
    """A device's default limits: `elements` float32 logits alive at once (4 bytes each), `rows` of a chunk, `kept` rows
    of a chunk if all chunks' logits are kept."""

    elements: int
    rows: int
    kept: int


# On a CPU more rows gain nothing: the products are at full speed, and the buffer would leave the cache. A GPU's
# products need thousands of rows, and each chunk reads and writes all of dW: 134 MB of logits on a CPU, 1.1 GB on a
# GPU.
CPU, GPU = Limits(elements=1 << 25, rows=1024, kept=512), Limits(elements=1 << 28, rows=4096, kept=4096)


def limits(x: Tensor) -> Limits:
    return GPU if x.is_cuda else CPU


@dataclass(frozen=True, kw_only=True)
class Head:
    """weight [V, d], bias [V]. softcap c: c tanh(z / c). vocabulary: rows of the weight in use; the others are padding,
    of probability 0.

    Raises ValueError for a temperature or softcap that is not positive, and for a vocabulary that the weight does not
    have.
    """

    weight: Tensor
    bias: Tensor | None = None
    temperature: float = 1.0
    softcap: float | None = None
    vocabulary: int | None = None

    def __post_init__(self) -> None:
        if self.temperature <= 0:
            raise ValueError(
                f"temperature is {self.temperature}: log-probabilities exist for positive temperatures only; sample with 1.0 to train"
            )
        if self.softcap is not None and self.softcap <= 0:
            raise ValueError(
                f"softcap is {self.softcap}: it bounds the logits and must be positive; leave it out for none"
            )
        if self.vocabulary is not None and not 0 < self.vocabulary <= len(self.weight):
            raise ValueError(
                f"vocabulary is {self.vocabulary} and the head has {len(self.weight)} rows: it counts the first rows in use"
            )

    @property
    def used(self) -> Tensor:
        return self.weight if self.vocabulary is None else self.weight[: self.vocabulary]


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What else to compute for each row: log-probs of selected ids [N, K], the KL to (hidden [N, d'], head) of a
    reference over the same vocabulary, sum p^2, the `top_k` most likely ids."""

    selected: Tensor | None = None
    reference: tuple[Tensor, Head] | None = None
    squares: bool = False
    top_k: int = 0

    def part(self, rows: slice | Tensor) -> Asked:
        return Asked(
            selected=None if self.selected is None else self.selected[rows],
            reference=None if self.reference is None else (self.reference[0][rows], self.reference[1]),
            squares=self.squares,
            top_k=self.top_k,
        )


@dataclass(kw_only=True)
class HeadStats:
    """Per row, float32: logp, entropy, lse, kl [N], selected [N, K] with gradient; squares [N], top_logp and top_ids
    [N, k] without."""

    logp: Tensor
    entropy: Tensor
    lse: Tensor
    selected: Tensor | None = None
    kl: Tensor | None = None
    squares: Tensor | None = None
    top_logp: Tensor | None = None
    top_ids: Tensor | None = None


@dataclass(kw_only=True)
class RowStats:
    """The statistics [n] that the gradient of a row's logits reads; logp if it is known."""

    entropy: Tensor
    lse: Tensor
    kl: Tensor | None = None
    logp: Tensor | None = None


@dataclass(kw_only=True)
class Gradient:
    """dL/d of a row's logp, entropy, lse, kl [n] and selected [n, K]; None is zero."""

    logp: Tensor | None = None
    entropy: Tensor | None = None
    lse: Tensor | None = None
    selected: Tensor | None = None
    kl: Tensor | None = None

    def part(self, rows: slice | Tensor) -> Gradient:
        return Gradient(**{k: None if v is None else v[rows] for k, v in vars(self).items()})

    @property
    def given(self) -> list[Tensor]:
        return [v for v in vars(self).values() if v is not None]


def dense_logprob(hidden: Tensor, weight: Tensor, targets: Tensor, temperature: float = 1.0) -> tuple[Tensor, Tensor]:
    """The reference of logp [N] and entropy [N], by the definition, in float64: hidden [N, d], weight [V, d], targets
    [N]."""
    s = dense_stats(hidden, Head(weight=weight, temperature=temperature), targets)
    return s.logp, s.entropy


def dense_stats(hidden: Tensor, head: Head, targets: Tensor, wanted: Asked | None = None) -> HeadStats:
    """The reference of everything, by the definition, in float64 and [N, V] tensors."""
    wanted = wanted or Asked()
    z = dense_logits(hidden, head)
    logp = torch.log_softmax(z, dim=-1)
    weigh = lambda x: torch.where(logp.isinf(), 0.0, logp.exp() * x).sum(-1)  # noqa: E731
    top = logp.topk(wanted.top_k, -1) if wanted.top_k else None
    return HeadStats(
        logp=logp.gather(1, targets[:, None]).squeeze(1),
        entropy=-weigh(logp),
        lse=z.logsumexp(-1),
        selected=None if wanted.selected is None else logp.gather(1, wanted.selected),
        kl=weigh(logp - torch.log_softmax(dense_logits(*wanted.reference), -1)) if wanted.reference else None,
        squares=weigh(logp.exp()) if wanted.squares else None,
        top_logp=top and top.values,
        top_ids=top and top.indices,
    )


def dense_logits(hidden: Tensor, head: Head) -> Tensor:
    """[N, V] float64, by the definition."""
    z = hidden.double() @ head.used.double().T
    if head.bias is not None:
        z = z + head.bias[: z.shape[1]].double()
    if head.softcap is not None:
        z = head.softcap * torch.tanh(z / head.softcap)
    return z / head.temperature


def fused_stats(
    hidden: Tensor,
    head: Head,
    targets: Tensor,
    wanted: Asked | None = None,
    *,
    chunk: int | None = None,
    keep_elements: int | None = None,
) -> HeadStats:
    """hidden [N, d], targets [N] int64 -> `HeadStats`, differentiable in hidden and in the head's weight and bias.

    chunk: rows at a time; keep_elements: the logits are kept for backward if N x V is at most this (4 bytes each);
    None: the device's `Limits`. Where the weight has an attribute `main_grad` (float32, its shape), its gradient is
    added there and autograd sees none. Raises ValueError for ids beyond the rows of the head (on a CPU only; on a GPU
    the check would have to wait).
    """
    wanted = wanted or Asked()
    check_ids(head, targets, wanted)
    most = limits(hidden)
    if chunk is None:
        chunk = max(1, min(most.kept, most.elements // len(head.used)))
    keep = (
        hidden.shape[0] * len(head.used) <= (most.elements if keep_elements is None else keep_elements)
        and torch.is_grad_enabled()
    )
    names = [
        "logp",
        "entropy",
        "lse",
        *(k for k in ("selected", "kl", "squares") if _wanted(wanted, k)),
        *(("top_logp", "top_ids") * bool(wanted.top_k)),
    ]
    out = _Stats.apply(hidden, head.weight, head.bias, targets, head, wanted, names, chunk, keep)
    return HeadStats(**dict(zip(names, out, strict=True)))


def fused_logprob(
    hidden: Tensor,
    weight: Tensor,
    targets: Tensor,
    *,
    temperature: float = 1.0,
    chunk: int | None = None,
    keep_elements: int | None = None,
) -> tuple[Tensor, Tensor]:
    """hidden [N, d], weight [V, d], targets [N] int64 -> (logp [N], entropy [N]) float32 in nats: `fused_stats` of a
    plain head."""
    stats = fused_stats(
        hidden, Head(weight=weight, temperature=temperature), targets, chunk=chunk, keep_elements=keep_elements
    )
    return stats.logp, stats.entropy


def check_ids(head: Head, targets: Tensor, wanted: Asked) -> None:
    """Raises ValueError if a target or selected id is beyond the head's rows in use; checks on a CPU only."""
    for name, ids in (("target", targets), ("selected id", wanted.selected)):
        if (
            ids is not None
            and ids.numel()
            and not ids.is_cuda
            and (int(ids.min()) < 0 or int(ids.max()) >= len(head.used))
        ):
            worst = int(ids.max()) if int(ids.max()) >= len(head.used) else int(ids.min())
            raise ValueError(
                f"a {name} is {worst} and the head has {len(head.used)} rows in use: a tokenizer must not know more ids than its model"
            )


def _wanted(wanted: Asked, name: str) -> bool:
    return {"selected": wanted.selected is not None, "kl": wanted.reference is not None, "squares": wanted.squares}[
        name
    ]


class _Stats(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx, hidden, weight, bias, targets, head: Head, wanted: Asked, names: list[str], chunk: int, keep: bool
    ):
        ctx.set_materialize_grads(False)
        chunks, kept = [], []
        matrix = operand(head)
        for rows in blocks(hidden.shape[0], chunk):
            z = logits(hidden[rows], matrix, head)
            q = reference_logp(wanted.part(rows))
            chunks.append(read(z, targets[rows], wanted.part(rows), q, row_kernels(z, head, wanted)))
            if keep:
                kept.append(z)
            del z, q  # before the next chunk's are made
        stats = {n: torch.cat([getattr(c, n) for c in chunks]) if chunks else _empty(n, hidden, wanted) for n in names}
        ctx.save_for_backward(
            hidden,
            weight,
            bias,
            targets,
            stats["lse"],
            stats["entropy"],
            *([stats["kl"]] if "kl" in stats else []),
            *kept,
        )
        ctx.head, ctx.asked, ctx.chunk, ctx.names, ctx.n_kept = head, wanted, chunk, names, len(kept)
        ctx.mark_non_differentiable(*(stats[n] for n in names if n in ("squares", "top_logp", "top_ids")))
        return tuple(stats[n] for n in names)

    @staticmethod
    def backward(ctx, *grads):
        hidden, weight, bias, targets, lse, entropy, *rest = ctx.saved_tensors
        kept = rest[len(rest) - ctx.n_kept :]
        kl = rest[0] if "kl" in ctx.names else None
        gradient = Gradient(
            **{n: g for n, g in zip(ctx.names, grads, strict=True) if n in Gradient.__dataclass_fields__}
        )
        head, matrix = ctx.head, operand(ctx.head)
        sums = Sums(hidden, head, ctx.needs_input_grad[:3])
        for i, rows in enumerate(blocks(hidden.shape[0], ctx.chunk)):
            wanted, given = ctx.asked.part(rows), gradient.part(rows)
            z = kept[i].clone() if kept else logits(hidden[rows], matrix, head)
            kernels = row_kernels(z, head, ctx.asked)
            if not kept and kernels is None:
                shift(z, lse[rows])
            row = RowStats(entropy=entropy[rows], lse=lse[rows], kl=None if kl is None else kl[rows])
            dz, unit = logit_gradient(
                z, targets[rows], given, row, head, wanted, reference_logp(wanted), kernels, hidden.dtype
            )
            sums.add(rows, dz, hidden[rows], matrix, unit)
            del z, dz
        return *sums.out(weight, bias), None, None, None, None, None, None


def _empty(name: str, hidden: Tensor, wanted: Asked) -> Tensor:
    width = ()
    if name == "selected" and wanted.selected is not None:
        width = (wanted.selected.shape[1],)
    elif name in ("top_logp", "top_ids"):
        width = (wanted.top_k,)
    return hidden.new_zeros((0, *width), dtype=torch.long if name == "top_ids" else torch.float32)


def operand(head: Head) -> Tensor:
    """The weight in the dtype for the products: unchanged on a GPU, whose products sum in float32; float32 on a CPU,
    whose products would not."""
    return head.used if head.used.is_cuda else head.used.detach().float()


def product(a: Tensor, b: Tensor) -> Tensor:
    """a @ b in float32, for operands of any type."""
    if a.is_cuda and a.dtype != torch.float32:
        return torch.mm(a, b, out_dtype=torch.float32)
    return products.input_gradient(a.detach().float(), b)


def add_product(to: Tensor, dz: Tensor, hidden: Tensor, beta: int) -> None:
    """to = beta to + dz^T @ hidden in float32, for operands of any type; with beta 0 the old content of `to` is not
    read."""
    if dz.is_cuda and dz.dtype != torch.float32:
        torch.addmm(to, dz.T, hidden, beta=beta, out_dtype=torch.float32, out=to)
    else:
        products.add_weight_gradient(to, dz.detach().float(), hidden.detach().float(), beta=beta)


def logits(hidden: Tensor, matrix: Tensor, head: Head) -> Tensor:
    """[n, V] float32, a fresh buffer."""
    if hidden.is_cuda:
        z = product(hidden, matrix.T)
    else:
        z = products.forward(hidden.detach().float(), matrix)
    if head.bias is not None:
        z += head.bias[: z.shape[1]].detach()
    if head.softcap is not None:
        z.div_(head.softcap).tanh_().mul_(head.softcap)
    return z if head.temperature == 1.0 else z.div_(head.temperature)


def reference_logp(wanted: Asked) -> Tensor | None:
    """log q [n, V] of the rows of `asked`, or None."""
    if wanted.reference is None:
        return None
    hidden, head = wanted.reference
    z = logits(hidden, operand(head), head)
    return shift(z, z.logsumexp(-1))


def shift(z: Tensor, lse: Tensor) -> Tensor:
    """Logits become log-probs, in place; -inf becomes a finite number whose exp is exactly 0, so that no 0 x inf
    arises."""
    return z.sub_(lse[:, None]).clamp_min_(_FLOOR)


def in_cache(z: Tensor) -> Iterator[slice]:
    """Blocks of rows so small that several passes over one cost a single read of memory; all rows at once on a GPU."""
    return blocks(len(z), len(z) or 1) if z.is_cuda else blocks(len(z), max(4, _CACHED // max(1, z.shape[1])))


def row_kernels(z: Tensor, head: Head, wanted: Asked) -> ModuleType | None:
    """training/lm_head/kernels.py if it applies: a GPU, a plain head, and only logp, entropy and lse requested."""
    if not z.is_cuda or head.softcap is not None or wanted != Asked():
        return None
    return importlib.import_module("training.lm_head.kernels")


def read(
    z: Tensor, targets: Tensor, wanted: Asked, log_q: Tensor | None = None, kernels: ModuleType | None = None
) -> HeadStats:
    """The statistics of n rows of logits z [n, V], which become their log-probs in place (with kernels they stay
    logits)."""
    n = len(z)
    if kernels is not None:
        logp, entropy, lse = kernels.row_stats(z, targets)
        return HeadStats(logp=logp, entropy=entropy, lse=lse)
    out = {
        k: z.new_empty(n)
        for k in (
            "logp",
            "entropy",
            "lse",
            *(["kl"] if log_q is not None else []),
            *(["squares"] if wanted.squares else []),
        )
    }
    for rows in in_cache(z):
        part = z[rows]
        top = part.amax(-1, keepdim=True)
        # Shifted by the maximum, so that neither exp overflows nor lse - E[z] cancels. The target's own term is kept
        # separately: log p of a confident token is -log1p(the rest), which float32 would otherwise round to 0.
        part.sub_(top).clamp_min_(_FLOOR)
        e = part.exp()
        at = targets[rows, None]
        own, own_z = e.gather(1, at).squeeze(1), part.gather(1, at).squeeze(1)
        e.scatter_(1, at, 0.0)
        rest = e.sum(-1)
        total = rest + own
        log_total = torch.where(own == 1, rest.log1p(), total.log())
        out["lse"][rows] = log_total + top.squeeze(-1)
        out["entropy"][rows] = log_total - (torch.linalg.vecdot(e, part) + own * own_z) / total
        part.sub_(log_total[:, None])
        if wanted.squares:
            out["squares"][rows] = (torch.linalg.vecdot(e, e) + own.square()) / total**2
        if log_q is not None:
            gap = part - log_q[rows]
            out["kl"][rows] = (torch.linalg.vecdot(e, gap) + own * gap.gather(1, at).squeeze(1)) / total
    out["logp"] = z.gather(1, targets[:, None]).squeeze(1)
    if wanted.selected is not None:
        out["selected"] = z.gather(1, wanted.selected)
    if wanted.top_k:
        out["top_logp"], out["top_ids"] = z.topk(wanted.top_k, -1)
    return HeadStats(**out)


def logit_gradient(
    log_p: Tensor,
    targets: Tensor,
    given: Gradient,
    row: HeadStats | RowStats,
    head: Head,
    wanted: Asked,
    log_q: Tensor | None = None,
    kernels: ModuleType | None = None,
    dtype: torch.dtype = torch.float32,
) -> tuple[Tensor, Tensor | None]:
    """dL/d(W h + bias) [n, V] of rows whose log-probs are log_p, in place, and the 0-d unit in which it is given (None:
    1). row: their entropy, lse and kl. With kernels log_p still holds the logits, and the result uses the same memory.
    On a GPU it has the type `dtype`; in float16 its unit is a power of two that puts a bound of the largest entry near
    2^8, because gradients of 1/N would round to 0."""
    a, b, k = (0.0 if g is None else g for g in (given.logp, given.entropy, given.kl))
    of_kl, of_selected = _of_kl(given, row, log_q), _of_selected(given, wanted)
    zero = log_p.new_zeros(len(log_p))
    alpha = zero + (0.0 if given.lse is None else given.lse) - a - b * row.entropy
    if of_selected is not None:
        alpha = alpha - of_selected[1].sum(-1)
    if of_kl is not None:
        alpha = alpha - of_kl[0] * of_kl[1]
    beta = None if given.entropy is None and given.kl is None else zero + k - b
    if beta is not None and not beta.is_cuda and not bool(beta.any()):
        beta = None  # no loss uses the entropy: half the work
    at = targets[:, None]
    own = (
        log_p.gather(1, at).squeeze(1)
        if kernels is None
        else (log_p.gather(1, at).squeeze(1) - row.lse if row.logp is None else row.logp)
    )
    # The target's entry holds a (1 - p_y), which float32 would round to 0 for a confident token: by expm1 of its
    # log-prob instead.
    entry = own.exp() * (alpha + a + (0.0 if beta is None else beta * own)) - a * torch.expm1(own)
    if of_kl is not None:
        entry = entry - own.exp() * of_kl[0] * of_kl[2].gather(1, at).squeeze(1)
    if kernels is not None:
        unit = None
        if dtype == torch.float16:
            most = torch.maximum(
                entry.abs(), alpha.abs() + (0.0 if beta is None else beta.abs() / math.e)
            )  # p |log p| is 1/e at most
            unit = _unit(most.amax() / head.temperature)
            alpha, entry, beta = alpha / unit, entry / unit, None if beta is None else beta / unit
        return kernels.row_gradient(log_p, targets, row.lse, alpha, beta, entry, 1 / head.temperature, dtype), unit
    for rows in in_cache(log_p):
        part = log_p[rows]
        if head.softcap is not None:
            slope = 1 - ((part + row.lse[rows, None]) * (head.temperature / head.softcap)).clamp_(-1, 1).square()
        if beta is None:
            part.exp_().mul_(alpha[rows, None])
        else:
            p = part.exp()
            part.mul_(beta[rows, None]).add_(alpha[rows, None])
            if of_kl is not None:
                part.sub_(of_kl[0][rows, None] * of_kl[2][rows])
            part.mul_(p)
        part.scatter_(1, at[rows], entry[rows, None])
        if of_selected is not None:
            ids, gradient = of_selected
            part.scatter_add_(1, ids[rows], gradient[rows])
        if head.softcap is not None:
            part.mul_(slope)
        if head.temperature != 1.0:
            part.div_(head.temperature)
    return as_operand(log_p, dtype)


def as_operand(dz: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor | None]:
    """A gradient [n, V] float32 in the dtype for the products, and the 0-d unit in which it is then given."""
    if not dz.is_cuda or dtype == torch.float32:  # a CPU's products take float32
        return dz, None
    unit = _unit(dz.abs().amax()) if dtype == torch.float16 else None
    return (dz if unit is None else dz.div_(unit)).to(dtype), unit


def _of_kl(given: Gradient, row: HeadStats | RowStats, log_q: Tensor | None) -> tuple[Tensor, Tensor, Tensor] | None:
    """(dL/dkl [n], kl [n], log q [n, V]) if the loss uses the KL."""
    if given.kl is None:
        return None
    assert row.kl is not None and log_q is not None  # what has a gradient was read
    return given.kl, row.kl, log_q


def _of_selected(given: Gradient, wanted: Asked) -> tuple[Tensor, Tensor] | None:
    """(ids, dL/d of their log-probs) [n, K] if the loss uses selected ids."""
    if given.selected is None:
        return None
    assert wanted.selected is not None  # what has a gradient was read
    return wanted.selected, given.selected


def _unit(most: Tensor) -> Tensor:
    """The power of two by which numbers of at most `most` (0-d) are divided to lie below 2^8."""
    return torch.exp2(torch.frexp(most.clamp_min(1e-30)).exponent - 8)


@dataclass
class Sums:
    """dH, dW and db, added up over chunks in float32. needed: which of hidden, weight and bias want a gradient; main:
    whether the gradient of a weight with `main_grad` may be added there at once (not if it is still to be scaled)."""

    hidden: Tensor
    head: Head
    needed: tuple[bool, bool, bool]
    main: bool = True
    d_hidden: Tensor | None = field(init=False, default=None)
    d_weight: Tensor | None = field(init=False, default=None)
    d_bias: Tensor | None = field(init=False, default=None)
    added: bool = field(
        init=False, default=False
    )  # whether d_weight holds a sum yet: the first product is written, not added to zeros

    def __post_init__(self) -> None:
        if self.needed[0]:
            self.d_hidden = torch.zeros_like(self.hidden)
        if self.needed[1]:
            main = getattr(self.head.weight, "main_grad", None) if self.main else None
            self.added = main is not None
            self.d_weight = torch.empty_like(self.head.weight, dtype=torch.float32) if main is None else main
        if self.needed[2] and self.head.bias is not None:
            self.d_bias = torch.zeros_like(self.head.bias, dtype=torch.float32)

    def add(self, rows: slice | Tensor, dz: Tensor, hidden: Tensor, matrix: Tensor, unit: Tensor | None = None) -> None:
        """rows: the indices of the n rows of dz [n, V] (in this unit) and hidden [n, d] among all rows."""
        used = dz.shape[1]
        if self.d_bias is not None:
            d = dz.sum(0, dtype=torch.float32)
            self.d_bias[:used] += d if unit is None else d * unit
        if self.d_hidden is not None:
            d = product(dz, matrix)
            self.d_hidden[rows] = (d if unit is None else d.mul_(unit)).to(self.d_hidden.dtype)
        if self.d_weight is not None:
            to = self._weight(self.d_weight, used)
            if unit is None:
                add_product(to, dz, hidden, beta=int(self.added))
            elif self.added:
                to.addcmul_(product(dz.T, hidden), unit)
            else:
                torch.mul(product(dz.T, hidden), unit, out=to)
            self.added = True

    def _weight(self, d_weight: Tensor, used: int) -> Tensor:
        """The rows of dW in use; padding rows have no gradient."""
        if not self.added:
            d_weight[used:].zero_()
        return d_weight[:used]

    def out(
        self, weight: Tensor, bias: Tensor | None, by: Tensor | None = None
    ) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """The three gradients, times a 0-d factor, each in the dtype of its tensor; the gradient of a weight with
        `main_grad` is already there."""
        if self.d_weight is not None and not self.added:
            self._weight(self.d_weight, 0)
        main = getattr(weight, "main_grad", None)
        if main is not None and self.d_weight is not None and self.d_weight is not main:
            main.addcmul_(self.d_weight, by)
        d_weight = None if main is not None else _times(self.d_weight, by, weight)
        return _times(self.d_hidden, by, self.hidden), d_weight, _times(self.d_bias, by, bias)


def _times(d: Tensor | None, by: Tensor | None, like: Tensor | None) -> Tensor | None:
    """d by in the type of `like`: one pass over possibly gigabytes, in place if the dtype stays."""
    if d is None or like is None:
        return None
    if by is None:
        return d.to(like.dtype)
    return torch.mul(d, by, out=d if d.dtype == like.dtype else torch.empty_like(d, dtype=like.dtype))
