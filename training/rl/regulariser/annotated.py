"""Pulls right answers towards the annotated solution and pushes wrong ones away: a contrastive loss on their token
shares.

"CARFT: Boosting LLM Reasoning via Contrastive Learning with Annotated Chain-of-Thought-based Reinforced Fine-Tuning",
2025 (arXiv 2508.15868).

    z_i = sum_t w_t p_t,   w = softmax over the tokens of the answer of log p(y_t), p_t the distribution at token t
    z_a: shares of the tokens of the annotated answer, the off_policy row of the group;     s_i = cos(z_i, z_a)
    c_ij = cos of the shares of the tokens of j with the z_a of i
    right    -log( e^(s_i/tau) / (e^(s_i/tau) + sum of e^(c_ij/tau) over the wrong j of the step) )
    wrong    -log( e^(1/tau) / (e^(1/tau) + e^(s_i/tau)) )

Shapes: stats.distribution() [N, V], columns["reward"] and columns["off_policy"] [R] in, values [T] out (a row's loss
shared by its tokens), mean over rows. Distributions, folded into `buckets` by id, replace the paper's token embeddings,
which a loss here does not see. All tokens count, not only numbers. z_a and c are constants of the step (`prepare`), so
splitting the batch changes nothing. Groups without an annotated answer contribute nothing. Leaves out the noisy copies
of the annotated answer, and the critic. Right: reward above 1/2.
"""

from __future__ import annotations

import torch
from torch.nn.functional import normalize, softplus

from training.learner.reduction import live
from training.types import Batch, Terms, TokenStats

NEEDS = {"distribution"}


def prepare(batch: Batch, *, tau: float = 0.1, buckets: int = 1024, **_: object) -> None:
    """Adds columns["anchor"] [R, buckets], of length 1 (0 where the group has no annotated answer), and
    columns["others"] [R]: the log of the sum over wrong answers. Raises ValueError if tau is not above 0."""
    if tau <= 0:
        raise ValueError(f"annotated: tau is {tau}; it is the temperature of the contrast, above 0")
    counts = torch.zeros(batch.rows, buckets, device=batch.ids.device)
    on = batch.trainable.nonzero().squeeze(1)
    counts.index_put_(
        (batch.row[on], batch.ids[on] % buckets), torch.ones(len(on), device=counts.device), accumulate=True
    )
    foreign, right = batch.columns["off_policy"] > 0.5, batch.columns["reward"] > 0.5
    _, group = batch.group.unique(return_inverse=True)
    shares = normalize(counts, dim=1)
    sums = torch.zeros(int(group.max()) + 1, buckets, device=counts.device).index_add(
        0, group[foreign], shares[foreign]
    )
    anchor = normalize(sums, dim=1)[group]
    batch.add("anchor", anchor, "row")
    batch.add("others", (anchor @ shares[~foreign & ~right].T / tau).logsumexp(1), "row")


def annotated(stats: TokenStats, batch: Batch, *, coef: float = 0.1, tau: float = 0.1, buckets: int = 1024) -> Terms:
    if stats.distribution is None:
        raise ValueError("annotated needs whole distributions, and the pass that made the statistics keeps none")
    row = batch.row[batch.trainable]
    logp = live(stats.logp, batch)[batch.trainable]
    largest = torch.full((batch.rows,), -torch.inf, device=logp.device).scatter_reduce(0, row, logp.detach(), "amax")
    weight = (logp - largest[row]).exp()
    weight = weight / torch.zeros_like(largest).index_add(0, row, weight)[row]
    p = stats.distribution().exp()
    bucket = torch.arange(p.shape[1], device=p.device) % buckets
    folded = torch.zeros(len(p), buckets, device=p.device, dtype=p.dtype).index_add(1, bucket, p)
    z = torch.zeros(batch.rows, buckets, device=p.device, dtype=p.dtype).index_add(0, row, weight[:, None] * folded)
    anchor = batch.columns["anchor"]
    s = (normalize(z, dim=1) * anchor).sum(1) / tau
    loss = torch.where(batch.columns["reward"] > 0.5, softplus(batch.columns["others"] - s), softplus(s - 1 / tau))
    counted = (batch.columns["off_policy"] < 0.5) & (anchor.sum(1) > 0)
    per_row = torch.where(counted, coef * loss, 0.0) / batch.row_tokens
    return Terms(values=live(batch.per_token(per_row), batch), denominator="sequences")
