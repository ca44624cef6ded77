"""Compressed latent thoughts: several tokens of a thought become one vector, drawn from a normal distribution.

Tan et al. (2025), "Think Silently, Think Fast: Dynamic Latent Compression of LLM Reasoning Chains" (CoLaR); the
equations are from a summary of the paper, the scales and the end of a thought are our reading.

A demonstration's thought (its turn before the text `until`) is cut into groups of c tokens, c drawn from 1 to c_max for
each row. The model reads e = (e_1 + ... + e_m) / sqrt(m), E its embedding, e_j = E[i_j] (independent embeddings of variance 1 keep
variance 1), and learns at each step (i) one token of the next group, drawn by chance, by cross-entropy, and (ii) a normal
distribution N(mu, sigma^2) of the next e by a head on the hidden state: its negative log-density, or in closed form
E|e' - e|^2 - entropy_weight * log sigma for e' from it (`soft_mse`). Both are means over the numbers of e, in units of
the embeddings' standard deviation. What is asked for, c, is told by a learned vector that is added to the token before the thought.

When sampled, a step of thought ends it with the probability s of the first token of `until`, else it draws a vector, which is
read next. Its log-prob is closed: log(1 - s) + sum_d log N(e_d; mu_d, T sigma_d^2), T the temperature; the end's is log s. A thought of
max_latent steps ends by itself, with log-prob 0. Extras: "latent" [n, d], and "act" [n]: 1 a vector, 2 an end that was not
chosen. The id of a vector is the likeliest token there, for a person to read; the model does not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from training.learner.pack import Row
from training.lm_head.logprob import fused_logprob
from training.model.attention import PackedRows
from training.model.kv_cache import CachedRows
from training.model.model import embedded_states, head_weight, input_embeddings
from training.model.render import Renderer
from training.rollout.generation import Generation, found, own_layers, spread
from training.rollout.generation._session import EmbeddingSampler, EmbeddingSession
from training.rollout.torch_sampler import TorchSampler, _Turn
from training.types import Batch, Terms, TokenStats

VECTOR, FORCED = 1, 2
_LOW, _HIGH = -5.0, 1.0  # of log sigma, in units of the embeddings' deviation
_SURE = 1e-6  # the least probability of going on


class LatentLayers(nn.Module):
    """hidden state [n, d] -> mean and log-deviation [n, d] of the next vector; `speed` [c_max + 1, d] says c. scale: the standard
    deviation of the embeddings; end: the id that ends a thought."""

    scale: Tensor
    end: Tensor

    def __init__(self, d: int, c_max: int, scale: float, end: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.up, self.down, self.speed = nn.Linear(d, 2 * d), nn.Linear(2 * d, 2 * d), nn.Embedding(c_max + 1, d)
        for p, std in ((self.up.weight, d**-0.5), (self.down.weight, (2 * d) ** -0.5), (self.speed.weight, scale)):
            nn.init.normal_(p, std=std, generator=generator)
        for p in (self.up.bias, self.down.bias):
            nn.init.zeros_(p)
        self.register_buffer("scale", torch.tensor(scale))
        self.register_buffer("end", torch.tensor(float(end)))

    def forward(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        mean, deviation = self.down(F.gelu(self.up(hidden))).chunk(2, -1)
        return mean * self.scale, deviation.clamp(_LOW, _HIGH) + self.scale.log()


@dataclass(frozen=True, kw_only=True)
class Latents(Generation):
    name: ClassVar[str] = "latent_thought"
    lessons: ClassVar[bool] = True
    c_max: int
    c: int
    max_latent: int
    objective: str
    latent_weight: float
    entropy_weight: float
    latents: str
    until: str

    def begin(self, model: nn.Module, renderer: Renderer, folder: Path | None = None) -> nn.Module:
        weight: Any = model.get_input_embeddings().weight  # type: ignore[operator]
        end = int(renderer.encode(self.until)[0])
        layers = LatentLayers(weight.shape[1], self.c_max, float(weight.detach().float().std()), end)
        return own_layers(model, self.name, layers, folder)

    def layers(self, model: nn.Module) -> LatentLayers:
        layers = getattr(model, self.name)
        assert isinstance(layers, LatentLayers)  # `begin` added them
        return layers

    # --- lessons

    def lesson(self, row: Row, renderer: Renderer, rng: np.random.Generator) -> Row:
        """Groups of each thought become one entry: its id is one of theirs, "members" [n, c_max] are all (id + 1, 0 for
        none). Raises ValueError for a row that does not say which tokens are the model's."""
        weight, c = np.asarray(row.columns["loss_weight"]), int(rng.integers(1, self.c_max + 1))
        mine = weight >= 1
        if mine.all():
            raise ValueError(
                "generation/gaussian_latents: the whole row has loss weight 1, so where a thought begins is not known: set sft.context_weight below 1"
            )
        tag = renderer.encode(self.until)
        kept: list[tuple[int, float, int, list[int], int]] = []  # id, weight, act, members, speed
        at = 0
        while at < len(row.ids):
            stop = at
            while stop < len(row.ids) and mine[stop]:
                stop += 1
            thought = found(row.ids[at:stop], tag) if stop > at else -1
            for g in range(0, max(thought, 0), c):
                group = [int(i) for i in row.ids[at + g : at + min(g + c, thought)]]
                kept.append((group[int(rng.integers(len(group)))], 1.0, VECTOR, group, c if g == 0 else 0))
            rest = range(at + max(thought, 0), max(stop, at + 1))
            kept += [(int(row.ids[i]), float(weight[i]), 0, [], c if thought == 0 and i == at else 0) for i in rest]
            at = max(stop, at + 1)
        members = np.zeros((len(kept), self.c_max))
        for i, (_, _, _, group, _) in enumerate(kept):
            members[i, : len(group)] = np.array(group) + 1
        ids, w, act, _, speed = zip(*kept, strict=True)
        columns = {"loss_weight": np.array(w), "act": np.array(act), "members": members, "speed": np.array(speed)}
        return Row(ids=np.array(ids, dtype=np.int64), trainable=np.array(w) > 0, group=row.group, columns=columns)

    def taught(self, model: nn.Module, batch: Batch, *, temperature: float = 1.0) -> TokenStats:
        layers, members = self.layers(model), batch.columns["members"].long()
        inside = (members > 0).to(head_weight(model).dtype)
        merged = (inside[..., None] * input_embeddings(model, (members - 1).clamp_min(0))).sum(1)
        merged = merged / inside.sum(1).clamp_min(1).sqrt()[:, None]
        acts = batch.columns["act"] == VECTOR
        before, at = self._before(model, batch, torch.where(acts[:, None], merged, 0.0), acts)
        logp, entropy = fused_logprob(
            before, head_weight(model), batch.ids.index_select(0, at), temperature=temperature
        )
        mean, deviation = layers(before)
        target = merged.detach().index_select(0, at)
        off = (mean - target) / layers.scale
        scaled = deviation - layers.scale.log()
        if self.objective == "nll":
            worth = 0.5 * (off * (-scaled).exp()).square() + scaled
        else:
            worth = off.square() + (2 * scaled).exp() - self.entropy_weight * scaled
        worth = torch.where(acts.index_select(0, at), worth.mean(1), 0.0)
        n = len(batch.ids)
        return TokenStats(
            logp=spread(logp, at, n), entropy=spread(entropy, at, n), extras={"latent": spread(worth, at, n)}
        )

    def loss(self, stats: TokenStats, batch: Batch) -> list[Terms]:
        weight = torch.where(batch.trainable, batch.columns["loss_weight"], 0.0)
        count, vectors = batch.trainable.sum(), (batch.columns["act"] == VECTOR).sum()
        values = -torch.where(batch.trainable, stats.logp, 0.0)
        latent = stats.extras["latent"]
        return [
            Terms(values=values * weight, denominator="loss_tokens", metrics={"nll": (values.detach().sum(), count)}),
            Terms(
                values=self.latent_weight * latent * weight,
                denominator="loss_tokens",
                metrics={"latent": (latent.detach().sum(), vectors.clamp_min(1))},
            ),
        ]

    # --- turns

    def sampler(self, model: nn.Module, renderer: Renderer) -> TorchSampler:
        def session(*given: Any) -> _Session:
            return _Session(self, *given)

        return EmbeddingSampler(model, renderer.end_id, renderer=renderer, session=session)

    def logp(self, **numbers: Tensor) -> Tensor:
        """stop [n] the log-prob of ending, mean, log_deviation and latent [n, d] -> [n] of going on with that vector."""
        stop = torch.log1p(-numbers["stop"].exp().clamp(max=1 - _SURE))
        if self.latents == "random":
            return stop
        mean, log_deviation, latent = (numbers[k] for k in ("mean", "log_deviation", "latent"))
        z = (latent - mean) * (-log_deviation).exp()
        return stop - (0.5 * z.square() + log_deviation + 0.5 * math.log(2 * math.pi)).sum(-1)

    def read(self, model: nn.Module, batch: Batch, *, temperature: float = 1.0) -> TokenStats:
        layers, acts = self.layers(model), batch.columns["act"]
        before, at = self._before(model, batch, batch.columns["latent"], acts == VECTOR)
        head, chosen = head_weight(model), acts.index_select(0, at)
        logp, entropy = fused_logprob(before, head, batch.ids.index_select(0, at), temperature=temperature)
        inner = (chosen == VECTOR).nonzero().squeeze(1)
        if len(inner):
            of = before.index_select(0, inner)
            end = layers.end.long().expand(len(inner))
            stop = fused_logprob(of, head, end, temperature=temperature)[0]
            mean, deviation = layers(of)
            deviation = deviation + 0.5 * math.log(temperature)
            latent = batch.columns["latent"].index_select(0, at.index_select(0, inner))
            each = self.logp(stop=stop, mean=mean, log_deviation=deviation, latent=latent)
            logp, entropy = logp.index_copy(0, inner, each), entropy.index_copy(0, inner, _entropy(stop, deviation))
        logp, n = torch.where(chosen == FORCED, 0.0, logp), len(batch.ids)
        return TokenStats(logp=spread(logp, at, n), entropy=spread(entropy, at, n))

    def _before(self, model: nn.Module, batch: Batch, latent: Tensor, acts: Tensor) -> tuple[Tensor, Tensor]:
        """The hidden states [N, d] before the N trainable targets, and the places of these."""
        given = torch.where(acts[:, None], latent, input_embeddings(model, batch.ids))
        speed = batch.columns["speed"].long()
        begun = speed.nonzero().squeeze(1)
        told = self.layers(model).speed(speed.index_select(0, begun))
        given = given.index_add(0, begun - 1, told.to(given))
        hidden = embedded_states(model, given, batch.position, PackedRows(batch.lengths, batch.ids.device))
        at = batch.trainable.nonzero().squeeze(1)
        return hidden.index_select(0, at - 1), at


