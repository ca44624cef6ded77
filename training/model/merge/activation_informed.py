"""AIM: the changes of a merge are reduced where the base's weights matter most, judged by their inputs.

Nobari et al. 2025, "Activation-Informed Merging of Large Language Models" (arXiv 2502.02421); used on reasoning models
by Wu et al. 2025, "Unlocking Efficient Long-to-Short LLM Reasoning with Model Merging" (arXiv 2503.20641).

    a_j   = mean |x_j| of the j-th input of a matrix, over prompts, divided by its largest
    theta = theta_0 + (1 - (1 - omega) a_j) (theta_merged - theta_0)[:, j]

theta_merged is the mean of the task vectors added to the base, `scale` times; omega = 1 changes nothing, omega = 0
keeps the base's most used inputs as they are. Weights without inputs (norms, embeddings) are merged as they are.

Leaves out other underlying merges. Relaxing the change by the size of activations is from the paper; dividing them by
the largest of the matrix is our reading.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from training.model.merge._deltas import deltas, elected, moved, weights_of

NEEDS = {"activations"}


def activation_informed(
    base: Mapping[str, Tensor],
    models: Sequence[Mapping[str, Tensor]],
    activations: Mapping[str, Tensor],
    rng: torch.Generator,
    *,
    omega: float = 0.4,
    scale: float = 1.0,
    weights: Sequence[float] = (),
) -> dict[str, Tensor]:
    if not 0 <= omega <= 1:
        raise ValueError(f"omega is {omega}: 0 keeps the most used inputs as they are, 1 merges all equally")
    w, out = weights_of(models, weights), {}
    for name in base:
        by = scale * elected(deltas(base, models, name), w, sign=False, mean=True)
        if name in activations:
            size = activations[name].double()
            by = by * (1 - (1 - omega) * size / size.max().clamp_min(1e-12))
        out[name] = moved(base, name, by)
    return out
