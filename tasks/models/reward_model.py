"""The reward model of the stage `reward`, as a judge of rollouts: the log-odds of its word after the conversation."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from tasks.core.errors import UserError
from training.learner.learner import score
from training.learner.pack import Row, pack
from training.model.model import load_model
from training.model.render import Renderer
from training.preference.reward_model import reward_of
from training.types import Rollout


class RewardModel:
    """`judge(rollouts) -> rewards`: one float each, in nats; NaN for a conversation longer than `max_length` tokens.
    verdict: the word, which the card of the stage `reward` names.

    A rollout is judged on the sampled token ids: policy and reward model of one project share a tokenizer. Raises
    UserError for a reward model with a scalar head, which only the stage `reward` can read.
    """

    def __init__(
        self,
        path: Path,
        verdict: str,
        *,
        dtype: str = "float32",
        device: str = "cpu",
        max_length: int = 2048,
        tokens: int = 16384,
    ) -> None:
        kinds = json.loads((path / "config.json").read_text(encoding="utf-8")).get("architectures") or [""]
        if "CausalLM" not in kinds[0]:
            raise UserError(
                f"evaluate: {path} is a reward model with a head ({kinds[0]}), and metrics read one that gives a word: "
                "measure it where it is "
                "trained (reward.best_of_n), or train one without a head"
            )
        self.model, tokenizer = load_model(path, dtype=dtype, device=device)
        self.renderer = Renderer(tokenizer)
        self.verdict = self.renderer.encode(verdict)[:1]
        self.device, self.max_length, self.tokens = device, max_length, tokens

    def __call__(self, rollouts: Sequence[Rollout]) -> list[float]:
        return self.of_ids([r.ids for r in rollouts])

    def of_ids(self, conversations: Sequence[np.ndarray]) -> list[float]:
        """The rewards [n] of conversations given as token ids."""
        out = [float("nan")] * len(conversations)
        ids = {i: np.concatenate([x, self.verdict]) for i, x in enumerate(conversations) if len(x) < self.max_length}
        if not ids:
            return out
        rows = [Row(ids=x, trainable=np.arange(len(x)) == len(x) - 1, group=0) for x in ids.values()]
        batch = pack(rows, device=self.device)
        with torch.no_grad():
            rewards = reward_of(score(self.model, batch, tokens_per_microbatch=self.tokens), batch)
        for i, value in zip(ids, rewards.double().tolist(), strict=True):
            out[i] = value
        return out
