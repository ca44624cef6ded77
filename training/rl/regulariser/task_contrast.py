"""Teaches the router of a mixture which rollouts are of one task: InfoNCE between the router's choices, and balance of the experts.

"Mixture-of-Experts Meets In-Context Reinforcement Learning", 2025 (T2MIR, arXiv 2506.05426); InfoNCE: van den Oord et al. 2018, "Representation Learning with
Contrastive Predictive Coding" (arXiv 1807.03748).

    loss = -log exp(q.k+ / tau) / (exp(q.k+ / tau) + sum_- exp(q.k- / tau))        q the router's choice at the last step of a rollout, of length 1
    k+ that of the next rollout of the same group, which is of the same task; k- those of all rollouts of other groups of the step
    value = coef loss + balance (b - 1)        b = E sum_e (mean share of expert e)^2, 1 where the experts of tokens are used equally

Shapes: stats.extras["routers"] [T, E] (log-probs) and ["balance"] [T] with gradient; column "task_key" [T, E], the router's choice as it was when the step
was played, which stands for the keys of a momentum encoder; values [T] out, at the last token of each row that is trained on. `prepare` collects the keys of the whole
step, so that rows may be learned from in parts.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import normalize

from training.learner.reduction import live
from training.types import Batch, Metrics, Terms, TokenStats


def _last(batch: Batch) -> Tensor:
    """[T] whether it is the last token of its row that is trained on."""
    place = torch.where(batch.trainable, batch.position, -1)
    most = torch.full((batch.rows,), -1, dtype=place.dtype, device=place.device)
    most = most.scatter_reduce(0, batch.row, place, "amax")
    return batch.trainable & (place == most[batch.row])


def prepare(batch: Batch, **_: object) -> None:
    """Adds "keys" [R, R, E], first the positive of each row, and "keys_on" [R, R], which of them are there."""
    if (told := batch.columns.get("task_key")) is None:
        return
    key = torch.zeros(batch.rows, told.shape[1], device=told.device)
    last = _last(batch)
    key[batch.row[last]] = told[last]
    key = normalize(key, dim=1)
    keys, on = (
        key.new_zeros(batch.rows, batch.rows, key.shape[1]),
        torch.zeros(batch.rows, batch.rows, device=key.device),
    )
    for r, group in enumerate(batch.group.tolist()):
        mine = (batch.group == group).nonzero().squeeze(1).tolist()
        others = (batch.group != group).nonzero().squeeze(1)
        keys[r, 0] = key[mine[(mine.index(r) + 1) % len(mine)]]
        keys[r, 1 : 1 + len(others)] = key[others]
        on[r, : 1 + len(others)] = 1.0
    batch.add("keys", keys, "row")
    batch.add("keys_on", on, "row")


def task_contrast(
    stats: TokenStats, batch: Batch, *, coef: float = 0.1, temperature: float = 0.07, balance: float = 0.01
) -> Terms:
    """coef: weight of InfoNCE. temperature: tau. balance: weight of the experts' balance."""
    if "routers" not in stats.extras:
        raise ValueError(
            "regulariser/task_contrast reads the router of a mixture, and this policy has none: choose a control world with one (bandits, mixture: dual)"
        )
    last = _last(batch)
    query = normalize(stats.extras["routers"][last].exp(), dim=1)
    row = batch.row[last]
    if (keys := batch.columns.get("keys")) is None:
        near = query.new_zeros(len(query), 2) + 0 * query.sum(1, keepdim=True)
    else:
        near = torch.einsum("re,rke->rk", query, keys[row]) / temperature
        near = near.masked_fill(batch.columns["keys_on"][row] == 0, -torch.inf)
    loss = torch.zeros(len(batch.ids), dtype=query.dtype, device=query.device)
    loss = loss.index_put((last.nonzero().squeeze(1),), torch.logsumexp(near, 1) - near[:, 0])
    metrics: Metrics = {"task_contrast": (loss.detach().sum(), last.sum())}
    values = coef * loss
    if "balance" in stats.extras:
        uneven = torch.where(last, stats.extras["balance"] - 1, 0.0)
        values, metrics = values + balance * uneven, {**metrics, "uneven": (uneven.detach().sum(), last.sum())}
    return Terms(values=live(values, batch), denominator="sequences", metrics=metrics)
