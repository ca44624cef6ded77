"""Objectives: what pieces say of a batch, put together as the terms that the learner sums and divides.

`PolicyObjective` composes ratio, corrections, surrogate and regularisers; `PairObjective` is a preference loss over pairs of rows,
`RewardObjective` one over the scalar rewards that a reward model reads off its own tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

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
        return not self.regularisers

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
            columns["corrupted"] = score(self.policy, replace(batch, ids=ids), **knobs).logp

    def __call__(self, stats: TokenStats, batch: Batch) -> list[Terms]:
        columns = batch.columns
        log_ratio = self.ratio(stats.logp, columns.get("old", columns["behaviour"]), batch)
        main = self.surrogate(log_ratio, columns["credit"], stats, batch)
        if "weight" in columns:
            main.values = main.values * columns["weight"]
        main.metrics = {**main.metrics, **_mismatch(stats, batch)}
        return [main, *(piece(stats, batch) for piece in self.regularisers)]


def _mismatch(stats: TokenStats, batch: Batch) -> dict[str, tuple[Tensor, Tensor]]:
    """Learner against sampler, before any clipping: k3 estimate of KL(sampler || learner), largest |log-ratio|, entropy."""
    on, count = batch.trainable, batch.trainable.sum()
    d = torch.where(on, (stats.logp - batch.columns["behaviour"]).detach(), 0.0)
    entropy = torch.where(on, stats.entropy.detach(), 0.0)
    return {
        "mismatch_kl": ((d.exp() - 1 - d).sum(), count),
        "mismatch_max": (d.abs().max(), torch.ones(())),
        "entropy": (entropy.sum(), count),
    }


@dataclass(frozen=True, kw_only=True)
class PairObjective:
    """A preference loss over rows 2i (chosen) and 2i + 1 (rejected).

    loss       a piece of training/prefer, of the sums of log-probs of the answers
    reference  the model whose sums the loss compares with; without one they are 0
    sft        weight of the next-token loss of the chosen answers, each divided by its length; 0 leaves it out
    """

    loss: Callable[..., Tensor]
    reference: nn.Module | None = None
    sft: float = 0.0
    tokens_per_microbatch: int = 16384

    def prepare(self, batch: Batch) -> None:
        if self.reference is not None:
            batch.columns["reference"] = score(self.reference, batch, tokens_per_microbatch=self.tokens_per_microbatch).logp

    def __call__(self, stats: TokenStats, batch: Batch) -> list[Terms]:
        sums = batch.row_sum(torch.where(batch.trainable, stats.logp, 0.0))
        lengths = batch.row_sum(batch.trainable.to(sums.dtype))
        reference = batch.columns.get("reference")
        base = torch.zeros_like(sums) if reference is None else batch.row_sum(torch.where(batch.trainable, reference, 0.0))
        values = self.loss(sums[0::2], sums[1::2], base[0::2], base[1::2], lengths[0::2], lengths[1::2])
        margin = ((sums - base)[0::2] - (sums - base)[1::2]).detach()
        count = torch.tensor(float(len(values)))
        terms = [Terms(values=values, denominator="pairs", metrics={
            "accuracy": ((margin > 0).float().sum(), count), "margin": (margin.sum(), count),
            "chosen_logp": (sums[0::2].detach().sum(), count),
        })]  # fmt: skip
        if self.sft:
            first = (torch.arange(batch.rows, device=sums.device) % 2 == 0).to(sums.dtype)
            terms.append(Terms(values=-self.sft * sums * first / lengths.clamp_min(1), denominator="pairs"))
        return terms


@dataclass(frozen=True, kw_only=True)
class RewardObjective:
    """A pairwise loss over the scalar rewards of rows 2i (chosen) and 2i + 1 (rejected), see `reward_of`."""

    loss: Callable[..., Tensor]

    def __call__(self, stats: TokenStats, batch: Batch) -> list[Terms]:
        r = reward_of(stats, batch)
        none = torch.zeros_like(r[0::2])
        values = self.loss(r[0::2], r[1::2], none, none, none + 1, none + 1)
        gap, count = (r[0::2] - r[1::2]).detach(), torch.tensor(float(len(values)))
        return [
            Terms(values=values, denominator="pairs", metrics={"accuracy": ((gap > 0).float().sum(), count), "margin": (gap.sum(), count)})
        ]


def reward_of(stats: TokenStats, batch: Batch) -> Tensor:
    """[R] rewards: the log-odds of the verdict token that ends each row, its only trainable one.

    So a reward model is a plain causal LM: it needs no head of its own, and any engine that returns log-probs can serve it.
    """
    logp = batch.row_sum(torch.where(batch.trainable, stats.logp, 0.0)).clamp_max(-1e-6)  # at 0 the odds would be infinite
    return logp - torch.log(-torch.expm1(logp))
