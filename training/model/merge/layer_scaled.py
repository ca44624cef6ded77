"""LiNeS: early layers keep less of what training has changed than late layers.

Wang et al. 2024, "LiNeS: Post-training Layer Scaling Prevents Forgetting and Enhances Model Merging" (arXiv 2410.17146).

    theta_l = theta_0,l + (alpha + beta (l - 1) / (L - 1)) tau_l,   l = 1 ... L by block

tau is the task vector of the one model, or of several their weighted sum (`merge: task_arithmetic`), their mean
(`average`) or the result of TIES (`ties`, with `density`). Weights before the first block are scaled like the first
block, those after the last block like the last. alpha = 1, beta = 0 changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import torch
from torch import Tensor

from training.model.merge._deltas import deltas, depths, elected, moved, trimmed, weights_of


def layer_scaled(
    base: Mapping[str, Tensor],
    models: Sequence[Mapping[str, Tensor]],
    activations: Mapping[str, Tensor],
    rng: torch.Generator,
    *,
    alpha: float = 0.5,
    beta: float = 0.5,
    merge: Literal["task_arithmetic", "average", "ties"] = "task_arithmetic",
    density: float = 0.5,
    weights: Sequence[float] = (),
) -> dict[str, Tensor]:
    w, depth, out = weights_of(models, weights), depths(list(base)), {}
    for name in base:
        parts = deltas(base, models, name)
        if merge == "ties":
            parts = [trimmed(d, density) for d in parts]
        by = elected(parts, w, sign=merge == "ties", mean=merge != "task_arithmetic")
        out[name] = moved(base, name, (alpha + beta * depth[name]) * by)
    return out