def _entropy(stop: Tensor, deviation: Tensor) -> Tensor:
    """[n] nats of a step of thought: of whether it ends, and of the vector if it does not."""
    s = stop.exp().clamp(_SURE, 1 - _SURE)
    normal = (deviation + 0.5 * math.log(2 * math.pi * math.e)).sum(-1)
    return -s * s.log() - (1 - s) * torch.log1p(-s) + (1 - s) * normal


class _Session(EmbeddingSession):
    """Each turn begins with a thought, told how fast by what is added to the token before it."""

    def __init__(self, way: Latents, *given: Any) -> None:
        self.way, self.own_layers = way, way.layers(given[0].model)
        super().__init__(*given)

    def _forward(self, ids: Tensor, position: Tensor, cache: CachedRows) -> Tensor:
        fresh = np.broadcast_to(np.asarray(cache.fresh), len(ids))
        given = input_embeddings(self.sampler.model, ids)
        given[torch.arange(len(ids)), torch.from_numpy(fresh - 1)] += self.own_layers.speed.weight[self.way.c]
        return embedded_states(self.sampler.model, given, position, cache)

    def started(self, turn: _Turn) -> None:
        n, limit = len(self.seeds), turn.sampling.max_tokens
        d = head_weight(self.sampler.model).shape[1]
        self.own = {r: self.streams(r) for r in self.rows}
        self.thinking = np.ones(n, dtype=bool)
        self.latent, self.act = np.zeros((n, limit + 1, d), dtype=np.float32), np.zeros((n, limit + 1), dtype=np.int64)

    def next_inputs(self, turn: _Turn, last: Tensor, rows: np.ndarray) -> Tensor:
        model, layers, way = self.sampler.model, self.own_layers, self.way
        at, end = turn.length[rows], int(layers.end)
        thinks = self.thinking[rows] & ~turn.over[rows]
        given = last.new_zeros(last.shape)
        if not thinks.all():
            plain = np.flatnonzero(~thinks)
            where = torch.from_numpy(plain)
            given[where] = input_embeddings(model, turn.sample(last[where], rows[plain]))
        inner = np.flatnonzero(thinks)
        if not len(inner):
            return given
        where, temperature = torch.from_numpy(inner), turn.sampling.temperature
        of = last[where]
        log_p = torch.log_softmax(turn.logits(of).float() / (temperature or 1.0), -1)
        mean, deviation = layers(of)
        deviation = deviation + 0.5 * math.log(temperature or 1.0)
        noise = torch.from_numpy(np.stack([self.own[r].standard_normal(of.shape[1]) for r in rows[inner]])).to(mean)
        if way.latents == "random":
            latent = layers.scale * noise
        else:
            latent = mean + deviation.exp() * noise * float(temperature > 0)
        stop = log_p[:, end]
        gone = way.logp(stop=stop, mean=mean, log_deviation=deviation, latent=latent).cpu().numpy()
        spread_of = _entropy(stop, deviation).cpu().numpy()
        likeliest = log_p.clone()
        likeliest[:, [end, self.sampler.end_id]] = -torch.inf
        read = likeliest.argmax(1).cpu().numpy()
        vectors, chance = latent.float().cpu().numpy(), stop.exp().double().cpu().numpy()
        entropy = -(log_p.exp() * log_p).sum(1).cpu().numpy()
        for i, b in enumerate(inner):
            r, t = rows[b], at[b]
            u = self.own[r].random()
            full = t >= way.max_latent
            ends = full or (u < chance[i] if temperature > 0 else chance[i] > 0.5)
            if ends:
                self.thinking[r] = False
                self.act[r, t] = FORCED if full else 0
                turn.ids[r, t], turn.logp[r, t] = end, 0.0 if full else float(stop[i])
                turn.entropy[r, t] = entropy[i]
                given[b] = input_embeddings(model, torch.tensor(end, device=last.device))
            else:
                self.act[r, t], self.latent[r, t] = VECTOR, vectors[i]
                turn.ids[r, t], turn.logp[r, t], turn.entropy[r, t] = read[i], gone[i], spread_of[i]
                given[b] = latent[i]
            turn.length[r] += 1
        turn.judge(rows[inner][turn.length[rows[inner]] == turn.sampling.max_tokens])
        return given

    def extras(self, row: int, n: int) -> dict[str, np.ndarray]:
        speed = np.zeros(n)
        speed[:1] = self.way.c
        return {"latent": self.latent[row, :n].copy(), "act": self.act[row, :n].copy(), "speed": speed}


