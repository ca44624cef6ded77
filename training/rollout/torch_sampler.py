"""The in-process sampler: the learner's own weights, a static key/value cache, one prefill for equal prompts.

Log-probs are those of the distribution really sampled from (after temperature, top-k and top-p, renormalised); greedy turns (temperature 0)
carry those of the model at temperature 1. Each sample draws from a random stream of its own, keyed by its seed, so that it does not depend
on which others share its batch (but for rounding: a matrix product of another size may differ in the last bit).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from synth.types import Sampling
from training.attention import CachedRows
from training.model import head_weight, hidden_states
from training.types import Segment


@dataclass
class TorchSampler:
    """`open` starts a session of conversations that grow turn by turn."""

    model: nn.Module
    end_id: int
    version: int = 0

    def open(self, prompts: Sequence[np.ndarray], seeds: Sequence[int]) -> Session:
        """Start one conversation per prompt (ids [n]) with one seed each; equal prompts are prefilled once."""
        return Session(self, prompts, seeds)


class Session:
    """Conversations under way. `generate` and `observe` take turns; rows are named by their place in the prompts given at the start."""

    def __init__(self, sampler: TorchSampler, prompts: Sequence[np.ndarray], seeds: Sequence[int]) -> None:
        self.sampler, self.seeds = sampler, list(seeds)
        self.turn = 0
        self.rows = list(range(len(prompts)))  # conversations still alive, in cache order
        unique: dict[bytes, int] = {}
        which = [unique.setdefault(p.tobytes(), len(unique)) for p in prompts]
        first = [which.index(i) for i in range(len(unique))]
        device = head_weight(sampler.model).device
        self.cache = CachedRows(length=torch.zeros(len(first), dtype=torch.long, device=device))
        with torch.inference_mode():
            last = self._extend([prompts[i] for i in first])
            pick = torch.tensor(which, device=device)
            self.cache, self.last = self.cache.keep(pick), last.index_select(0, pick)

    def _extend(self, new: Sequence[np.ndarray]) -> Tensor:
        """Feed each alive row its new ids; returns the hidden state [B, d] after the last one."""
        device = self.cache.length.device
        fresh = torch.tensor([len(x) for x in new], device=device)
        ids = torch.zeros(len(new), int(fresh.max()), dtype=torch.long)
        for i, x in enumerate(new):
            ids[i, : len(x)] = torch.from_numpy(x)
        hidden = hidden_states(self.sampler.model, ids.to(device), self.cache.begin(fresh), self.cache)
        self.cache.advance()
        return hidden[torch.arange(len(new), device=device), fresh - 1]

    def observe(self, rows: Sequence[int], new: Sequence[np.ndarray]) -> None:
        """Keep only the conversations `rows` alive and append what the environment said to each."""
        with torch.inference_mode():
            if list(rows) != self.rows:
                self.cache = self.cache.keep(torch.tensor([self.rows.index(r) for r in rows], device=self.cache.length.device))
                self.rows = list(rows)
            self.last = self._extend(new)

    @torch.inference_mode()
    def generate(self, sampling: Sampling) -> list[Segment]:
        """Sample the next turn of every alive conversation: at most `max_tokens` ids, ending with the end-of-turn id unless cut."""
        model, end = self.sampler.model, self.sampler.end_id
        model.eval()
        n, limit = len(self.rows), sampling.max_tokens
        # One uniform number per (sample, turn, position): a counter-based stream, so neighbours and batch order do not matter.
        draws = np.stack([np.random.Generator(np.random.Philox(key=[self.seeds[r], self.turn])).random(limit) for r in self.rows])
        uniforms = torch.from_numpy(draws).to(self.last.device)  # [n, limit] float64
        self.turn += 1
        base = self.cache.length
        device = self.last.device
        ids = torch.full((n, limit), end, dtype=torch.long, device=device)
        logps, entropies = torch.zeros(n, limit, device=device), torch.zeros(n, limit, device=device)
        length, ended = torch.full((n,), limit, device=device), torch.zeros(n, dtype=torch.bool, device=device)
        since = int(self.cache.length.min())
        # Turns end at their own pace: when half of the rows at work have ended, the others go on in a cache of their own.
        rows, cache, last = torch.arange(n, device=device), self.cache, self.last
        for t in range(limit):
            token, logp, entropy = _draw(last @ head_weight(model).T, sampling, uniforms[rows, t])
            over = ended[rows]
            token = torch.where(over, end, token)  # an ended row is fed end tokens; what they wrote is forgotten below
            ids[rows, t], logps[rows, t], entropies[rows, t] = token, logp, entropy
            now = rows[~over & (token == end)]
            length[now], ended[now] = t + 1, True
            last = hidden_states(model, token[:, None], cache.begin(torch.ones_like(token)), cache)[:, 0]
            cache.advance()
            going = (~ended[rows]).nonzero().squeeze(1)
            if not len(going):
                break
            if len(going) <= len(rows) // 2:
                if cache is not self.cache:
                    self.cache.put(rows, cache, since)
                rows, cache, last = rows[going], cache.keep(going), last[going]
        if cache is not self.cache:
            self.cache.put(rows, cache, since)
        self.cache.length = base + length
        host = [x.cpu().numpy() for x in (ids, logps, entropies, length, ended)]
        return [
            Segment(ids=host[0][i, : (k := int(host[3][i]))], role="model", logp=host[1][i, :k], entropy=host[2][i, :k],
                    stop="end" if host[4][i] else "length", version=self.sampler.version, sampling=sampling)
            for i in range(n)
        ]  # fmt: skip


def _draw(logits: Tensor, sampling: Sampling, uniform: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """logits [B, V], uniform [B] float64 in [0, 1) -> ids, log-probs and entropies [B] of the truncated, renormalised distribution.

    By inverse CDF: the first token whose cumulated probability exceeds u times the whole. In float64: in float32 the tail of a large
    vocabulary vanishes, and u may round to 1, where a token of probability 0 would be drawn.
    """
    logits = logits.float()
    if sampling.temperature == 0:
        logp = torch.log_softmax(logits, -1)
        best, token = logp.max(-1)
        return token, best, -(logp.exp() * logp).sum(-1)
    logits = logits / sampling.temperature
    if sampling.top_k:
        floor = logits.topk(min(sampling.top_k, logits.shape[-1]), -1).values[:, -1:]
        logits = logits.masked_fill(logits < floor, -torch.inf)
    if sampling.top_p < 1:
        order = logits.sort(-1, descending=True)
        mass = torch.softmax(order.values, -1).cumsum(-1)
        drop = (mass - torch.softmax(order.values, -1)) >= sampling.top_p  # the tokens before it already hold enough
        logits = logits.masked_fill(torch.zeros_like(drop).scatter(-1, order.indices, drop), -torch.inf)
    logp = torch.log_softmax(logits, -1)
    p = logp.exp()
    cdf = p.cumsum(-1, dtype=torch.float64)
    token = torch.searchsorted(cdf, uniform[:, None] * cdf[:, -1:], right=True).squeeze(-1)
    return token, logp.gather(-1, token[:, None]).squeeze(-1), -torch.where(p > 0, p * logp, 0.0).sum(-1)
