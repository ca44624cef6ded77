"""TIES: task vectors are trimmed, each entry elects a sign, and the values with that sign are averaged.

Yadav et al. 2023, "TIES-Merging: Resolving Interference When Merging Models" (arXiv 2306.01708).

    tau_i <- the share `density` of theta_i - theta_0 that is largest by size
    s     =  sign(sum_i w_i tau_i)
    theta =  theta_0 + scale  sum_{i: sign(tau_i) = s} w_i tau_i / sum_{i: sign(tau_i) = s} w_i

By tensor, and a sum of 0 counts as positive, as in mergekit's `ties`, which it equals. sign_election: False is the
control, a mean of the trimmed task vectors without an election.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from training.model.merge._deltas import deltas, elected, moved, trimmed, weights_of


def ties(
    base: Mapping[str, Tensor],
    models: Sequence[Mapping[str, Tensor]],
    activations: Mapping[str, Tensor],
    rng: torch.Generator,
    *,
    density: float = 0.5,
    scale: float = 1.0,
    weights: Sequence[float] = (),
    sign_election: bool = True,
) -> dict[str, Tensor]:
    w = weights_of(models, weights)
    out = {}
    for name in base:
        parts = [trimmed(d, density) for d in deltas(base, models, name)]
        out[name] = moved(base, name, scale * elected(parts, w, sign=sign_election, mean=True))
    return out
