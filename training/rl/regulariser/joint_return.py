"""Learns the joint distribution of the returns of several sources of reward, as particles, by the maximum mean discrepancy.

Zhang et al. 2021, "Distributional Reinforcement Learning for Multi-Dimensional Reward Functions" (MD3QN, arXiv 2110.13578).

    T_j = r + gamma Z_j(s', a*),  a* the best action there by its summed mean          r and Z in R^K; r alone where an episode ends
    MMD^2 = mean_ij k(Z_i, Z_j) + mean_ij k(T_i, T_j) - 2 mean_ij k(Z_i, T_j)          k(x, y) = sum_h exp(-|x - y|^2 / h)

Shapes: stats.extras["particles"] [T, N, K] with gradient; columns "ahead" [T, N, K], the particles of the best action in the state of
each step as they were when it was played, and "rewards" [T, K] (without it "turn_reward" [T], one source); values [T] out. The gradient is
that of Z alone: the target is as old as the rollouts, so several updates with the rollouts of a step have one target. `joint` off is the
control: one kernel for each source, so that the particles have the right marginals and any dependence.

An episode that is cut counts as ended. Leaves out replay of older rollouts.
"""

from __future__ import annotations

import torch
from torch import Tensor

from training.learner.reduction import live
from training.types import Batch, Terms, TokenStats


def joint_return(
    stats: TokenStats,
    batch: Batch,
    *,
    coef: float = 1.0,
    gamma: float = 0.99,
    bandwidths: tuple = (1.0, 2.0, 4.0, 8.0, 16.0),
    joint: bool = True,
) -> Terms:
    """coef: weight. gamma: discount. bandwidths: h of the kernels that are added up. joint: whether particles are compared as vectors; otherwise
    source by source."""
    if "particles" not in stats.extras:
        raise ValueError(
            "regulariser/joint_return reads particles, and this policy has none: choose a control world with a network of particles (chests)"
        )
    z = stats.extras["particles"]
    paid = batch.columns.get("rewards")
    paid = batch.columns["turn_reward"][:, None] if paid is None else paid
    on = batch.trainable
    target = torch.where(on[:, None], torch.nan_to_num(paid), 0.0)[:, None, :].expand(-1, z.shape[1], -1).expand_as(z)
    if (ahead := batch.columns.get("ahead")) is not None:
        after = torch.cat([batch.row[1:] == batch.row[:-1], batch.row.new_zeros(1, dtype=torch.bool)])
        target = target + gamma * torch.where(after[:, None, None], torch.roll(ahead, -1, 0), 0.0)
    value = mmd(z, target, bandwidths) if joint else sum_over_sources(z, target, bandwidths)
    values = coef * live(value, batch)
    return Terms(values=values, denominator="tokens", metrics={"mmd": (values.detach().sum(), on.sum())})


def mmd(z: Tensor, target: Tensor, bandwidths: tuple) -> Tensor:
    """z [T, N, K], target [T, M, K] -> squared MMD [T]."""

    def k(a: Tensor, b: Tensor) -> Tensor:
        far = (a[:, :, None] - b[:, None]).square().sum(-1)
        return torch.stack([torch.exp(-far / h) for h in bandwidths]).sum(0).mean((1, 2))

    return k(z, z) + k(target, target) - 2 * k(z, target)


def sum_over_sources(z: Tensor, target: Tensor, bandwidths: tuple) -> Tensor:
    """[T] the sum of the squared MMDs of each source alone."""
    return torch.stack([mmd(z[..., k : k + 1], target[..., k : k + 1], bandwidths) for k in range(z.shape[-1])]).sum(0)
