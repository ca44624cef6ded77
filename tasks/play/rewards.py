"""The reward model of the stage `reward`, as a judge of rollouts: the log-odds of its word after the conversation."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from tasks.stages.reward import VERDICT
from training.learner import score
from training.model import load_model
from training.pack import Row, pack
from training.render import Renderer
from training.types import Rollout


class RewardModel:
    """`judge(rollouts) -> rewards`: one float each, in nats; NaN for a conversation longer than `max_length` tokens.

    A rollout is judged on the ids that were sampled where policy and reward model share a tokenizer, which models of one project do.
    """

    def __init__(self, path: Path, *, dtype: str = "float32", device: str = "cpu", max_length: int = 2048, tokens: int = 16384) -> None:
        self.model, tokenizer = load_model(path, dtype=dtype, device=device)
        self.verdict = Renderer(tokenizer).encode(VERDICT)[:1]
        self.device, self.max_length, self.tokens = device, max_length, tokens

    def __call__(self, rollouts: Sequence[Rollout]) -> list[float]:
        out = [float("nan")] * len(rollouts)
        ids = {i: np.concatenate([r.ids, self.verdict]) for i, r in enumerate(rollouts) if len(r.ids) < self.max_length}
        if not ids:
            return out
        rows = [Row(ids=x, trainable=np.arange(len(x)) == len(x) - 1, group=0) for x in ids.values()]
        batch = pack(rows, device=self.device)
        with torch.no_grad():
            logp = score(self.model, batch, tokens_per_microbatch=self.tokens).logp[batch.trainable].double()
        odds = logp - torch.log(-torch.expm1(logp))
        for i, value in zip(ids, odds.tolist(), strict=True):
            out[i] = value
        return out
