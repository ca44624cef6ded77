"""Preference losses over packed pairs: rows 2i (chosen) and 2i + 1 (rejected) become a loss per pair.

`PairObjective` sums log-probs over answers, runs the passes that a loss needs, and passes it the columns that its
signature names.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from training.learner.learner import score_together
from training.learner.pack import Row, pack
from training.learner.world import ONE, World
from training.preference.loss import PreferenceLossPiece
from training.preference.update_rule import UpdateRule
from training.types import Batch, Terms, TokenStats


def columns_of(loss: Callable[..., Tensor]) -> tuple[str, ...]:
    """The names of the columns [P] that a loss reads: its keyword-only arguments that have no default and are not
    bound."""
    parameters = inspect.signature(loss).parameters.values()
    return tuple(p.name for p in parameters if p.kind is p.KEYWORD_ONLY and p.default is p.empty)


def per_pair(loss: Callable[..., Tensor], batch: Batch) -> dict[str, Tensor]:
    """Name -> values [P] of the columns that a loss reads. Raises LookupError for a column that the rows lack."""
    names = columns_of(loss)
    if missing := sorted(set(names) - set(batch.columns)):
        raise LookupError(
            f"the loss needs the column {missing[0]!r} of every pair, and the rows have: {', '.join(sorted(batch.columns))}"
        )
    return {n: batch.columns[n][0::2] for n in names}


@dataclass(frozen=True, kw_only=True)
class PairObjective:
    """A preference loss over rows 2i (chosen) and 2i + 1 (rejected).

    loss       a piece of training/preference/loss, of the sums of log-probs of the answers
    reference  the model whose sums of log-probs the loss compares with; without one these are 0
    policy     the model that learns, for the passes "policy" and "mismatched"
    rules      of training/preference/update_rule: they may add columns to a step
    ratio      a piece of training/rl/ratio that reshapes the log-ratio of each token before the sum; None leaves
               log-probs as they are
    sft        weight of the next-token loss of the chosen answers, each divided by its length; 0 leaves it out
    tolerance  if policy and reference are the same model, the first loss must equal the loss of equal log-probs (ln 2
               for DPO) within this tolerance
    world      the processes that prepare the batch together
    state      "equal": whether they were the same when the step began (the stage sets it, `prepare` clears it after one
               step); and what the loss's own `prepare` keeps
    """

    loss: PreferenceLossPiece
    reference: nn.Module | None = None
    policy: nn.Module | None = None
    rules: Sequence[UpdateRule] = ()
    ratio: Callable[..., Tensor] | None = None
    sft: float = 0.0
    needs: frozenset[str] = frozenset()
    tolerance: float = 1e-4
    tokens_per_microbatch: int = 16384
    world: World = ONE
    state: dict[str, Any] = field(default_factory=dict)

    def prepare(self, batch: Batch) -> None:
        if self.reference is not None:
            batch.add("reference", self._logp(self.reference, batch), "token")
        if "policy" in self.needs:
            batch.add("policy", self._logp(self.policy, batch), "token")
        for rule in self.rules:
            rule.observe(batch, self.reference, self._logp)
        if "mismatched" in self.needs:
            other = mismatched(batch)
            gain = other.row_sum(self._logp(self.policy, other) - self._logp(self.reference, other))
            batch.add("baseline", torch.full_like(gain, float(gain.double().mean().clamp_min(0))), "row")
        for piece in (self.loss, self.ratio):
            own = getattr(piece, "prepare", None)
            if own is not None:
                own(batch, self.state.setdefault("piece", {})) if piece is self.loss else own(batch)
        self.state["begins"] = self.state.pop("equal", False)

    def _logp(self, model: nn.Module | None, batch: Batch) -> Tensor:
        assert model is not None  # the stage provides each one that the loss needs
        logp = score_together(model, batch, self.world, tokens_per_microbatch=self.tokens_per_microbatch)
        return torch.where(batch.trainable, logp, 0.0)

    def __call__(self, stats: TokenStats, batch: Batch) -> list[Terms]:
        sums = batch.row_sum(torch.where(batch.trainable, stats.logp, 0.0))
        lengths = batch.row_sum(batch.trainable.to(sums.dtype))
        reference = batch.columns.get("reference")
        base = (
            torch.zeros_like(sums) if reference is None else batch.row_sum(torch.where(batch.trainable, reference, 0.0))
        )
        policy_values = sums
        if self.ratio is not None:
            old = torch.zeros_like(stats.logp) if reference is None else reference
            policy_values = base + batch.row_sum(self.ratio(stats.logp, old, batch))
        columns = per_pair(self.loss, batch)
        values = self.loss(
            policy_values[0::2], policy_values[1::2], base[0::2], base[1::2], lengths[0::2], lengths[1::2], **columns
        )
        if self.state.get("begins"):
            same = self.loss(base[0::2], base[1::2], base[0::2], base[1::2], lengths[0::2], lengths[1::2], **columns)
            _equal(values.detach(), same, self.tolerance)
        margin = ((sums - base)[0::2] - (sums - base)[1::2]).detach()
        count = torch.tensor(float(len(values)))
        terms = [
            Terms(
                values=values,
                denominator="pairs",
                metrics={
                    "accuracy": ((margin > 0).float().sum(), count),
                    "margin": (margin.sum(), count),
                    "chosen_logp": (sums[0::2].detach().sum(), count),
                },
            )
        ]
        if self.sft:
            first = (torch.arange(batch.rows, device=sums.device) % 2 == 0).to(sums.dtype)
            terms.append(Terms(values=-self.sft * sums * first / lengths.clamp_min(1), denominator="pairs"))
        return terms


def _equal(values: Tensor, same: Tensor, tolerance: float) -> None:
    """Raises ValueError if the mean loss is not that of a policy equal to its reference."""
    mean, want = float(values.double().mean()), float(same.double().mean())
    if not abs(mean - want) <= tolerance * max(1.0, abs(want)):
        raise ValueError(
            f"the first loss is {mean:.6g}, but policy and reference are the same model, for which it is {want:.6g}: the two are not scored "
            f"alike (another dtype or device?), or the weights were changed in between"
        )


def mismatched(batch: Batch) -> Batch:
    """The prompt of every row with the answer of the same side of the next pair: it measures the policy's gain on
    unrelated answers."""
    ids, on = (x.cpu().split(batch.lengths) for x in (batch.ids, batch.trainable))
    start = [int(t.to(torch.int8).argmax()) if bool(t.any()) else len(t) for t in on]
    rows = []
    for r in range(batch.rows):
        s = (r + 2) % batch.rows
        new = torch.cat([ids[r][: start[r]], ids[s][start[s] :]])
        rows.append(
            Row(ids=new.numpy(), trainable=torch.cat([on[r][: start[r]], on[s][start[s] :]]).numpy(), group=r // 2)
        )
    return pack(rows, device=str(batch.ids.device))
