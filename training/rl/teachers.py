"""Teachers of a policy: the divergence of its distributions from theirs, by whatever a teacher can provide.

    a model of the policy's tokenizer     whole distributions, through the fused head (training/lm_head/divergence.py)
    an endpoint of the policy's           its k likeliest ids of each token and what is left as one more outcome: the
    tokenizer                             divergence of the two distributions over k + 1 outcomes, never more than the whole one
    a model of another tokenizer          spans of text that end where a token of either ends, and the probability of a
                                          span's text after the text before it under each model: the divergence of (p, 1
                                          - p) and (q, 1 - q). Minixhofer, Vulic and Ponti 2025, "Universal
                                          Cross-Tokenizer Distillation via Approximate Likelihood Matching" (arXiv
                                          2503.20083), equation 4, without its temperature and its correction for tokens
                                          that straddle a span's end

Several teachers are added up, each by its weight for the family of the problem.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from synth.types import Message, Problem
from training.learner.learner import Targets, score
from training.learner.pack import Row, pack
from training.lm_head.divergence import Kind, dense_divergence, fused_divergence
from training.lm_head.logprob import Asked, Head, fused_stats
from training.model.model import head_weight
from training.model.render import Renderer
from training.rl.observation import with_extra
from training.rollout.play import Player
from training.types import Batch, Group, Rollout, Segment, TokenStats

ALMOST_SURE = -1e-6  # the largest log-prob when 1 - p is needed
TopK = Callable[[Sequence[np.ndarray]], list[tuple[np.ndarray, np.ndarray]]]


@dataclass(frozen=True, kw_only=True)
class Teacher:
    """One teacher: a `model`, with a `renderer` if its tokenizer is not the policy's, or else `top_k`.

    top_k     rows of ids [n] -> per row the likeliest ids [n, k] at each token and their log-probs [n, k]; the entry of
              the first token, which has no history, is not used
    weights   family of a problem -> the teacher's weight; "" for all others (default 1)
    """

    model: nn.Module | None = None
    renderer: Renderer | None = None
    top_k: TopK | None = None
    weights: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if (self.model is None) == (self.top_k is None):
            raise ValueError("a teacher is a model or answers by its top k: give one of the two")

    def weight(self, family: str) -> float:
        return float(self.weights.get(family, self.weights.get("", 1.0)))


@dataclass(frozen=True, kw_only=True)
class Teachers:
    """The teachers of a run, for its pieces; `temperature` divides the logits of all models.

    Columns that are added: teacher_weight_K [T] where weights differ, teacher_ids_K and teacher_logp_K [T, k] of an
    endpoint, teacher_span_K (1, 2, ... within a row; 0: of no span) and teacher_span_logp_K (of the whole span, on each
    of its tokens) of another tokenizer.
    """

    each: Sequence[Teacher]
    temperature: float = 1.0

    def observe(
        self, player: Player, groups: Sequence[Group], problems: Sequence[Problem], seed: tuple[Any, ...]
    ) -> list[Group]:
        """Adds weights and spans as extras of the model's tokens; one pass of each teacher with another tokenizer."""
        groups = list(groups)
        for k, teacher in enumerate(self.each):
            if teacher.weights:
                groups = [_each(g, lambda r, k=k, t=teacher: _weighed(r, k, t)) for g in groups]
            if teacher.renderer is not None:
                known = iter(self._spans(player.renderer, teacher, [r for g in groups for r in g.rollouts]))
                groups = [_each(g, lambda r, k=k, known=known: _with_spans(r, k, *next(known))) for g in groups]
        return groups

    def prepare(self, batch: Batch) -> None:
        """Queries teachers behind an endpoint."""
        starts = np.cumsum([0, *batch.lengths])
        ids = batch.ids.cpu().numpy()
        rows = [ids[a:b] for a, b in zip(starts, starts[1:], strict=False)]
        for k, teacher in enumerate(self.each):
            if teacher.top_k is not None:
                told = teacher.top_k(rows)
                for name, values in zip(("ids", "logp"), zip(*told, strict=True), strict=True):
                    batch.add(
                        f"teacher_{name}_{k}", torch.from_numpy(np.concatenate(values)).to(batch.ids.device), "token"
                    )

    def told(self, stats: TokenStats, batch: Batch) -> TokenStats:
        """Statistics that can compute the divergence from the teachers."""
        return replace(stats, divergence=partial(self.divergence, stats, batch))

    def divergence(self, stats: TokenStats, batch: Batch, kind: Kind, mix: float) -> Tensor:
        """[T] with gradient: that of whole distributions at each trainable token, that of a span at its last one."""
        assert stats.head is not None  # `token_stats` always gives it
        at = batch.trainable.nonzero().squeeze(1)
        hidden, head = stats.head()
        n, out = len(batch.ids), torch.zeros(len(batch.ids), device=batch.ids.device)
        weights = [self._weights(batch, k).index_select(0, at) for k in range(len(self.each))]
        whole = [k for k, t in enumerate(self.each) if t.model is not None and t.renderer is None]
        if whole and len(at):
            teachers = [self._read(self.each[k].model, batch) for k in whole]
            d = fused_divergence(hidden, head, teachers, kind, mix, torch.stack([weights[k] for k in whole]))
            out = out.index_add(0, at, d)
        for k, teacher in enumerate(self.each):
            if teacher.top_k is not None and len(at):
                ids, log_q = (batch.columns[f"teacher_{name}_{k}"].index_select(0, at) for name in ("ids", "logp"))
                own = fused_stats(hidden, head, batch.ids.index_select(0, at), Asked(selected=ids)).selected
                assert own is not None
                d = dense_divergence(_with_rest(own), _with_rest(log_q.to(own)), kind, mix)
                out = out.index_add(0, at, d * weights[k])
            if teacher.renderer is not None:
                where, d = _of_spans(stats.logp, batch, k, kind, mix)
                out = out.index_add(0, where, d * self._weights(batch, k).index_select(0, where))
        assert len(out) == n
        return out

    def _weights(self, batch: Batch, k: int) -> Tensor:
        """[T]"""
        given = batch.columns.get(f"teacher_weight_{k}")
        return torch.ones(len(batch.ids), device=batch.ids.device) if given is None else given

    @torch.no_grad()
    def _read(self, model: Any, batch: Batch) -> tuple[Tensor, Head]:
        targets = Targets.of(model, batch)
        return targets.each(targets.before), Head(weight=head_weight(model), temperature=self.temperature)

    def _spans(
        self, own: Renderer, teacher: Teacher, rollouts: Sequence[Rollout]
    ) -> list[tuple[np.ndarray, np.ndarray]]:
        """Per rollout the span of each token that the model wrote (0: none), and the span's log-prob by the teacher."""
        assert teacher.renderer is not None and teacher.model is not None
        rows, turns = [], []
        for rollout in rollouts:
            ids, mask = _conversation(own, teacher.renderer, rollout)
            rows.append(Row(ids=ids, trainable=mask))
            turns.append([len(s.ids) for s in rollout.segments if s.role == "model"])
        batch = pack(rows, device=str(next(teacher.model.parameters()).device))
        logp = score(teacher.model, batch, temperature=self.temperature).logp.cpu().double().numpy()
        starts = np.cumsum([0, *(len(r.ids) for r in rows)])
        out = []
        for rollout, row, lo in zip(rollouts, rows, starts, strict=False):
            theirs = np.flatnonzero(np.diff(np.r_[0, row.trainable.astype(np.int8), 0]))  # where turns begin and end
            spans, told, known = [], [], 0
            mine = [s for s in rollout.segments if s.role == "model"]
            for s, a, b in zip(mine, theirs[::2], theirs[1::2], strict=True):
                pairs = aligned(ends(own, s.ids), ends(teacher.renderer, row.ids[a:b]))
                span, value = np.zeros(len(s.ids)), np.zeros(len(s.ids))
                for (i, j), (u, v) in pairs:
                    known += 1
                    span[i:j], value[i:j] = known, logp[lo + a + u : lo + a + v].sum()
                spans.append(span)
                told.append(value)
            out.append((np.concatenate(spans), np.concatenate(told)))
        return out