def gaussian_latents(
    *,
    c_max: int = 5,
    c: int = 5,
    max_latent: int = 64,
    objective: Literal["nll", "soft_mse"] = "nll",
    latent_weight: float = 1.0,
    entropy_weight: float = 0.1,
    latents: Literal["policy", "random"] = "policy",
    until: str = "<answer>",
) -> Generation:
    """A thought of vectors that stand for several tokens each, then text.

    c_max: most tokens of a group in training. c: what is asked for when turns are sampled. max_latent: most vectors of a
    thought. objective: of the head in fine-tuning. latent_weight: its weight beside the cross-entropy. entropy_weight: of
    soft_mse. latents: drawn from the head; or random, of the embeddings' size, a control. until: text that ends the thought.
    Raises ValueError if c is not between 1 and c_max, and for an empty `until`.
    """
    if not 1 <= c <= c_max or max_latent < 1 or not until:
        raise ValueError(
            f"generation/gaussian_latents: c is {c}, max_latent {max_latent}, until {until!r}: c lies between 1 and c_max = {c_max}, max_latent is 1 "
            "or more, and some text ends the thought"
        )
    return Latents(
        c_max=c_max,
        c=c,
        max_latent=max_latent,
        objective=objective,
        latent_weight=latent_weight,
        entropy_weight=entropy_weight,
        latents=latents,
        until=until,
    )
