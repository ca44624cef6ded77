"""Distils a denoiser of many steps into one step: what the first step predicts is drawn to where its own path ended.

Liu et al. 2022, "Flow Straight and Fast: Learning to Generate and Transfer Data with Rectified Flow" (arXiv 2209.03003); the place
that this takes in a whole: Gao et al. 2025, "Seedance 1.0" (arXiv 2506.09113), whose few-step distillation it stands for.

    value = coef |x0(x_1) - x_end|^2          at the first step of a path, t = 1; 0 at the others

Shapes: stats.extras["clean"] [T, d] with gradient, the predicted clean sample; columns "end" [T, d], where the path ended when it was played,
and "observation" [T, d + c + 3], whose third number from the end is t; values [T] out, a mean over paths. The target has no gradient. Paths need little noise: of a
noisy path the end is no function of its beginning, and the prediction would be a mean of ends.
"""

from __future__ import annotations

import torch

from training.learner.reduction import live
from training.types import Batch, Terms, TokenStats


def few_steps(stats: TokenStats, batch: Batch, *, coef: float = 1.0) -> Terms:
    if "clean" not in stats.extras:
        raise ValueError(
            "regulariser/few_steps reads the clean sample that a denoiser predicts, and this policy predicts none: choose a control world of samples (modes)"
        )
    clean = stats.extras["clean"]
    end = batch.columns.get("end")
    far = (clean - (torch.zeros_like(clean) if end is None else end)).square().sum(1)
    first = batch.trainable
    if (seen := batch.columns.get("observation")) is not None:
        first = first & (seen[:, -3] >= 1)
    far = torch.where(first, live(far, batch), 0.0)
    return Terms(values=coef * far, denominator="sequences", metrics={"few_steps": (far.detach().sum(), first.sum())})
