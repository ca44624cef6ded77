"""The mean of models as a model."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn


@torch.no_grad()
def soup(models: Sequence[nn.Module], weights: Sequence[float]) -> None:
    """The first model becomes the weighted mean of all, parameter by parameter, in float64.

    Chegini et al. 2024, "SALSA: Soup-based Alignment Learning for Stronger Adaptation in RLHF" (arXiv 2411.01798).
    Raises ValueError for weights that do not add up to 1, and for models whose parameters differ in name or shape: only
    fine-tunings of one model can be averaged.
    """
    if len(weights) != len(models) or abs(sum(weights) - 1) > 1e-6:
        raise ValueError(f"the weights {list(weights)} of {len(models)} models do not add up to 1")
    parameters = [dict(m.named_parameters()) for m in models]  # a tied head appears once
    shapes = [{k: v.shape for k, v in p.items()} for p in parameters]
    if any(s != shapes[0] for s in shapes):
        raise ValueError("models of different shapes have no mean: take fine-tunings of one and the same model")
    for name, first in parameters[0].items():
        each = (w * p[name].double() for w, p in zip(weights, parameters, strict=True))
        mean = sum(each, torch.zeros_like(first, dtype=torch.float64))
        first.copy_(mean.to(first.dtype))
