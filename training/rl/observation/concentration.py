"""The similarity of the hidden states of a prompt's tokens: the mean cosine of each with those before it, itself
included.

Wang et al. 2025, "Angles Don't Lie: Unlocking Training-Efficient RL Through the Model's Own Signals" (GAIN-RL, arXiv
2506.02281).

Returns problem id -> mean cosine of the last layer's states, with the weights from which training starts: it is
computed once, in one forward pass over all prompts, 64 at a time.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from synth.types import Problem
from training.env import opening
from training.learner.pack import Row, pack
from training.model.attention import PackedRows
from training.model.model import hidden_states
from training.rollout.play import Player

OBSERVES = "problems"


def concentration(player: Player, problems: Sequence[Problem]) -> dict[str, float]:
    shares: dict[str, float] = {}
    for lo in range(0, len(problems), 64):
        some = problems[lo : lo + 64]
        prompts = [player.renderer.prompt(opening(player.envs[p.env], p, player.tools)[1]) for p in some]
        batch = pack([Row(ids=ids, trainable=np.ones(len(ids), dtype=bool)) for ids in prompts])
        with torch.no_grad():
            hidden = hidden_states(
                player.sampler.model, batch.ids, batch.position, PackedRows(batch.lengths, batch.ids.device)
            ).float()
        for problem, z in zip(some, torch.nn.functional.normalize(hidden, dim=-1).split(batch.lengths), strict=True):
            shares[problem.id] = float((z @ z.T).tril().sum() / (len(z) * (len(z) + 1) / 2))
    return shares
