"""How much the rollouts of a group disagree at each position of their text.

Dang et al. 2025, "Reinforcing Video Reasoning with Focused Thinking" (TW-GRPO, arXiv 2505.24718).

extras["divergence"] on the model's tokens: mean over the rollouts of KL(own next-token distribution || their mean) at
the position, scaled to [0, 1] within the group. One forward pass over the rollouts, and whole distributions [tokens,
vocabulary] of one group at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from synth.types import Problem
from training.learner.learner import token_stats
from training.learner.pack import pack, rollout_row
from training.rl.observation import with_extra
from training.rollout.play import Player
from training.types import Group


def divergence(
    player: Player, groups: Sequence[Group], problems: Sequence[Problem], seed: tuple[Any, ...]
) -> list[Group]:
    out = []
    for group in groups:
        rows = [rollout_row(r, 0.0, 0) for r in group.rollouts if r.n_model]
        batch = pack(rows, device=str(next(player.sampler.model.parameters()).device))
        with torch.no_grad():
            distribution = token_stats(
                player.sampler.model, batch, temperature=player.sampling.temperature
            ).distribution
            assert distribution is not None  # `token_stats` gives it always
            logp = distribution().cpu()
        full = logp.split([int(r.trainable.sum()) for r in rows])
        kl = np.zeros(max(len(x) for x in full))
        for t in range(len(kl)):
            here = torch.stack([x[t] for x in full if len(x) > t]).double()
            mean = here.exp().mean(0)
            kl[t] = float((here.exp() * (here - mean.clamp_min(1e-300).log())).sum(-1).mean())
        spread = kl.max() - kl.min()
        scaled = (kl - kl.min()) / spread if spread > 1e-9 else np.zeros(len(kl))
        take = lambda s, at, d=scaled: d[at : at + len(s.ids)]  # noqa: E731
        out.append(replace(group, rollouts=tuple(with_extra(r, "divergence", take) for r in group.rollouts)))
    return out
