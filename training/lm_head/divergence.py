"""Divergences between the whole distributions of a model and its teachers, without a tensor of tokens x vocabulary.

p is the model's distribution at a token, q the teacher's, over the same ids:
    forward          KL(q || p)                                   Hinton et al. 2015 (arXiv 1503.02531)
    reverse          KL(p || q)                                   MiniLLM, Gu et al. 2023 (arXiv 2306.08543)
    jensen_shannon   b KL(q || m) + (1 - b) KL(p || m), m = b q + (1 - b) p       GKD, Agarwal et al. 2023 (arXiv 2306.13649)
    skewed_forward   KL(q || a q + (1 - a) p)                     DistiLLM, Ko et al. 2024 (arXiv 2402.03898)
    skewed_reverse   KL(p || a p + (1 - a) q)
`mix` is b or a. With h_j = p_j dD/dp_j the gradient with respect to the logits is dz_j = h_j - p_j sum_i h_i:
    forward -q    reverse p log(p/q)    jensen_shannon (1 - b) p log(p/m)
    skewed_forward -(1 - a) p q/m       skewed_reverse p (log(p/m) - a p/m)
(terms of h that are a multiple of p cancel). Only the model has a gradient. A teacher is given by its hidden states and
its head, which may have another width; if vocabularies were padded to different sizes, the ids that all of them have
are compared.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, get_args

import torch
from torch import Tensor

from training.lm_head.logprob import (
    Asked,
    Head,
    Sums,
    as_operand,
    check_ids,
    dense_logits,
    in_cache,
    limits,
    logits,
    operand,
    shift,
)
from training.model.products import blocks

Kind = Literal["forward", "reverse", "jensen_shannon", "skewed_forward", "skewed_reverse"]
Teacher = tuple[Tensor, Head]  # hidden states [N, d'] before the same targets, and the head that reads them


def check_kind(kind: str, mix: float) -> None:
    """Raises ValueError for an unknown divergence, and for a mix that makes it another divergence."""
    if kind not in get_args(Kind):
        raise ValueError(f"divergence is {kind!r}; choose {', '.join(map(repr, get_args(Kind)))}")
    if kind == "jensen_shannon" and not 0 < mix < 1:
        raise ValueError(
            f"mix is {mix}: it is the teacher's share of the mixture, between 0 and 1; at the ends choose 'forward' or 'reverse'"
        )
    if kind.startswith("skewed") and not 0 <= mix < 1:
        raise ValueError(f"mix is {mix}: it is the skew, 0 (none) or more and below 1, where nothing is left to learn")


def dense_divergence(log_p: Tensor, log_q: Tensor, kind: Kind, mix: float = 0.5) -> Tensor:
    """Log-probs [..., V] of the model and the teacher -> the divergence [...], by the definition and by autograd."""
    check_kind(kind, mix)

    def kl(a: Tensor, b: Tensor) -> Tensor:
        return torch.where(a == -torch.inf, 0.0, a.exp() * (a - b)).sum(-1)

    def mixed(a: Tensor, b: Tensor) -> Tensor:
        """log of mix exp(a) + (1 - mix) exp(b)."""
        return b if mix == 0 else torch.logaddexp(a + math.log(mix), b + math.log1p(-mix))

    if kind == "forward":
        return kl(log_q, log_p)
    if kind == "reverse":
        return kl(log_p, log_q)
    if kind == "jensen_shannon":
        m = mixed(log_q, log_p)
        return mix * kl(log_q, m) + (1 - mix) * kl(log_p, m)
    return kl(log_q, mixed(log_q, log_p)) if kind == "skewed_forward" else kl(log_p, mixed(log_p, log_q))


def dense_head_divergence(
    hidden: Tensor, head: Head, teachers: Sequence[Teacher], kind: Kind, mix: float = 0.5, weights: Tensor | None = None
) -> Tensor:
    """The reference of `fused_divergence`, in float64 and [N, V] tensors."""
    head, teachers = _same_ids(head, teachers)
    log_p = dense_logits(hidden, head).log_softmax(-1)
    each = [dense_divergence(log_p, dense_logits(*t).log_softmax(-1).detach(), kind, mix) for t in teachers]
    return sum((d if weights is None else weights[k].double() * d) for k, d in enumerate(each))  # type: ignore[return-value]


def fused_divergence(
    hidden: Tensor,
    head: Head,
    teachers: Sequence[Teacher],
    kind: Kind,
    mix: float = 0.5,
    weights: Tensor | None = None,
    *,
    chunk: int | None = None,
    keep_elements: int | None = None,
) -> Tensor:
    """hidden [N, d] -> sum_k weights[k] D(model, teacher k) [N] float32, differentiable in hidden and in the head's
    weight and bias.

    weights: [K, N], of each teacher at each token; None: 1. chunk: rows at a time, the model's logits and one teacher's
    logits for them are alive. keep_elements: the gradient of the logits is kept for backward if N x V is at most this,
    else the logits are recomputed; None: the device's `Limits`. Raises ValueError for an invalid kind or mix, for no
    teacher, and for a teacher with another number of rows.
    """
    check_kind(kind, mix)
    if not teachers:
        raise ValueError("a divergence needs a teacher, and there is none")
    for k, (theirs, _) in enumerate(teachers):
        if len(theirs) != len(hidden):
            raise ValueError(f"teacher {k} has hidden states of {len(theirs)} tokens, and the model of {len(hidden)}")
    head, teachers = _same_ids(head, teachers)
    check_ids(head, torch.zeros(0, dtype=torch.long), Asked())
    most, v = limits(hidden), len(head.used)
    if chunk is None:
        chunk = max(1, min(most.kept, most.elements // (2 * v)))
    keep = hidden.shape[0] * v <= (most.elements if keep_elements is None else keep_elements)
    return _Divergence.apply(
        hidden, head.weight, head.bias, head, teachers, weights, kind, mix, chunk, keep and torch.is_grad_enabled()
    )


def _same_ids(head: Head, teachers: Sequence[Teacher]) -> tuple[Head, list[Teacher]]:
    """The heads, cut to the ids that all of them have."""
    n = min(len(h.used) for h in (head, *(h for _, h in teachers)))

    def cut(h: Head) -> Head:
        return Head(weight=h.weight, bias=h.bias, temperature=h.temperature, softcap=h.softcap, vocabulary=n)

    return cut(head), [(x, cut(h)) for x, h in teachers]


class _Divergence(torch.autograd.Function):
    @staticmethod
    def forward(ctx, hidden, weight, bias, head: Head, teachers, weights, kind: Kind, mix, chunk: int, keep: bool):
        n, matrix, kept = len(hidden), operand(head), []
        out = torch.zeros(n, dtype=torch.float32, device=hidden.device)
        for rows in blocks(n, chunk):
            out[rows], dz = _rows(hidden, matrix, head, teachers, weights, kind, mix, rows, gradient=keep)
            if keep:
                kept.append(dz)
            del dz  # before the next chunk's is made
        ctx.save_for_backward(hidden, weight, bias, *kept)
        ctx.asked = head, teachers, weights, kind, mix, chunk
        return out

    @staticmethod
    def backward(ctx, upstream):
        hidden, weight, bias, *kept = ctx.saved_tensors
        head, teachers, weights, kind, mix, chunk = ctx.asked
        matrix, sums = operand(head), Sums(hidden, head, ctx.needs_input_grad[:3])
        for i, rows in enumerate(blocks(len(hidden), chunk)):
            if kept:
                dz = kept[i].clone()
            else:
                dz = _rows(hidden, matrix, head, teachers, weights, kind, mix, rows, gradient=True)[1]
            dz.mul_(upstream[rows, None])
            sums.add(rows, *_split(as_operand(dz, hidden.dtype), hidden[rows], matrix))
            del dz
        return *sums.out(weight, bias), *(None,) * 7


def _split(pair: tuple[Tensor, Tensor | None], hidden: Tensor, matrix: Tensor) -> tuple:
    dz, unit = pair
    return dz, hidden, matrix, unit


def _rows(
    hidden: Tensor,
    matrix: Tensor,
    head: Head,
    teachers: Sequence[Teacher],
    weights: Tensor | None,
    kind: Kind,
    mix: float,
    rows: slice,
    *,
    gradient: bool,
) -> tuple[Tensor, Tensor]:
    """The divergence [n] of some rows, and its gradient [n, V] with respect to W h + bias (or an empty tensor)."""
    z = logits(hidden[rows], matrix, head)
    log_p = shift(z, z.logsumexp(-1))
    several = len(teachers) > 1
    total = log_p.new_zeros(len(log_p))
    dz = torch.zeros_like(log_p) if gradient and several else log_p
    for k, (theirs, their_head) in enumerate(teachers):
        q = logits(theirs[rows], operand(their_head), their_head)
        log_q = shift(q, q.logsumexp(-1))
        w = None if weights is None else weights[k, rows].to(total)
        for part in in_cache(log_p):
            p_part, q_part = log_p[part], log_q[part]
            terms, h = _terms(p_part, q_part, kind, mix, gradient)
            scale = 1.0 if w is None else w[part]
            total[part] += scale * terms
            if gradient:
                d = h.sub_(p_part.exp().mul_(h.sum(-1, keepdim=True)))
                if w is not None:
                    d.mul_(w[part, None])
                if head.softcap is not None:  # dz / d(W h + bias): its logits are needed, which log_p has up to lse
                    d.mul_(_slope(hidden[rows][part], matrix, head))
                if head.temperature != 1.0:
                    d.div_(head.temperature)
                if several:
                    dz[part] += d
                else:
                    p_part.copy_(d)
        del q, log_q
    return total, dz


def _terms(log_p: Tensor, log_q: Tensor, kind: Kind, mix: float, gradient: bool) -> tuple[Tensor, Tensor]:
    """The divergence [n] of a block of rows and p dD/dp [n, V] (or an empty tensor): the table of this file's head."""
    empty = log_p.new_zeros(0)
    if kind in ("forward", "reverse"):
        own, gap = (log_q, log_q - log_p) if kind == "forward" else (log_p, log_p - log_q)
        own = own.exp()
        d = torch.linalg.vecdot(own, gap)
        if not gradient:
            return d, empty
        return d, own.neg_() if kind == "forward" else gap.mul_(own)
    p, q = log_p.exp(), log_q.exp()
    if kind == "jensen_shannon":
        m = torch.logaddexp(log_q + math.log(mix), log_p + math.log1p(-mix))
        gap = log_p - m
        d = mix * torch.linalg.vecdot(q, log_q - m) + (1 - mix) * torch.linalg.vecdot(p, gap)
        return d, gap.mul_(p).mul_(1 - mix) if gradient else empty
    first, second = (log_q, log_p) if kind == "skewed_forward" else (log_p, log_q)
    m = second if mix == 0 else torch.logaddexp(first + math.log(mix), second + math.log1p(-mix))
    d = torch.linalg.vecdot(first.exp(), first - m)
    if not gradient:
        return d, empty
    if kind == "skewed_forward":
        return d, (log_p + log_q - m).exp_().mul_(mix - 1)
    h = (log_p - m).mul_(p)
    return d, h if mix == 0 else h.sub_((2 * log_p - m).exp_().mul_(mix))  # without skew, p/m is unbounded


def _slope(hidden: Tensor, matrix: Tensor, head: Head) -> Tensor:
    """[n, V] of softcap: 1 - tanh^2."""
    plain = Head(weight=head.weight, bias=head.bias, vocabulary=head.vocabulary)
    return 1 - logits(hidden, matrix, plain).div_(head.softcap or 1.0).tanh_().square_()
