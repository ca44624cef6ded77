"""Mixtures of tokens: while it thinks, the model reads a mixture of several next tokens instead of one.

Jain et al. (2025), "Learning to Reason with Mixture of Tokens", arXiv 2509.21482; of the paper the abstract was read,
the rest is our reading.

At each step of the thought a set of k tokens i_1 .. i_k is drawn without replacement from the distribution p, in order,
and the next input is sum_j w_j E[i_j], E the embedding. The action is the set: log pi = sum_j log(p(i_j) / (1 - p(i_1) - ...
- p(i_(j-1)))) (Plackett-Luce, the probability of drawing it in this order), or sum_j w_j log p(i_j). Weights count as
constants, and are recorded with the ids: extras "mixture_ids" and "mixture_weight" [n, k], 0 where a token was read alone. The
first of a set is what is written as text; the thought ends with the text `until`, from where on tokens are drawn and read
alone. With k = 1 that is plain sampling, token by token and bit by bit of the random stream.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from training.learner.learner import token_stats
from training.lm_head.logprob import fused_logprob
from training.model.attention import PackedRows
from training.model.model import embedded_states, head_weight, input_embeddings
from training.model.render import Renderer
from training.rollout.generation import Generation, spread
from training.rollout.generation._session import EmbeddingSampler, EmbeddingSession
from training.rollout.torch_sampler import TorchSampler, _Turn
from training.types import Batch, TokenStats

_REST = 1e-6  # the least probability that is left for the tokens not yet drawn


@dataclass(frozen=True, kw_only=True)
class Mixtures(Generation):
    k: int
    weights: str
    concentration: float
    likelihood: str
    until: str

    def sampler(self, model: nn.Module, renderer: Renderer) -> TorchSampler:
        tag = renderer.encode(self.until) if self.until else np.zeros(0, dtype=np.int64)

        def session(*given: Any) -> _Session:
            return _Session(self, tag, *given)

        return EmbeddingSampler(model, renderer.end_id, renderer=renderer, session=session)

    def logp(self, **numbers: Tensor) -> Tensor:
        """drawn [n, k] log p of the tokens of each set in order, weight [n, k], 0 for a token that is not in it."""
        drawn, weight = numbers["drawn"], numbers["weight"]
        if self.likelihood == "weighted_logp":
            return (weight * torch.where(weight > 0, drawn, 0.0)).sum(1)
        p = torch.where(weight > 0, drawn, -torch.inf).exp()
        before = (p.cumsum(1) - p).clamp(max=1 - _REST)
        return torch.where(weight > 0, drawn - torch.log1p(-before), 0.0).sum(1)

    def read(self, model: nn.Module, batch: Batch, *, temperature: float = 1.0) -> TokenStats:
        if "mixture_ids" not in batch.columns:
            return token_stats(model, batch, temperature=temperature)
        sets, weight = batch.columns["mixture_ids"].long(), batch.columns["mixture_weight"]
        mixed = weight.sum(1) > 0
        embeddings = input_embeddings(model, batch.ids)
        there = mixed.nonzero().squeeze(1)
        mixtures = (weight[there].to(embeddings)[..., None] * input_embeddings(model, sets[there])).sum(1)
        given = embeddings.index_copy(0, there, mixtures)
        hidden = embedded_states(model, given, batch.position, PackedRows(batch.lengths, batch.ids.device))
        at = batch.trainable.nonzero().squeeze(1)
        before, head = hidden.index_select(0, at - 1), head_weight(model)
        logp, entropy = fused_logprob(before, head, batch.ids.index_select(0, at), temperature=temperature)
        inner = mixed.index_select(0, at).nonzero().squeeze(1)
        if len(inner):
            own, of = at.index_select(0, inner), before.index_select(0, inner)
            rest = [fused_logprob(of, head, sets[own, j], temperature=temperature)[0] for j in range(1, sets.shape[1])]
            drawn = torch.stack([logp.index_select(0, inner), *rest], 1)
            logp = logp.index_copy(0, inner, self.logp(drawn=drawn, weight=weight[own]).to(logp))
        n = len(batch.ids)
        return TokenStats(logp=spread(logp, at, n), entropy=spread(entropy, at, n))


class _Session(EmbeddingSession):
    def __init__(self, way: Mixtures, tag: np.ndarray, *given: Any) -> None:
        self.way, self.tag = way, tag
        super().__init__(*given)

    def started(self, turn: _Turn) -> None:
        n, limit, k = len(self.seeds), turn.sampling.max_tokens, self.way.k
        self.own = {r: self.streams(r) for r in self.rows}
        self.thinking = np.full(n, k > 1)
        self.sets, self.weight = np.zeros((n, limit + 1, k), dtype=np.int64), np.zeros((n, limit + 1, k))

    def next_inputs(self, turn: _Turn, last: Tensor, rows: np.ndarray) -> Tensor:
        at = turn.length[rows]
        live = ~turn.over[rows]
        token = turn.sample(last, rows)
        given = input_embeddings(self.sampler.model, token)
        for b in np.flatnonzero(live & self.thinking[rows]):
            r = rows[b]
            n = len(self.tag)
            closed = n and np.array_equal(turn.ids[r, max(0, at[b] + 1 - n) : at[b] + 1], self.tag)
            self.thinking[r] = not (closed or turn.over[r])
        mixed = np.flatnonzero(live & self.thinking[rows])
        if not len(mixed):
            return given
        where = torch.from_numpy(mixed).to(last.device)
        logits = turn.logits(last.index_select(0, where)).float()
        p = torch.softmax(logits / (turn.sampling.temperature or 1.0), -1).double().cpu().numpy()
        for b, chances in zip(mixed, p, strict=True):
            ids, w, logp = self._set(chances, int(turn.ids[rows[b], at[b]]), self.own[rows[b]], turn)
            self.sets[rows[b], at[b]], self.weight[rows[b], at[b]] = ids, w
            turn.logp[rows[b], at[b]] = logp
        sets = torch.from_numpy(self.sets[rows[mixed], at[mixed]]).to(last.device)
        weight = torch.from_numpy(self.weight[rows[mixed], at[mixed]]).to(given)
        return given.index_copy(
            0, where, (weight[..., None] * input_embeddings(self.sampler.model, sets)).sum(1).to(given)
        )

    def _set(
        self, p: np.ndarray, first: int, rng: np.random.Generator, turn: _Turn
    ) -> tuple[np.ndarray, np.ndarray, float]:
        """The ids [k] of a set that begins with `first`, its weights [k], its log-prob."""
        way, ids, left = self.way, [first], p.copy()
        if turn.sampling.temperature == 0:
            ids += [int(i) for i in np.argsort(-p, kind="stable") if i != first][: way.k - 1]
        while len(ids) < way.k:
            left[ids[-1]] = 0.0
            cdf = left.cumsum()
            ids.append(min(int(np.searchsorted(cdf, rng.random() * cdf[-1], side="right")), len(p) - 1))
        chances = np.maximum(p[ids], 1e-30)
        w = np.full(way.k, 1 / way.k) if way.weights == "uniform" else chances / chances.sum()
        if way.weights == "dirichlet" and turn.sampling.temperature > 0:
            w = np.maximum(rng.dirichlet(np.maximum(way.concentration * way.k * w, 1e-3)), 1e-12)
        w = w.astype(np.float32)
        logp = way.logp(drawn=torch.from_numpy(np.log(chances))[None], weight=torch.from_numpy(w)[None])
        return np.array(ids), w, float(logp)

    def extras(self, row: int, n: int) -> dict[str, np.ndarray]:
        return {"mixture_ids": self.sets[row, :n].copy(), "mixture_weight": self.weight[row, :n].copy()}


def mixture_of_tokens(
    *,
    k: int = 3,
    weights: Literal["renorm", "dirichlet", "uniform"] = "renorm",
    concentration: float = 1.0,
    likelihood: Literal["plackett_luce", "weighted_logp"] = "plackett_luce",
    until: str = "<answer>",
) -> Generation:
    """Inputs that mix k tokens while the model thinks.

    k: tokens of a set; 1 is plain sampling. weights: of its tokens: their probabilities, renormalised; drawn from a
    Dirichlet distribution around these (concentration: how near, per token of the set); or all the same, a control.
    likelihood: of a set. until: text that ends the thought; empty: the whole turn is mixed. Raises ValueError for k or a
    concentration that is not positive.
    """
    if k < 1 or concentration <= 0:
        raise ValueError(
            f"generation/mixture_of_tokens: k is {k} and concentration {concentration}: k is 1 or more, concentration positive"
        )
    return Mixtures(k=k, weights=weights, concentration=concentration, likelihood=likelihood, until=until)