def ends(renderer: Renderer, ids: np.ndarray) -> tuple[str, list[int]]:
    """The text of a turn, and after each of its tokens how many characters of it are written; -1 after one that ends
    within a character. The end-of-turn token counts as one more character."""
    text = renderer.decode(ids)
    closed = bool(len(ids)) and int(ids[-1]) == renderer.end_id
    after = []
    for n in range(1, len(ids) - closed + 1):
        part = renderer.decode(ids[:n])
        after.append(len(part) if text.startswith(part) else -1)
    return text, after + [len(text) + 1] * closed


Span = tuple[tuple[int, int], tuple[int, int]]


def aligned(one: tuple[str, Sequence[int]], other: tuple[str, Sequence[int]]) -> list[Span]:
    """Spans (first token, one after the last) of two tokenizations with the same text, as short as possible; none if
    the texts differ. Tokens after the last common end belong to no span."""
    if one[0] != other[0]:
        return []
    common = sorted((set(one[1]) & set(other[1])) - {-1})
    out, i, u = [], 0, 0
    for end in common:
        # the last token that ends there: a token without text belongs to the one before it
        j, v = (len(after) - list(after)[::-1].index(end) for after in (one[1], other[1]))
        out.append(((i, j), (u, v)))
        i, u = j, v
    return out


