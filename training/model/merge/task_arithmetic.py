"""Adds what each training has changed to the base.

Ilharco et al. 2022, "Editing Models with Task Arithmetic" (arXiv 2212.04089).

    theta = theta_0 + scale sum_i w_i (theta_i - theta_0)

weights: one per model; none: 1 each. Equals mergekit's `task_arithmetic`, where scale is called lambda. With one model
and scale 1 the result is that model, bit for bit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from training.model.merge._deltas import deltas, elected, moved, weights_of


def task_arithmetic(
    base: Mapping[str, Tensor],
    models: Sequence[Mapping[str, Tensor]],
    activations: Mapping[str, Tensor],
    rng: torch.Generator,
    *,
    scale: float = 1.0,
    weights: Sequence[float] = (),
) -> dict[str, Tensor]:
    w = weights_of(models, weights)
    return {n: moved(base, n, scale * elected(deltas(base, models, n), w, sign=False, mean=False)) for n in base}
