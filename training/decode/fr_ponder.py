"""FR-Ponder: a small controller says how many steps along a direction of thought the stream takes before the answer.

"Learning to Ponder: Adaptive Reasoning in Latent Space" 2025 (arXiv 2509.24238); read in the abstract, the equations are
our reading.

    v = mean x(chosen) - mean x(rejected), of length 1                      the direction
    h_0 = the stream of the prompt's last token after block `layer`,  h_{j+1} = h_j + alpha ||h_0|| v
    p_j = sigmoid(c(h_j, j / k_max))    halt at step j with p_j, at k_max in any case;  K is the number of steps taken
    R = reward(answer) - cost K / k_max       A = (R - mean R) / (std R + 1e-6) in a group of one prompt
    c <- c + lr grad mean A log p(K)          log p(K) = log p_K + sum_{j < K} log (1 - p_j)       GRPO, on policy

alpha ||h_0|| K v is added after block `layer` (the middle one) from the prompt's last token on. The model is frozen; c, of
one hidden layer, learns on the prompts of the pairs with the reward model's rewards; the cost rises from 0 over the first
third of the steps. An answer takes the likeliest K. Controls: halting "random", K drawn evenly; "never", K = k_max; "fixed", of
all depths the one that earns most for every prompt, each tried on an even share of as many answers as c learns from.

Leaves out terms for format and for the spread of depths.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from synth.types import seed_for
from training.decode import Account, Ask, Decoded, Draw, Engine, Example
from training.decode._networks import seeded
from training.model.residual import AddVector

NEEDS = {"reward_model"}


class Controller(nn.Module):
    """Streams [n, d] -> the log-probability of each number of steps [n, k_max + 1]."""

    def __init__(self, streams: Tensor, vector: Tensor, alpha: float, k_max: int, hidden: int, seed: int) -> None:
        super().__init__()
        self.vector, self.alpha, self.k_max = vector, alpha, k_max
        self.center, self.spread = streams.mean(0), streams.std(0).clamp(min=1e-6)
        with seeded(seed):
            self.net = nn.Sequential(nn.Linear(len(vector) + 1, hidden), nn.Tanh(), nn.Linear(hidden, 1))

    def forward(self, h: Tensor) -> Tensor:
        steps = torch.arange(self.k_max, dtype=h.dtype)
        moved = h[:, None] + steps[:, None] * self.alpha * h.norm(dim=1)[:, None, None] * self.vector
        at = (steps / max(self.k_max, 1))[:, None].expand(len(h), -1, 1)
        logit = self.net(torch.cat([(moved - self.center) / self.spread, at], -1))[..., 0]
        return halted(logit)


def halted(logit: Tensor) -> Tensor:
    """Logits of halting at each step [n, k] -> the log-probability of each number of steps [n, k + 1]."""
    zero = logit.new_zeros(len(logit), 1)
    on = torch.cat([zero, logsigmoid(-logit).cumsum(1)], 1)
    return on + torch.cat([logsigmoid(logit), zero], 1)


@dataclass(frozen=True, kw_only=True)
class Pondering:
    """controller; vector [d] of length 1; layer: where it is added; depth: the mean number of steps at the end; fixed: the
    number that earns most for every prompt, where that is what was looked for."""

    controller: Any
    vector: Tensor
    layer: int
    depth: float
    fixed: int = 0


def fr_ponder(
    engine: Engine,
    asks: Sequence[Ask],
    fitted: Any,
    *,
    k_max: int = 8,
    alpha: float = 0.2,
    cost: float = 0.1,
    layer: int | None = None,
    hidden: int = 32,
    group: int = 8,
    steps: int = 40,
    lr: float = 0.03,
    halting: Literal["learned", "random", "never", "fixed"] = "learned",
    seed: int = 0,
    temperature: float | None = None,
) -> list[Decoded]:
    engine.fitting(fitted.vector)
    accounts = [Account(limit=ask.forward_tokens) for ask in asks]
    rooms = [engine.room(ask, account) for ask, account in zip(asks, accounts, strict=True)]
    # Reading the prompt for the controller is one more pass over it; where the budget has none, nothing is added.
    ponder = [i for i, ask in enumerate(asks) if accounts[i].left > 2 * len(ask.prompt)]
    depth = dict.fromkeys(range(len(asks)), 0)
    lengths = dict.fromkeys(range(len(asks)), 0.0)
    streams = engine.read([(accounts[i], asks[i].prompt) for i in ponder], fitted.layer) if ponder else []
    for i, stream in zip(ponder, streams, strict=True):
        h = stream[-1].float()
        lengths[i] = float(h.norm())
        if halting == "learned":
            with torch.no_grad():
                depth[i] = int(fitted.controller(h[None])[0].argmax())
        elif halting == "fixed":
            depth[i] = fitted.fixed
        else:
            drawn = np.random.default_rng(seed_for(asks[i].seed, "depth")).integers(k_max + 1)
            depth[i] = k_max if halting == "never" else int(drawn)
    draws = []
    for i, ask in enumerate(asks):
        accounts[i].events.append(f"pondered {depth[i]} of {k_max} steps")
        edit = _steps(fitted.vector, alpha * lengths[i] * depth[i], fitted.layer, len(ask.prompt) - 1)
        room = int(min(rooms[i], accounts[i].left - len(ask.prompt)))
        draws.append(Draw(account=accounts[i], prompt=ask.prompt, seed=ask.seed, max_tokens=room, edit=edit))
    segments = engine.sample(draws, temperature=temperature)
    return [Decoded(segment=s, account=a) for s, a in zip(segments, accounts, strict=True)]


def _steps(vector: Tensor, length: float, layer: int, start: int) -> AddVector:
    return AddVector(vector=length * vector, layer=layer, start=start)


def fit(
    engine: Engine,
    pairs: Sequence[Example],
    *,
    k_max: int = 8,
    alpha: float = 0.2,
    cost: float = 0.1,
    layer: int | None = None,
    hidden: int = 32,
    group: int = 8,
    steps: int = 40,
    lr: float = 0.03,
    halting: Literal["learned", "random", "never", "fixed"] = "learned",
    seed: int = 0,
    temperature: float | None = None,
) -> Pondering:
    """The direction and the controller. Raises ValueError for a layer that is not there, for fewer than one step or two
    rollouts of a prompt, and where the sides of all pairs are alike."""
    layer = engine.layers // 2 if layer is None else engine.layer(layer)
    if k_max < 1 or group < 2:
        raise ValueError(f"k_max is {k_max} and group {group}: steps are 1 or more, rollouts of a prompt 2 or more")
    means = []
    for side in ("chosen", "rejected"):
        rows = [np.concatenate([p.prompt, getattr(p, side)]) for p in pairs]
        streams = engine.streams(rows, [layer])
        means.append(
            torch.stack([s[0, len(p.prompt) :].float().mean(0) for s, p in zip(streams, pairs, strict=True)]).mean(0)
        )
    vector = means[0] - means[1]
    if not vector.norm() > 0:
        raise ValueError("chosen and rejected answers leave the same residual stream: these pairs give no direction")
    vector = vector / vector.norm()
    h = torch.stack([s[0, -1].float() for s in engine.streams([p.prompt for p in pairs], [layer])])
    controller = Controller(h, vector, alpha, k_max, hidden, seed_for(seed, "controller"))
    if halting == "learned":
        optimizer = torch.optim.Adam(controller.parameters(), lr=lr)
        for t in range(steps):
            logp = controller(h)
            chance = torch.Generator().manual_seed(seed_for(seed, "halting", t))
            depth = torch.multinomial(logp.detach().exp(), group, replacement=True, generator=chance)
            rewards = _rewards(engine, pairs, h, vector, layer, alpha, depth, seed_for(seed, "ponder", t))
            paid = rewards - min(1.0, 3 * t / steps) * cost * depth / k_max
            spread = paid.std(1, correction=0, keepdim=True)
            advantage = (paid - paid.mean(1, keepdim=True)) / (spread + 1e-6)
            optimizer.zero_grad()
            (-(advantage * logp.gather(1, depth)).mean()).backward()
            optimizer.step()
    if halting == "fixed":
        every = torch.arange(k_max + 1).expand(len(pairs), -1)
        tries = [
            _rewards(engine, pairs, h, vector, layer, alpha, every, seed_for(seed, "fixed", t)).mean(0)
            for t in range(max(1, steps * group // (k_max + 1)))
        ]
        best = int(torch.stack(tries).mean(0).argmax())
        return Pondering(controller=None, vector=vector, layer=layer, depth=float(best), fixed=best)
    with torch.no_grad():
        deep = float(controller(h).argmax(1).float().mean())
    return Pondering(controller=controller, vector=vector, layer=layer, depth=deep)


def _rewards(
    engine: Engine,
    pairs: Sequence[Example],
    h: Tensor,
    vector: Tensor,
    layer: int,
    alpha: float,
    depth: Tensor,
    seed: int,
) -> Tensor:
    """Of one answer to each prompt at each of its depths [n, group]: the reward model's [n, group], 0 for one too long."""
    account, draws = Account(), []
    for i, p in enumerate(pairs):
        for g, k in enumerate(depth[i].tolist()):
            edit = _steps(vector, alpha * float(h[i].norm()) * k, layer, len(p.prompt) - 1)
            draws.append(
                Draw(
                    account=account,
                    prompt=p.prompt,
                    seed=seed_for(seed, i, g),
                    max_tokens=engine.sampling.max_tokens,
                    edit=edit,
                )
            )
    segments = engine.sample(draws)
    values = engine.rate([(account, np.concatenate([d.prompt, s.ids])) for d, s in zip(draws, segments, strict=True)])
    return torch.tensor(values).nan_to_num(0.0).view(depth.shape)
