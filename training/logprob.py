"""(logp, entropy) of target tokens from hidden states, without an [N, V] tensor: the one place where a model's head is read.

For row t with logits z_t = W h_t / temperature, target y_t, p_t = softmax(z_t):
    logp_t = z_t[y_t] - lse_t          H_t = lse_t - sum_j p_tj z_tj
and for any loss L(logp, H) with a_t = dL/dlogp_t, b_t = dL/dH_t the gradient with respect to the logits is
    dz_tj = a_t ([j = y_t] - p_tj) - b_t p_tj (z_tj - lse_t + H_t)
so that the operation never knows the algorithm above it. Rows are worked off in chunks; backward recomputes a chunk's logits
(4 products of size N x V x d in all) unless all of them fit in `keep_elements`, where they are kept (3 products).
"""

from __future__ import annotations

import torch
from torch import Tensor

_FLOOR = -1e4  # exp(-1e4) is 0 in every float type


def dense_logprob(hidden: Tensor, weight: Tensor, targets: Tensor, temperature: float = 1.0) -> tuple[Tensor, Tensor]:
    """The reference, by the definition, in float64: hidden [N, d], weight [V, d], targets [N] -> logp [N], entropy [N]."""
    logp = torch.log_softmax(hidden.double() @ weight.double().T / temperature, dim=-1)
    return logp.gather(1, targets[:, None]).squeeze(1), -torch.where(logp.isinf(), 0.0, logp.exp() * logp).sum(-1)


class _LogProb(torch.autograd.Function):
    @staticmethod
    def forward(ctx, hidden: Tensor, weight: Tensor, targets: Tensor, inverse_temperature: float, chunk: int, keep: bool):
        n = hidden.shape[0]
        logp, lse, entropy = (torch.empty(n, dtype=torch.float32, device=hidden.device) for _ in range(3))
        kept = []
        for lo in range(0, n, chunk):
            part = slice(lo, min(lo + chunk, n))
            z = _logits(hidden[part], weight, inverse_temperature)
            top = z.amax(-1, keepdim=True)
            # Shifted by the maximum, so that neither exp overflows nor lse - E[z] cancels; a -inf logit becomes one whose exp is exactly 0.
            z = z.sub_(top).clamp_min_(_FLOOR)
            p = z.exp()
            s = p.sum(-1)
            log_s = s.log()
            logp[part] = z.gather(1, targets[part, None]).squeeze(1) - log_s
            entropy[part] = log_s - torch.linalg.vecdot(p, z) / s
            lse[part] = log_s + top.squeeze(-1)
            if keep:
                kept.append(p.div_(s[:, None]))
        ctx.save_for_backward(hidden, weight, targets, lse, entropy, *kept)
        ctx.inverse_temperature, ctx.chunk = inverse_temperature, chunk
        return logp, entropy

    @staticmethod
    def backward(ctx, a: Tensor, b: Tensor):
        hidden, weight, targets, lse, entropy, *kept = ctx.saved_tensors
        need_h, need_w = ctx.needs_input_grad[:2]
        d_hidden = torch.empty_like(hidden) if need_h else None
        d_weight = torch.zeros(weight.shape, dtype=torch.float32, device=weight.device) if need_w else None
        plain = hidden.device.type == "cpu" and not bool(torch.any(b != 0))  # no loss looked at the entropy: half the work
        scale = ctx.inverse_temperature
        for i, lo in enumerate(range(0, hidden.shape[0], ctx.chunk)):
            part = slice(lo, min(lo + ctx.chunk, hidden.shape[0]))
            p = kept[i] if kept else _logits(hidden[part], weight, scale).sub_(lse[part, None]).exp_()
            if plain:
                dz = p * (-scale * a[part])[:, None]
            else:
                log_p = p.log().clamp_min_(_FLOOR)
                dz = p * (-scale * (a[part, None] + b[part, None] * (log_p + entropy[part, None])))
            dz.scatter_add_(1, targets[part, None], (scale * a[part])[:, None])
            dz = dz.to(hidden.dtype)
            if need_h:
                torch.mm(dz, weight, out=d_hidden[part])
            if need_w:
                d_weight.addmm_(dz.T.float(), hidden[part].float())
        return d_hidden, None if d_weight is None else d_weight.to(weight.dtype), None, None, None, None


def _logits(hidden: Tensor, weight: Tensor, inverse_temperature: float) -> Tensor:
    z = (hidden @ weight.T).float()
    return z.mul_(inverse_temperature) if inverse_temperature != 1.0 else z


def fused_logprob(
    hidden: Tensor, weight: Tensor, targets: Tensor, *, temperature: float = 1.0, chunk: int = 512, keep_elements: int = 1 << 25
) -> tuple[Tensor, Tensor]:
    """hidden [N, d], weight [V, d], targets [N] int64 -> (logp [N], entropy [N]) float32 in nats, differentiable in hidden and weight.

    chunk: rows per step. keep_elements: logits kept for backward when N x V is at most this (4 bytes each).
    Raises ValueError for a temperature that is not positive: a greedy policy has no log-probabilities to learn from.
    """
    if temperature <= 0:
        raise ValueError(f"temperature is {temperature}: log-probabilities exist for positive temperatures only; sample with 1.0 to train")
    keep = hidden.shape[0] * weight.shape[0] <= keep_elements
    return _LogProb.apply(hidden, weight, targets, 1.0 / temperature, chunk, keep)
