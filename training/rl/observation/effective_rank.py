"""The effective rank of a rollout's hidden states, and how it grows while the rollout is written.

Roy and Vetterli 2007, "The effective rank: A measure of effective dimensionality".

The effective rank of n hidden states [n, d] is exp of the entropy of their singular values' shares. It is computed for
growing prefixes, `stride` tokens apart, of the last layer's states at the model's tokens. Parts of the scores: "rank"
of the whole, "rank_velocity" the mean first difference of these values, "rank_acceleration" the mean second difference
(0 if there are too few). One forward pass over the rollouts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from synth.types import Problem
from training.learner.pack import pack, rollout_row
from training.model.attention import PackedRows
from training.model.model import hidden_states
from training.rl.observation import with_parts
from training.rollout.play import Player
from training.types import Group, Rollout

GIVES = ("rank", "rank_velocity", "rank_acceleration")


def effective_rank(
    player: Player, groups: Sequence[Group], problems: Sequence[Problem], seed: tuple[Any, ...], *, stride: int = 8
) -> list[Group]:
    rows = [rollout_row(r, 0.0, g) for g, group in enumerate(groups) for r in group.rollouts if r.n_model]
    batch = pack(rows, device=str(next(player.sampler.model.parameters()).device))
    with torch.no_grad():
        hidden = hidden_states(
            player.sampler.model, batch.ids, batch.position, PackedRows(batch.lengths, batch.ids.device)
        ).float()
    states = iter(
        h[t].cpu() for h, t in zip(hidden.split(batch.lengths), batch.trainable.split(batch.lengths), strict=True)
    )

    def known(rollout: Rollout) -> Rollout:
        if not rollout.n_model:
            return rollout
        z = next(states)
        ranks = [rank_of(z[:n]) for n in sorted({*range(stride, len(z), stride), len(z)})]
        first, second = np.diff(ranks), np.diff(ranks, n=2)
        velocity, acceleration = (float(x.mean()) if len(x) else 0.0 for x in (first, second))
        return with_parts(rollout, {"rank": ranks[-1], "rank_velocity": velocity, "rank_acceleration": acceleration})

    return [replace(group, rollouts=tuple(known(r) for r in group.rollouts)) for group in groups]


def rank_of(states: Tensor) -> float:
    """Effective rank of states [n, d]: r for r equal orthogonal directions. Roy and Vetterli 2007, "The effective
    rank"."""
    s = torch.linalg.svdvals(states.double())
    q = s / s.sum().clamp_min(1e-12)
    return float(torch.exp(-torch.where(q > 0, q * q.clamp_min(1e-300).log(), 0.0).sum()))
