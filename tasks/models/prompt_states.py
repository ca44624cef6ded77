"""The model's final hidden state at the prompt's last token, before it answers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import nn

from training.learner.pack import Row, pack, split
from training.preference.reward_model import features
from training.types import Rollout


def prompt_features(
    model: nn.Module, rollouts: Sequence[Rollout], *, device: str = "cpu", tokens: int = 16384
) -> list[list[float] | None]:
    """[d] floats for the first rollout of every problem, None for its others, which have the same prompt."""
    first: dict[str, int] = {}
    for i, r in enumerate(rollouts):
        first.setdefault(r.group, i)
    out: list[list[float] | None] = [None] * len(rollouts)
    rows = [
        Row(ids=rollouts[i].segments[0].ids, trainable=np.zeros(len(rollouts[i].segments[0].ids), dtype=bool))
        for i in first.values()
    ]
    with torch.no_grad():
        states = (
            torch.cat([features(model, part)[0] for part in split(pack(rows, device=device), tokens)])
            .float()
            .cpu()
            .tolist()
        )
    for i, values in zip(first.values(), states, strict=True):
        out[i] = values
    return out
