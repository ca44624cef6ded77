"""BRT-Align: a value of hidden states says how bad an answer will become; where that is too bad, the smallest step restores it.

"Preemptive Detection and Steering of LLM Misalignment via Latent Reachability" 2025 (arXiv 2509.21528); read in the
abstract, the equations are those of reachability.

    V(z_t) <- (1 - gamma) l(z_t) + gamma min(l(z_t), V'(z_{t+1}))      V(z_T) <- l(z_T)      the worst margin ahead
    where V(z) < delta:  z <- z + (delta - V(z)) grad V / ||grad V||^2, up to n_iter times, no longer
                                                                        than max_norm times the mean ||z|| of the pairs

z_t is the residual stream after block `layer` (the last but one), l the margin: 1 everywhere but at the end of a rejected answer, where it
is -1. V is a network of one hidden layer, fitted to all tokens of the pairs with a slowly moving copy V', through `noise`, so that its slope
points where streams lie and not just across a border. The first token
with V < delta is the alarm (the account's events say which). Tokens with V >= delta keep every bit. direction: "random"
is the control: a step as long, another way.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from synth.types import seed_for
from training.decode import Account, Ask, Decoded, Draw, Engine, Example
from training.decode._networks import seeded


class Value(nn.Module):
    """Streams [..., d] -> [...]. The first layer reads them at unit spread."""

    center: Tensor
    spread: Tensor

    def __init__(self, streams: Tensor, hidden: int, seed: int) -> None:
        super().__init__()
        self.register_buffer("center", streams.mean(0))
        self.register_buffer("spread", streams.std(0).clamp(min=1e-6))
        with seeded(seed):
            self.net = nn.Sequential(nn.Linear(streams.shape[1], hidden), nn.Tanh(), nn.Linear(hidden, 1))

    def forward(self, z: Tensor) -> Tensor:
        return self.net((z - self.center) / self.spread)[..., 0]


@dataclass(frozen=True, kw_only=True)
class Reach:
    """value: V; layer: the block whose stream it reads; length: the mean ||z|| of the pairs."""

    value: Any
    layer: int
    length: float


def steered(value: Any, z: Tensor, delta: float, n_iter: int, max_norm: float, along: Tensor | None = None) -> Tensor:
    """Streams z [n, d], all with V < delta -> the step [n, d] that restores them. along [d]: the direction of the control."""
    step = torch.zeros_like(z)
    for _ in range(n_iter):
        with torch.inference_mode(False), torch.enable_grad():
            here = (z + step).clone().detach().requires_grad_()
            v = value(here)
            (slope,) = torch.autograd.grad(v.sum(), here)
        short = (delta - v.detach()).clamp(min=0)[:, None]
        step = step + short * slope / (slope**2).sum(1, keepdim=True).clamp(min=1e-12)
    length = step.norm(dim=1, keepdim=True)
    if along is not None:
        return length.clamp(max=max_norm) * along.to(step)
    return step * (max_norm / length.clamp(min=1e-12)).clamp(max=1.0)


@dataclass(kw_only=True)
class Guard:
    """Steers the stream of one row from the position `start` on; alarms: the positions that it has steered."""

    value: Any
    layer: int
    start: int
    delta: float
    n_iter: int
    max_norm: float
    along: Tensor | None
    alarms: list[int] = field(default_factory=list)

    @property
    def layers(self) -> Sequence[int]:
        return (self.layer,)

    def __call__(self, layer: int, stream: Tensor, position: Tensor) -> Tensor:
        at = torch.nonzero((position >= self.start) & (self.value(stream.float()) < self.delta))[:, 0]
        if not len(at):
            return stream
        self.alarms += position[at].tolist()
        out = stream.clone()
        z = stream[at].float()
        out[at] = (z + steered(self.value, z, self.delta, self.n_iter, self.max_norm, self.along)).to(stream)
        return out


def brt_align(
    engine: Engine,
    asks: Sequence[Ask],
    fitted: Any,
    *,
    layer: int | None = None,
    delta: float = 0.5,
    gamma: float = 0.99,
    n_iter: int = 3,
    max_norm: float = 3.0,
    hidden: int = 64,
    noise: float = 1.0,
    steps: int = 400,
    direction: Literal["value", "random"] = "value",
    seed: int = 0,
    temperature: float | None = None,
) -> list[Decoded]:
    along = None
    if direction == "random":
        along = torch.randn(fitted.value.center.shape, generator=torch.Generator().manual_seed(seed_for(seed, "along")))
        along = along / along.norm()
    engine.fitting(fitted.value.center)
    draws, guards = [], []
    for ask in asks:
        account = Account(limit=ask.forward_tokens)
        guards.append(
            Guard(
                value=fitted.value,
                layer=fitted.layer,
                start=len(ask.prompt) - 1,
                delta=delta,
                n_iter=n_iter,
                max_norm=max_norm * fitted.length,
                along=along,
            )
        )
        room = engine.room(ask, account)
        draws.append(Draw(account=account, prompt=ask.prompt, seed=ask.seed, max_tokens=room, edit=guards[-1]))
    out = []
    for draw, guard, segment in zip(draws, guards, engine.sample(draws, temperature=temperature), strict=True):
        seen = [p - guard.start for p in guard.alarms if p < guard.start + len(segment.ids)]
        if seen:
            draw.account.events.append(f"alarm before token {min(seen) + 1}, {len(seen)} tokens steered")
        out.append(Decoded(segment=segment, account=draw.account))
    return out


def fit(
    engine: Engine,
    pairs: Sequence[Example],
    *,
    layer: int | None = None,
    delta: float = 0.5,
    gamma: float = 0.99,
    n_iter: int = 3,
    max_norm: float = 3.0,
    hidden: int = 64,
    noise: float = 1.0,
    steps: int = 400,
    direction: Literal["value", "random"] = "value",
    seed: int = 0,
    temperature: float | None = None,
) -> Reach:
    """The value of the streams of the pairs. Raises ValueError for a layer that is not there, and a gamma outside 0 to 1."""
    layer = max(engine.layers - 2, 0) if layer is None else engine.layer(layer)
    if not 0 <= gamma <= 1:
        raise ValueError(f"gamma is {gamma}: it discounts what is to come, from 0 to 1")
    streams, worst = [], []
    whole = [np.concatenate([p.prompt, getattr(p, side)]) for p in pairs for side in ("chosen", "rejected")]
    starts = [max(len(p.prompt) - 1, 0) for p in pairs for _ in range(2)]
    for i, (s, start) in enumerate(zip(engine.streams(whole, [layer]), starts, strict=True)):
        streams.append(s[0, start:].float())
        worst.append(-1.0 if i % 2 else 1.0)
    value = Value(torch.cat(streams), hidden, seed_for(seed, "value"))
    backed_up(value, streams, worst, gamma, steps, noise, seed)
    return Reach(value=value, layer=layer, length=float(torch.cat(streams).norm(dim=1).mean()))


def backup(margin: Tensor, after: Tensor, last: Tensor, gamma: float) -> Tensor:
    """What V is fitted to, [n]: of the margin, of V' at the next stream, and of whether the answer ends here (bool)."""
    return torch.where(last, margin, (1 - gamma) * margin + gamma * torch.minimum(margin, after))


