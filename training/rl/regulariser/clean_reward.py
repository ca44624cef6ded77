"""Direct reward maximisation: a reward of the predicted clean sample is differentiated through the step of a denoiser.

Gao et al. 2025, "Seedance 1.0: Exploring the Boundaries of Video Generation Models" (arXiv 2506.09113): several reward models score
the clean sample that is predicted from a partially denoised one, and their weighted sum is maximised. Clark et al. 2023, "Directly Fine-Tuning
Diffusion Models on Differentiable Rewards" (DRaFT, arXiv 2309.17400), for the gradient through the last step alone.

    x0(x_t) = x_t - t v(x_t, t)            value_t = -coef sum_k weight_k exp(-|x0 - centre_k|^2 / (2 width^2))      where t <= until

Shapes: stats.extras["clean"] [T, d] with gradient, column "observation" [T, d + c + 3], whose last three numbers are t, the length of the step
and its noise; values [T] out. The x_t of a step is a number that was played: the gradient is that of one step's prediction, never of the steps
before it. The rewards are bells around points, in the place of reward models; early in the path the prediction is a mean of many
samples, of which a reward says little, hence `until`.
"""

from __future__ import annotations

import torch

from training.learner.reduction import live
from training.types import Batch, Terms, TokenStats


def clean_reward(
    stats: TokenStats,
    batch: Batch,
    *,
    coef: float = 1.0,
    centres: tuple = (0.8, 0.0, 0.0, 0.8),
    weights: tuple = (1.0, 1.0),
    width: float = 0.4,
    until: float = 0.6,
) -> Terms:
    """coef: weight of the composite reward. centres: the points of all rewards, one after the other. weights: of each reward. width: of the bells.
    until: the largest t whose prediction is rewarded."""
    if "clean" not in stats.extras:
        raise ValueError(
            "regulariser/clean_reward reads the clean sample that a denoiser predicts, and this policy predicts none: choose a control world of samples (modes)"
        )
    clean = stats.extras["clean"]
    if len(centres) != len(weights) * clean.shape[1]:
        raise ValueError(
            f"regulariser/clean_reward: centres has {len(centres)} numbers, and {len(weights)} rewards of samples of {clean.shape[1]} numbers need "
            f"{len(weights) * clean.shape[1]}: give one point for each weight"
        )
    at = torch.tensor(centres, dtype=clean.dtype, device=clean.device).view(len(weights), -1)
    w = torch.tensor(weights, dtype=clean.dtype, device=clean.device)
    reward = (w * torch.exp(-(clean[:, None] - at).square().sum(-1) / (2 * width**2))).sum(1)
    late = batch.trainable
    if (seen := batch.columns.get("observation")) is not None:
        late = late & (seen[:, -3] <= until)
    reward = torch.where(late, live(reward, batch), 0.0)
    return Terms(
        values=-coef * reward, denominator="tokens", metrics={"clean_reward": (reward.detach().sum(), late.sum())}
    )
