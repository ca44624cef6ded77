"""Objectives: combine the values of pieces on a batch into the terms that the learner sums and divides.

`PolicyObjective` composes ratio, corrections, policy loss and regularisers. Objectives over pairs of rows are in
training/preference/objective.py (preference losses) and training/preference/reward_model.py.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from training.learner.learner import Read, score_together, token_stats
from training.learner.world import ONE, World
from training.rl.correction import CorrectionPiece
from training.rl.observation import observations
from training.rl.policy_loss import PolicyLossPiece
from training.rl.ratio import RatioPiece
from training.rl.regulariser import RegulariserPiece
from training.rl.teachers import Teachers
from training.rollout.mismatch import mismatch
from training.types import Batch, Terms, TokenStats


@dataclass(frozen=True, kw_only=True)
class PolicyObjective:
    """Policy-gradient objective over packed rollouts with columns advantages and sampling_logp.

    prepare(batch) runs the passes that `needs` names (reference, old), queries teachers behind an endpoint, then calls
    each piece's own `prepare`, then the corrections, on the whole batch; last the observations of the batch
    (training/rl/observation). temperature is that of sampling, for the passes; the learner must get the same. world:
    the processes that prepare the batch together. read: turns a pass of the policy into statistics, as in the learner.
    """

    ratio: RatioPiece
    policy_loss: PolicyLossPiece
    corrections: Sequence[CorrectionPiece] = ()
    regularisers: Sequence[RegulariserPiece] = ()
    policy: nn.Module | None = None
    reference: nn.Module | None = None
    teachers: Teachers | None = None
    needs: frozenset[str] = frozenset()
    temperature: float = 1.0
    tokens_per_microbatch: int = 16384
    world: World = ONE
    read: Read = token_stats

    @property
    def _pieces(self) -> tuple[Callable[..., Any], ...]:
        return (self.ratio, self.policy_loss, *self.corrections, *self.regularisers)

    @property
    def advantage_only(self) -> bool:
        """Whether the policy loss is the only loss: a batch with zero advantages then has no gradient."""
        return not self.regularisers and getattr(self.policy_loss, "advantage_only", True)

    @property
    def scope(self) -> str:
        """ "token" if each piece says that a token's gradient depends on its own statistics alone (SCOPE in its file),
        else "batch"."""
        functions = [getattr(p, "func", p) for p in (self.ratio, self.policy_loss, *self.regularisers)]
        return (
            "token"
            if all(getattr(sys.modules[f.__module__], "SCOPE", "batch") == "token" for f in functions)
            else "batch"
        )

    @property
    def row_local(self) -> bool:
        """Whether a row with zero advantage contributes exactly nothing: there is no regulariser, and no piece that
        reads the batch as a whole."""
        whole = any(getattr(p, "prepare", None) for p in self._pieces) or observations(self._pieces, "batch")
        return self.advantage_only and not whole

    def prepare(self, batch: Batch) -> None:
        columns = batch.columns
        if "reference" in self.needs:
            batch.add("reference", self._logp(self.reference, batch), "token")
        if "old" in self.needs:
            batch.add("old", self._logp(self.policy, batch), "token")
        if self.teachers is not None:
            self.teachers.prepare(batch)
        for piece in self._pieces:
            prepare = getattr(piece, "prepare", None)
            if prepare is not None:
                prepare(batch)
        for correct in self.corrections:
            weight = correct(columns.get("old", columns["sampling_logp"]), columns["sampling_logp"], batch)
            batch.add("weight", columns["weight"] * weight if "weight" in columns else weight, "token")
        for observe in observations(self._pieces, "batch"):
            observe(batch, lambda other: self._logp(self.policy, other))

    def _logp(self, model: nn.Module | None, batch: Batch) -> Tensor:
        """The log-probs [T] by a model that a piece needs."""
        assert model is not None  # `compose` provides each model in NEEDS
        return score_together(
            model,
            batch,
            self.world,
            temperature=self.temperature,
            tokens_per_microbatch=self.tokens_per_microbatch,
            read=self.read,
        )

    def __call__(self, stats: TokenStats, batch: Batch) -> list[Terms]:
        columns = batch.columns
        log_ratio = self.ratio(stats.logp, columns.get("old", columns["sampling_logp"]), batch)
        main = self.policy_loss(log_ratio, columns["advantages"], stats, batch)
        if "weight" in columns:
            main.values = main.values * columns["weight"]
        main.metrics = {**main.metrics, **_mismatch(stats, batch)}
        if self.teachers is not None:
            stats = self.teachers.told(stats, batch)
        return [main, *(piece(stats, batch) for piece in self.regularisers)]


def _mismatch(stats: TokenStats, batch: Batch) -> dict[str, tuple[Tensor, Tensor]]:
    """Metrics of learner against sampler, before any clipping (training/rollout/mismatch.py), and the entropy."""
    on = batch.trainable
    if "off_policy" in batch.columns:  # off-policy text was not sampled
        on = on & (batch.per_token(batch.columns["off_policy"]) == 0)
    assert stats.entropy is not None  # `token_stats` always gives it
    entropy = torch.where(on, stats.entropy.detach(), 0.0)
    return {**mismatch(stats.logp, batch.columns["sampling_logp"], on), "entropy": (entropy.sum(), on.sum())}
