"""The critic: a value for every token that the policy is about to write, trained on the same rollouts as the policy.

It has its own model: a causal language model with one linear map of its last hidden state. It does not depend on the
algorithm: its loss is a piece of training/rl/value_loss, and the advantage decides how its values are used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from training.learner.follow import CRITIC, send
from training.learner.learner import Learner, Targets, score
from training.learner.pack import Row, pack, rollout_row
from training.model.model import text_config
from training.rl.advantage.gae import lambda_sums, rewards_of
from training.rl.value_loss import ValueLossPiece
from training.types import Batch, Group, Rewards, Rollout, Terms, TokenStats


class ValueModel(nn.Module):
    """A language model's body and a map from its hidden states to one number, which is initially the constant 0."""

    def __init__(self, language_model: nn.Module) -> None:
        super().__init__()
        body: Any = language_model.base_model
        self.body = body
        self.value = nn.Linear(text_config(language_model).hidden_size, 1, dtype=torch.float32)
        nn.init.zeros_(self.value.weight)
        nn.init.zeros_(self.value.bias)
        self.to(next(language_model.parameters()).device)

    @property
    def base_model(self) -> nn.Module:
        return self.body

    def get_output_embeddings(self) -> None:
        """None: it has no head over a vocabulary (the method that transformers expects)."""


def value_stats(model: ValueModel, batch: Batch, *, temperature: float = 1.0) -> TokenStats:
    """extras["value"] [T]: V of the text before each trainable target, 0 elsewhere. The temperature is that of a
    policy, and is not used."""
    targets = Targets.of(model, batch)
    value = targets.spread(model.value(targets.before.float()).squeeze(1), len(batch.ids))
    return TokenStats(logp=torch.zeros_like(value), extras={"value": value})


@dataclass(kw_only=True)
class Critic:
    """Values for rollouts (`estimate`), and a training step (`learn`).

    loss     a piece of training/rl/value_loss: f(value [T], batch) -> Terms, of the columns "returns" and "value"
             (before the step)
    lam      lambda of the returns that are its targets: 1 uses the actual returns
    passes   updates with the rollouts of a step, towards the same returns
    warmup   steps in which only the critic learns
    """

    learner: Learner
    loss: ValueLossPiece
    lam: float = 1.0
    gamma: float = 1.0
    passes: int = 1
    warmup: int = 0
    tokens_per_microbatch: int = 16384

    def __post_init__(self) -> None:
        if self.passes < 1:
            raise ValueError(
                f"critic.passes is {self.passes}: a critic that learns makes 1 update with each step's rollouts, or more"
            )

    def _rows(self, groups: Sequence[Group], returns: Callable[[int, int], np.ndarray] | None = None) -> list[Row]:
        rows = []
        for g, group in enumerate(groups):
            for i, rollout in enumerate(group.rollouts):
                if rollout.n_model:
                    row = rollout_row(rollout, 0.0, g)
                    if returns is not None:
                        column = np.zeros(len(row.ids))
                        column[row.trainable] = returns(g, i)
                        row = replace(row, columns={**row.columns, "returns": column})
                    rows.append(row)
        return rows

    def estimate(self, groups: Sequence[Group]) -> list[Group]:
        """The groups with extras["value"] on every token that the model wrote."""
        rows = self._rows(groups)
        if not rows:
            return list(groups)
        batch = pack(rows, device=str(self.learner.weights[0].device))
        values = score(
            self.learner.whole, batch, tokens_per_microbatch=self.tokens_per_microbatch, read=self.learner.read
        ).extras["value"]
        per_row = iter(np.split(values.cpu().numpy().astype(np.float64), np.cumsum(batch.lengths)[:-1]))
        return [
            replace(group, rollouts=tuple(_with_values(r, next(per_row)) if r.n_model else r for r in group.rollouts))
            for group in groups
        ]

    def learn(self, groups: Sequence[Group], rewards: Rewards) -> dict[str, float]:
        """The updates of a step, towards the returns of `rewards` (shaped; a rollout whose reward is NaN is left out). Returns
        metrics."""

        def returns(g: int, i: int) -> np.ndarray:
            values = groups[g].rollouts[i].each("value")
            if np.isnan(rewards[g][i]):
                return np.full(len(values), np.nan)
            return values + lambda_sums(rewards_of(groups[g].rollouts[i], rewards[g][i]), values, self.gamma, self.lam)

        rows = [r for r in self._rows(groups, returns) if not np.isnan(r.columns["returns"]).any()]
        if not rows:
            return {}
        batch = pack(rows, device=str(self.learner.weights[0].device))
        metrics: dict[str, float] = {}
        for _ in range(self.passes):
            send(self.learner.world, CRITIC, [batch])
            metrics = self.update(batch)
        spread = batch.columns["returns"][batch.trainable]
        missed = spread - batch.columns["value"][batch.trainable]
        explained = 1 - float(missed.var()) / max(float(spread.var()), 1e-8) if len(spread) > 1 else 0.0
        return {
            "critic_loss": metrics["loss"],
            "critic_grad_norm": metrics["grad_norm"],
            "explained_variance": explained,
        }

    def update(self, batch: Batch) -> dict[str, float]:
        """One optimizer step on a batch with the columns of `learn`, by all processes that learn together."""
        return self.learner.step(batch, self._objective, tokens_per_microbatch=self.tokens_per_microbatch)

    def _objective(self, stats: TokenStats, batch: Batch) -> list[Terms]:
        value: Tensor = torch.where(batch.trainable, stats.extras["value"], 0.0)
        return [self.loss(value, batch)]

    def state(self) -> dict[str, Any]:
        return self.learner.state()

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.learner.load_state(state)


def _with_values(rollout: Rollout, values: np.ndarray) -> Rollout:
    """values [n] over all tokens of the rollout, as an extra of the segments that the model wrote."""
    cuts = np.cumsum([len(s.ids) for s in rollout.segments])[:-1]
    segments = tuple(
        replace(s, extras={**s.extras, "value": v}) if s.role == "model" else s
        for s, v in zip(rollout.segments, np.split(values, cuts), strict=True)
    )
    return replace(rollout, segments=segments)
