"""Objectives: what pieces say of a batch, put together as the terms that the learner sums and divides.

`PolicyObjective` composes ratio, corrections, surrogate and regularisers. Objectives over pairs of rows are in training/pairs.py
(preference losses) and training/reward_model.py.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from training.fidelity import mismatch
from training.learner import score
from training.types import Batch, Terms, TokenStats


@dataclass(frozen=True, kw_only=True)
class PolicyObjective:
    """Policy-gradient objective over packed rollouts with columns credit and behaviour.

    prepare(batch) runs the passes that `needs` names (reference, old), then each piece's own `prepare`, then the corrections, on the whole
    batch; last the pass "corrupted", over the tokens that a piece marked in the column "corrupt". temperature is that of sampling, for
    the passes; the learner is told the same.
    """

    ratio: Callable[..., Tensor]
    surrogate: Callable[..., Terms]
    corrections: Sequence[Callable[..., Tensor]] = ()
    regularisers: Sequence[Callable[..., Terms]] = ()
    policy: nn.Module | None = None
    reference: nn.Module | None = None
    needs: frozenset[str] = frozenset()
    temperature: float = 1.0
    tokens_per_microbatch: int = 16384

    @property
    def credit_only(self) -> bool:
        """Whether nothing but the surrogate is trained on: a batch without credit then has no gradient."""
        return not self.regularisers and getattr(self.surrogate, "credit_only", True)

    @property
    def scope(self) -> str:
        """"token" where each piece says that a token's gradient depends on its own statistics alone (SCOPE in its file), else "batch"."""
        functions = [getattr(p, "func", p) for p in (self.ratio, self.surrogate, *self.regularisers)]
        return "token" if all(getattr(sys.modules[f.__module__], "SCOPE", "batch") == "token" for f in functions) else "batch"

    @property
    def row_local(self) -> bool:
        """Whether a row without credit adds exactly nothing: no regulariser, and no piece that looks at the batch as a whole."""
        return self.credit_only and not any(getattr(p, "prepare", None) for p in (self.ratio, self.surrogate, *self.corrections))

    def prepare(self, batch: Batch) -> None:
        columns, knobs = batch.columns, {"temperature": self.temperature, "tokens_per_microbatch": self.tokens_per_microbatch}
        if "reference" in self.needs:
            columns["reference"] = score(self.reference, batch, **knobs).logp
        if "old" in self.needs:
            columns["old"] = score(self.policy, batch, **knobs).logp
        for piece in (self.ratio, self.surrogate, *self.corrections, *self.regularisers):
            prepare = getattr(piece, "prepare", None)
            if prepare is not None:
                prepare(batch)
        for correct in self.corrections:
            weight = correct(columns.get("old", columns["behaviour"]), columns["behaviour"], batch)
            columns["weight"] = columns["weight"] * weight if "weight" in columns else weight
        if "corrupted" in self.needs:
            ids = torch.where(columns["corrupt"].bool() & ~batch.trainable & (batch.position > 0), batch.ids[0], batch.ids)
            columns["corrupted"] = score(self.policy, replace(batch, ids=ids, common=[]), **knobs).logp

    def __call__(self, stats: TokenStats, batch: Batch) -> list[Terms]:
        columns = batch.columns
        log_ratio = self.ratio(stats.logp, columns.get("old", columns["behaviour"]), batch)
        main = self.surrogate(log_ratio, columns["credit"], stats, batch)
        if "weight" in columns:
            main.values = main.values * columns["weight"]
        main.metrics = {**main.metrics, **_mismatch(stats, batch)}
        return [main, *(piece(stats, batch) for piece in self.regularisers)]


def _mismatch(stats: TokenStats, batch: Batch) -> dict[str, tuple[Tensor, Tensor]]:
    """Learner against sampler, before any clipping (training/fidelity.py), and the entropy."""
    on = batch.trainable
    if "external" in batch.columns:  # what another wrote was not sampled
        on = on & (batch.per_token(batch.columns["external"]) == 0)
    entropy = torch.where(on, stats.entropy.detach(), 0.0)
    return {**mismatch(stats.logp, batch.columns["behaviour"], on), "entropy": (entropy.sum(), on.sum())}