def backed_up(
    value: Value,
    streams: Sequence[Tensor],
    worst: Sequence[float],
    gamma: float,
    steps: int,
    noise: float = 0.0,
    seed: int = 0,
) -> None:
    """Fit V to chains of streams [n, d], whose margin is 1 and at the end `worst`: Adam on the squared distance to the
    backup, with a copy V' that follows at 0.05 a step. noise: in spreads of the stream, added to what V reads."""
    chance = torch.Generator().manual_seed(seed)
    z, lengths = torch.cat(list(streams)), torch.tensor([len(s) for s in streams])
    ends = lengths.cumsum(0) - 1
    margin = torch.ones(len(z))
    margin[ends] = torch.tensor(list(worst))
    follows = torch.arange(len(z)) + 1
    last = torch.zeros(len(z), dtype=torch.bool)
    last[ends] = True
    follows[ends] = 0
    target, optimizer = copy.deepcopy(value), torch.optim.Adam(value.parameters(), lr=3e-3)
    for _ in range(steps):
        with torch.no_grad():
            wanted = backup(margin, target(z)[follows], last, gamma)
        optimizer.zero_grad()
        through = z + noise * value.spread * torch.randn(z.shape, generator=chance)
        ((value(through) - wanted) ** 2).mean().backward()
        optimizer.step()
        with torch.no_grad():
            for mine, own in zip(target.parameters(), value.parameters(), strict=True):
                mine.lerp_(own, 0.05)
    for p in value.parameters():
        p.requires_grad_(False)