def _conversation(own: Renderer, theirs: Renderer, rollout: Rollout) -> tuple[np.ndarray, np.ndarray]:
    """A rollout as rendered by another renderer: ids [n], and which of them the model wrote. Raises ValueError for a
    history that was rewritten."""
    if len(rollout.forks) > 1:
        raise ValueError(
            f"the environment {rollout.problem.env!r} rewrites the history, and a teacher with another tokenizer cannot "
            "follow it: choose a teacher of the policy's tokenizer"
        )
    messages: list[Message] = list(rollout.info["messages"])
    written = [s for s in rollout.segments if s.role == "model"]
    speaks = [i for i, m in enumerate(messages) if m.role == "assistant"][-len(written) :]
    ids, mask, at = [theirs.prompt(messages[: speaks[0]])], [False], speaks[0]
    for n, (s, i) in enumerate(zip(written, speaks, strict=True)):
        if n:
            ids.append(theirs.observation(messages[at:i]))
            mask.append(False)
        turn = theirs.turn(own.decode(s.ids))
        ids.append(turn if len(s.ids) and int(s.ids[-1]) == own.end_id else turn[:-1])
        mask.append(True)
        at = i + 1
    return np.concatenate(ids), np.concatenate([np.full(len(x), f) for x, f in zip(ids, mask, strict=True)])


def _each(group: Group, change: Callable[[Rollout], Rollout]) -> Group:
    return replace(group, rollouts=tuple(change(r) for r in group.rollouts))


def _weighed(rollout: Rollout, k: int, teacher: Teacher) -> Rollout:
    weight = teacher.weight(rollout.problem.family)
    return with_extra(rollout, f"teacher_weight_{k}", lambda s, at: np.full(len(s.ids), weight))


def _with_spans(rollout: Rollout, k: int, span: np.ndarray, logp: np.ndarray) -> Rollout:
    def part(values: np.ndarray) -> Callable[[Segment, int], np.ndarray]:
        return lambda s, at: values[at : at + len(s.ids)]

    rollout = with_extra(rollout, f"teacher_span_{k}", part(span))
    return with_extra(rollout, f"teacher_span_logp_{k}", part(logp))


def log_rest(logp: Tensor) -> Tensor:
    """log(1 - exp(logp)) of log-probs, which are clamped to at most ALMOST_SURE."""
    logp = logp.clamp(max=ALMOST_SURE)
    return torch.where(logp > -math.log(2), torch.log(-torch.expm1(logp)), torch.log1p(-torch.exp(logp)))


def _with_rest(logp: Tensor) -> Tensor:
    """Log-probs [N, k] of outcomes -> [N, k + 1], the last that of all other outcomes together."""
    return torch.cat([logp, log_rest(logp.logsumexp(-1))[:, None]], -1)


def _of_spans(logp: Tensor, batch: Batch, k: int, kind: Kind, mix: float) -> tuple[Tensor, Tensor]:
    """Where spans end in the batch [M], and the divergence of each [M]."""
    span = batch.columns[f"teacher_span_{k}"].long()
    at = ((span > 0) & batch.trainable).nonzero().squeeze(1)
    key = batch.row.index_select(0, at) * (int(span.max()) + 1 if len(span) else 1) + span.index_select(0, at)
    own, which = key.unique(return_inverse=True)
    log_p = torch.zeros(len(own), device=logp.device).index_add(0, which, logp.index_select(0, at))
    last = torch.zeros(len(own), dtype=torch.long, device=logp.device).scatter_reduce(0, which, at, "amax")
    log_q = batch.columns[f"teacher_span_logp_{k}"].index_select(0, last).to(logp.dtype)
    two = lambda x: torch.stack([x.clamp(max=ALMOST_SURE), log_rest(x)], -1)  # noqa: E731
    return last, dense_divergence(two(log_p), two(log_q), kind, mix)
