"""Pulls the entropy of the nucleus, at the most uncertain tokens only, towards an anchor.

"Rethinking Entropy Regularization in Large Reasoning Models", 2025 (SIREN, arXiv 2509.25133).

    V_p = smallest set of tokens whose probabilities sum to top_p,   H_t = -sum over V_p of q log q,  q = p renormalised
    in V_p
    H = mean of H_t over the share 1 - tau of tokens that were the most uncertain when sampled;        L = coef (H -
    anchor)^2

Shapes: stats.distribution() [N, V] in, values [T] out. H is not linear in tokens, so values are the tangent 2 coef sg(H
- anchor) H_t, whose gradient is L's; sg(H) is the mean entropy of the same tokens at sampling (`prepare`), over the
whole vocabulary. Tokens outside the nucleus have exactly zero gradient, so the tail is never pushed up. The paper's
anchor is the entropy at step 0; here it is a number in nats.
"""

from __future__ import annotations

import torch

from training.learner.reduction import live
from training.types import Batch, Terms, TokenStats

NEEDS = {"distribution", "sampling_entropy"}


def prepare(batch: Batch, *, tau: float = 0.8, anchor: float = 0.5, **_: object) -> None:
    """Adds columns["peak"] [T] bool, columns["away"] [R] and totals["peak_tokens"]. Raises ValueError for tau outside
    [0, 1)."""
    if not 0 <= tau < 1:
        raise ValueError(f"nucleus_entropy: tau is {tau}; the share 1 - tau of tokens is kept, so it lies in [0, 1)")
    where = batch.trainable.nonzero().squeeze(1)
    entropy = torch.nan_to_num(batch.columns["sampling_entropy"].index_select(0, where))
    count = min(len(where), max(1, int((1 - tau) * len(where) + 0.5)))
    order = torch.argsort(entropy, descending=True, stable=True)[:count]
    peak = torch.zeros_like(batch.trainable)
    peak[where[order]] = True
    batch.add("peak", peak, "token")
    away = float(entropy[order].mean()) - anchor if count else 0.0
    batch.add("away", torch.full((batch.rows,), away, device=batch.ids.device), "row")
    batch.totals["peak_tokens"] = float(max(1, count))


def nucleus_entropy(
    stats: TokenStats, batch: Batch, *, coef: float = 0.005, top_p: float = 0.8, tau: float = 0.8, anchor: float = 0.5
) -> Terms:
    if stats.distribution is None:
        raise ValueError("nucleus_entropy needs whole distributions, and the pass that made the statistics keeps none")
    logp = stats.distribution()
    order = logp.detach().sort(-1, descending=True)
    before = order.values.exp().cumsum(-1) - order.values.exp()
    inside = torch.zeros_like(logp, dtype=torch.bool).scatter(-1, order.indices, before < top_p - 1e-6)
    z = logp.masked_fill(~inside, -torch.inf)
    q = torch.softmax(z, -1)
    h = -torch.where(inside, q * torch.log_softmax(z, -1).masked_fill(~inside, 0.0), 0.0).sum(-1)
    at = batch.trainable.nonzero().squeeze(1)
    spread = torch.zeros(len(batch.ids), dtype=h.dtype, device=h.device).index_add(0, at, h)
    values = 2 * coef * batch.per_token(batch.columns["away"]) * live(spread, batch)
    return Terms(values=torch.where(batch.columns["peak"].bool(), values, 0.0), denominator="peak_tokens")
