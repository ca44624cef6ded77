"""Masked diffusion of text: a turn of fixed length, unmasked in a few steps, in which what was written may be masked again.

Huang et al. (2025), "Don't Settle Too Early: Self-Reflective Remasking for Diffusion Language Models", arXiv 2509.23653
(RemeDi); the equations are from a summary of the paper. Masked diffusion of text: Nie et al. (2025), "Large Language Diffusion
Models", arXiv 2502.09992.

The model reads the prompt and a turn of `length` positions, each a token or the mask, every position seeing every other,
and gives per position a distribution over tokens and a confidence h. At step t of T the n_t = round(length t / T) positions to be
shown are drawn one after another from all of them, written ones too, with probabilities softmax(h / confidence_temperature) among those left
(Plackett-Luce); a masked one that is chosen gets a token from its distribution, a shown one that is not chosen is masked
again. At the last step all are shown. log pi of a turn is the sum over steps and positions of log-probs of choices (the
last step has none) and of drawn tokens; each position's share is its `logp`. With remask: false, what is shown stays, and
only masked positions are chosen from.

Fine-tuning: of the turn, filled up with the end-of-turn token, a share u ~ U(0, 1) of the positions is masked, and of the shown ones
`corrupt` get another token. Loss: cross-entropy at masked and corrupted positions, and binary cross-entropy of sigmoid(h)
with 1 where a shown token is right, 0 where it is wrong, and p(true token), without gradient, where it is masked.

Extras of a turn, by position: "order" [n, T] (when it was chosen at each step, from 1; 0 if it was not) and "drawn" [n, T]
(the id that it got then + 1, 0 for none).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from synth.types import Sampling
from training.learner.pack import Row
from training.lm_head.logprob import fused_logprob
from training.model.attention import WholeRows
from training.model.model import embedded_states, head_weight, input_embeddings
from training.model.render import Renderer
from training.rollout.generation import Generation, own_layers, spread
from training.types import Batch, Segment, Terms, TokenStats


class UnmaskingLayers(nn.Module):
    """`mask` [d] is read at a masked position; hidden states [n, d] -> confidences [n]."""

    def __init__(self, d: int, scale: float) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.mask = nn.Parameter(torch.randn(d, generator=generator) * scale)
        self.up, self.down = nn.Linear(d, d), nn.Linear(d, 1)
        for layer in (self.up, self.down):
            nn.init.normal_(layer.weight, std=d**-0.5, generator=generator)
            nn.init.zeros_(layer.bias)

    def forward(self, hidden: Tensor) -> Tensor:
        return self.down(F.gelu(self.up(hidden))).squeeze(-1)


@dataclass(frozen=True, kw_only=True)
class MaskedDiffusion(Generation):
    name: ClassVar[str] = "unmasking"
    lessons: ClassVar[bool] = True
    length: int
    steps: int
    remask: bool
    corrupt: float
    bce_weight: float
    confidence_temperature: float

    def begin(self, model: nn.Module, renderer: Renderer, folder: Path | None = None) -> nn.Module:
        weight: Any = model.get_input_embeddings().weight  # type: ignore[operator]
        layers = UnmaskingLayers(weight.shape[1], float(weight.detach().float().std()))
        return own_layers(model, self.name, layers, folder)

    def layers(self, model: nn.Module) -> UnmaskingLayers:
        layers = getattr(model, self.name)
        assert isinstance(layers, UnmaskingLayers)  # `begin` added them
        return layers

    def shown(self, t: int) -> int:
        """Positions that are shown after step t, counted from 0."""
        return max(1, round(self.length * (t + 1) / self.steps)) if t + 1 < self.steps else self.length

    def states(self, model: nn.Module, prompts: Sequence[Tensor], turns: Tensor) -> Tensor:
        """prompts: S of ids [n]; turns [S, L]: ids + 1, 0 for the mask -> hidden states [S, L, d] of the turns."""
        layers, (s, length) = self.layers(model), turns.shape
        ids = torch.cat([torch.cat([p, x]) for p, x in zip(prompts, (turns - 1).clamp_min(0), strict=True)])
        rows = [len(p) + length for p in prompts]
        begin = torch.tensor(np.cumsum([0, *rows[:-1]]) + [len(p) for p in prompts], device=ids.device)
        own = (begin[:, None] + torch.arange(length, device=ids.device)).reshape(-1)
        masked = own[(turns == 0).reshape(-1)]
        given = input_embeddings(model, ids)
        given = given.index_copy(0, masked, layers.mask.to(given).expand(len(masked), -1))
        position = torch.cat([torch.arange(n, device=ids.device) for n in rows])
        hidden = embedded_states(model, given, position, WholeRows(rows, ids.device))
        return hidden.index_select(0, own).view(s, length, -1)

    # --- lessons

    def lesson(self, row: Row, renderer: Renderer, rng: np.random.Generator) -> Row:
        """The last turn of a demonstration as it may be found at some step: "found" [n], id + 1, 0 for the mask; in the prompt
        the id. Raises ValueError for a turn that is longer than `length`."""
        mine = np.asarray(row.columns["loss_weight"]) >= 1
        last = int(np.flatnonzero(mine).max(initial=-1)) + 1
        first = int(np.flatnonzero(~mine[:last]).max(initial=-1)) + 1  # behind the turn the template may write more
        turn = row.ids[first:last]
        if len(turn) > self.length or not first:
            raise ValueError(
                f"generation/masked_diffusion: a turn has {len(turn)} tokens after a prompt of {first}, and turns have {self.length}: raise length, or "
                "leave out longer demonstrations; a prompt comes first, with sft.context_weight below 1"
            )
        answer = np.concatenate([turn, np.full(self.length - len(turn), renderer.end_id)])
        masked = rng.random(self.length) < rng.random()
        wrong = ~masked & (rng.random(self.length) < self.corrupt)
        other = (
            rng.choice(answer, self.length)
            if rng.random() < 0.5
            else rng.integers(0, len(renderer.tokenizer), self.length)
        )
        wrong &= other != answer
        seen = np.where(masked, 0, np.where(wrong, other, answer) + 1)
        n = first + self.length
        own = np.arange(n) >= first
        columns = {
            "found": np.concatenate([row.ids[:first] + 1, seen]),
            "loss_weight": own.astype(float),
            "asked": np.concatenate([np.zeros(first), masked | wrong]),
        }
        ids = np.concatenate([row.ids[:first], answer]).astype(np.int64)
        return Row(ids=ids, trainable=own, group=row.group, columns=columns)

    def taught(self, model: nn.Module, batch: Batch, *, temperature: float = 1.0) -> TokenStats:
        starts = np.cumsum([0, *batch.lengths])
        seen = batch.columns["found"].long()
        ends = starts[1:] - self.length
        prompts = [batch.ids[a:b] for a, b in zip(starts, ends, strict=False)]
        turns = torch.stack([seen[b : b + self.length] for b in ends])
        at = torch.cat([torch.arange(b, b + self.length) for b in ends]).to(batch.ids.device)
        hidden = self.states(model, prompts, turns).flatten(0, 1)
        truth = batch.ids.index_select(0, at)
        logp, entropy = fused_logprob(hidden, head_weight(model), truth, temperature=temperature)
        shown = turns.reshape(-1)
        goal = torch.where(shown > 0, (shown - 1 == truth).to(logp.dtype), logp.detach().exp())
        sure = F.binary_cross_entropy_with_logits(self.layers(model)(hidden).float(), goal, reduction="none")
        n = len(batch.ids)
        return TokenStats(
            logp=spread(logp, at, n), entropy=spread(entropy, at, n), extras={"sure": spread(sure, at, n)}
        )

    def loss(self, stats: TokenStats, batch: Batch) -> list[Terms]:
        weights = torch.where(batch.trainable, batch.columns["asked"], 0.0)
        values = -torch.where(weights > 0, stats.logp, 0.0)
        sure = torch.where(batch.trainable, stats.extras["sure"], 0.0)
        return [
            Terms(
                values=values,
                denominator="loss_tokens",
                metrics={"nll": (values.detach().sum(), weights.sum().clamp_min(1))},
            ),
            Terms(
                values=self.bce_weight * sure,
                denominator="loss_tokens",
                metrics={"confidence": (sure.detach().sum(), batch.trainable.sum())},
            ),
        ]

    # --- turns

    def sampler(self, model: nn.Module, renderer: Renderer) -> _Sampler:
        return _Sampler(self, model, renderer.end_id)

    def logp(self, **numbers: Tensor) -> Tensor:
        """confidence, rank and open [S, L] -> [S] log-probs of the choices of S steps (`each` position's share, summed)."""
        return self.each(numbers["confidence"], numbers["rank"], numbers["open"]).sum(1)

    def each(self, confidence: Tensor, rank: Tensor, open_: Tensor) -> Tensor:
        """[S, L] log-prob with which each chosen position was, 0 for the others. rank: from 1, 0 for one that was not chosen;
        open_: 1 where a position could be chosen."""
        h = torch.where(open_ > 0, confidence / self.confidence_temperature, -torch.inf)
        chosen = rank > 0
        late = torch.where(chosen, rank, torch.inf)
        left = late[:, None, :] >= late[:, :, None]  # [S, i, j]: j is not chosen before i
        scores = torch.where(left, h[:, None, :], -torch.inf)
        among = torch.where(chosen[:, :, None], scores, 0.0).logsumexp(-1)
        return torch.where(chosen, torch.where(chosen, h, 0.0) - torch.where(chosen, among, 0.0), 0.0)

    def read(self, model: nn.Module, batch: Batch, *, temperature: float = 1.0) -> TokenStats:
        starts, length = np.cumsum([0, *batch.lengths]), self.length
        ends = [int(e) - length for e in starts[1:]]
        prompts = [batch.ids[a:b] for a, b in zip(starts, ends, strict=False)]
        at = torch.stack([torch.arange(b, b + length) for b in ends]).to(batch.ids.device)
        rank, drawn = (batch.columns[k].long()[at] for k in ("order", "drawn"))  # [R, L, T]
        logp = torch.zeros(at.shape, device=batch.ids.device)
        entropy = torch.zeros_like(logp)
        turns = torch.zeros_like(at)
        stages = []
        for t in range(self.steps):
            stages.append(turns)
            turns = torch.where(rank[..., t] > 0, torch.where(drawn[..., t] > 0, drawn[..., t], turns), 0)
        hidden = self.states(model, list(prompts) * self.steps, torch.cat(stages))
        confidence = self.layers(model)(hidden).float()
        for t, (h, before) in enumerate(zip(confidence.chunk(self.steps), stages, strict=True)):
            if t + 1 < self.steps:
                open_ = torch.ones_like(h) if self.remask else (before == 0).to(h)
                fresh = rank[..., t] * (1 if self.remask else (before == 0))
                logp = logp + self.each(h, fresh.to(h), open_)
        ids = torch.cat([drawn[..., t] for t in range(self.steps)])  # [T R, L]
        written = (ids > 0).reshape(-1).nonzero().squeeze(1)
        of = hidden.flatten(0, 1).index_select(0, written)
        token = (ids.reshape(-1) - 1).index_select(0, written)
        each, unsure = fused_logprob(of, head_weight(model), token, temperature=temperature)
        place = written % at.numel()
        logp = logp + spread(each, place, at.numel()).view(at.shape)
        entropy = entropy + spread(unsure, place, at.numel()).view(at.shape)
        on, n = at.reshape(-1), len(batch.ids)
        keep = batch.trainable.to(logp)
        return TokenStats(
            logp=spread(logp.reshape(-1), on, n) * keep, entropy=spread(entropy.reshape(-1), on, n) * keep
        )


@dataclass
class _Sampler:
    """Turns of one length, all at once. version: of the weights."""

    way: MaskedDiffusion
    model: nn.Module
    end_id: int
    version: int = 0
    writes: ClassVar[str] = "turns"

    def open(self, prompts: Sequence[np.ndarray], seeds: Sequence[int], **more: Any) -> _Session:
        if any(more.values()):
            raise ValueError(
                "generation/masked_diffusion goes with one policy and an unchanged residual stream: leave out steering and policies"
            )
        return _Session(self, list(prompts), list(seeds))


class _Session:
    joins = False

    def __init__(self, sampler: _Sampler, prompts: list[np.ndarray], seeds: list[int]) -> None:
        self.sampler, self.prompts, self.seeds = sampler, prompts, seeds
        self.rows = list(range(len(prompts)))
        self.turns = np.zeros(len(prompts), dtype=np.int64)
        self.begun: tuple[int, np.ndarray] | None = None  # a step, and the turns [n, L], ids + 1, that it finds

    def observe(self, rows: Sequence[int], new: Sequence[np.ndarray]) -> None:
        self.rows = list(rows)
        if self.rows:
            raise ValueError(
                "generation/masked_diffusion writes one turn, and an environment of this run answers it: choose environments of one turn (single)"
            )

    @torch.inference_mode()
    def generate(self, sampling: Sampling) -> list[Segment]:
        """One turn of each conversation. Raises ValueError for a limit below the length of a turn, and for a sampling that cuts the
        distribution."""
        way, model = self.sampler.way, self.sampler.model
        if (
            sampling.max_tokens < way.length
            or sampling.top_k
            or sampling.top_p < 1
            or sampling.min_p > 0
            or sampling.choices
        ):
            raise ValueError(
                f"generation/masked_diffusion writes turns of {way.length} tokens from the whole distribution: raise sampling.max_turn_tokens to that, "
                "and leave out top_k, top_p, min_p and choices"
            )
        model.eval()
        n, length = len(self.prompts), way.length
        device = head_weight(model).device
        prompts = [torch.from_numpy(np.asarray(p, dtype=np.int64)).to(device) for p in self.prompts]
        rngs = [np.random.Generator(np.random.Philox(key=[seed, 0])) for seed in self.seeds]
        first, begun = self.begun or (0, np.zeros((n, length), dtype=np.int64))
        turns = begun.copy()
        order, drawn = (np.zeros((n, length, way.steps), dtype=np.int64) for _ in range(2))
        logp, entropy = np.zeros((n, length)), np.zeros((n, length))
        heat = sampling.temperature
        for t in range(first, way.steps):
            hidden = way.states(model, prompts, torch.from_numpy(turns).to(device))
            h = way.layers(model)(hidden).float()
            log_p = torch.log_softmax((hidden @ head_weight(model).T).float() / (heat or 1.0), -1)
            unsure = -(log_p.exp() * log_p).sum(-1).cpu().numpy()
            masked, last = turns == 0, t + 1 == way.steps
            open_ = np.ones_like(masked) if way.remask else masked
            noise = np.stack([rng.gumbel(size=length) for rng in rngs]) * (heat > 0)
            score = np.where(open_, h.double().cpu().numpy() / way.confidence_temperature + noise, -np.inf)
            count = np.full(n, way.shown(t)) - (0 if way.remask else (~masked).sum(1))
            rank = np.empty((n, length), dtype=np.int64)
            np.put_along_axis(rank, np.argsort(-score, 1, kind="stable"), np.arange(1, length + 1)[None], 1)
            chosen = (rank <= count[:, None]) & open_
            rank = np.where(chosen, rank, 0)
            if not last:
                share = way.each(h, torch.from_numpy(rank).to(h), torch.from_numpy(open_).to(h))
                logp += share.double().cpu().numpy()
            if not way.remask:  # what is shown stays, and was not chosen anew
                rank = np.where(masked, rank, length + 1)
            cdf = log_p.exp().double().cumsum(-1).cpu().numpy()
            table = log_p.cpu().numpy()
            for r, i in zip(*np.nonzero(chosen & masked), strict=True):
                p = cdf[r, i]
                token = (
                    int(table[r, i].argmax())
                    if heat == 0
                    else int(np.searchsorted(p, rngs[r].random() * p[-1], side="right"))
                )
                drawn[r, i, t], turns[r, i] = token + 1, token + 1
                logp[r, i] += table[r, i, token]
                entropy[r, i] += unsure[r, i]
            order[:, :, t] = rank
            turns = np.where(rank > 0, turns, 0)
        self.turns[self.rows] += 1
        return [self._segment(turns[r] - 1, order[r], drawn[r], logp[r], entropy[r], sampling) for r in self.rows]

    def _segment(
        self,
        ids: np.ndarray,
        order: np.ndarray,
        drawn: np.ndarray,
        logp: np.ndarray,
        entropy: np.ndarray,
        sampling: Sampling,
    ) -> Segment:
        """What stands behind the end of a turn is not text: ends stand in its place; what was drawn there is recorded."""
        ends = np.flatnonzero(ids == self.sampler.end_id)
        shown = np.where(np.arange(len(ids)) > ends[0], self.sampler.end_id, ids) if len(ends) else ids
        return Segment(
            ids=shown.astype(np.int64),
            role="model",
            logp=logp.astype(np.float32),
            entropy=entropy.astype(np.float32),
            stop="end" if len(ends) else "length",
            version=self.sampler.version,
            sampling=sampling,
            extras={"order": order, "drawn": drawn},
        )


def masked_diffusion(
    *,
    length: int = 32,
    steps: int = 16,
    remask: bool = True,
    corrupt: float = 0.1,
    bce_weight: float = 0.3,
    confidence_temperature: float = 1.0,
) -> Generation:
    """A turn of fixed length, unmasked in steps.

    length: positions of a turn. steps: in which they are shown. remask: whether what is shown may be masked again. corrupt: share
    of shown tokens that are replaced in fine-tuning. bce_weight: of the loss of the confidence. confidence_temperature:
    of the choice of positions. Raises ValueError for numbers out of range.
    """
    if length < 1 or not 1 <= steps <= length or not 0 <= corrupt < 1 or confidence_temperature <= 0:
        raise ValueError(
            f"generation/masked_diffusion: length {length}, steps {steps}, corrupt {corrupt}, confidence_temperature {confidence_temperature}: steps lie between "
            "1 and length, corrupt in [0, 1), and the temperature is positive"
        )
    return MaskedDiffusion(
        length=length,
        steps=steps,
        remask=remask,
        corrupt=corrupt,
        bce_weight=bce_weight,
        confidence_temperature=confidence_temperature,
    )
