"""DARE: entries of task vectors are dropped at random and the rest is rescaled, before they are merged.

Yu et al. 2023, "Language Models are Super Mario: Absorbing Abilities from Homologous Models as a Free Lunch" (arXiv
2311.03099).

    tau_i <- m_i (theta_i - theta_0) / density,   m_i ~ Bernoulli(density)
    theta =  theta_0 + scale sum_i w_i tau_i                      (sign_election: as in TIES, the mean of those that agree)

Unbiased: over many draws the mean of tau_i is the task vector. mergekit's `dare_linear` and `dare_ties` draw in the
same way and then keep the l1 norm of a tensor, which is this factor on average.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from training.model.merge._deltas import deltas, dropped, elected, moved, weights_of


def dare(
    base: Mapping[str, Tensor],
    models: Sequence[Mapping[str, Tensor]],
    activations: Mapping[str, Tensor],
    rng: torch.Generator,
    *,
    density: float = 0.7,
    scale: float = 1.0,
    weights: Sequence[float] = (),
    sign_election: bool = False,
) -> dict[str, Tensor]:
    w = weights_of(models, weights)
    out = {}
    for name in base:
        parts = [dropped(d, density, rng) for d in deltas(base, models, name)]
        out[name] = moved(base, name, scale * elected(parts, w, sign=sign_election, mean=sign_election))
    return out
