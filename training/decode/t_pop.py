"""T-POP: a frozen model learns what one user likes from duels of its own answers, and is guided by it.

"T-POP: Test-Time Personalization with Online Preference Feedback" 2025 (arXiv 2509.24696); read in the abstract, the
equations are our reading. Of the k candidates for the next piece y of an answer

    y1 = argmax  log p(y) + w  theta . phi(y)                                          what is answered with
    y2 = argmax  log p(y) + w (theta . phi(y) + nu ||phi(y) - phi(y1)||_{V^-1})        the rival in a duel

phi is the mean residual stream of the answer after `layer` (the last), at unit spread over 32 drawn answers and over sqrt(d). The user takes one of the two; theta minimises
sum log(1 + exp(-theta . (phi_won - phi_lost))) + lam / 2 ||theta||^2 over all duels, and V = lam I + sum of the outer
products of the differences. The pairs are duels that were fought before; `duels` more are fought on their prompts, with
the reward model in the place of the user (noise: of a logistic choice; 0 takes the better). nu = 0 is the control: no
exploration.

Leaves out candidates by enumeration: they are drawn. Reading phi is charged to the answer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from synth.types import seed_for
from training.decode import Ask, Decoded, Engine, Example
from training.decode.sample import sample
from training.decode._segments import Writing, begun, continued, options

NEEDS = {"reward_model"}
DRAWN = 32
Worth = Callable[[int, Tensor], Tensor]  # of an ask: features [k, d] of its candidates -> [k]


@dataclass(frozen=True, kw_only=True)
class Taste:
    """theta [d]; inverse: V^-1 [d, d]; center, spread [d] of streams; layer: whose they are; rewards: the user's, of the two answers of each duel, that to y1 first."""

    theta: Tensor
    inverse: Tensor
    center: Tensor
    spread: Tensor
    layer: int
    rewards: tuple[tuple[float, float], ...]


def learned(differences: Tensor, lam: float) -> tuple[Tensor, Tensor]:
    """Features of the winners less those of the losers [n, d], double -> (theta [d], V^-1 [d, d]), by Newton's steps."""
    d = differences.shape[1]
    theta, eye = differences.new_zeros(d), torch.eye(d, dtype=differences.dtype)
    for _ in range(50):
        lost = torch.sigmoid(-differences @ theta)
        slope = lam * theta - differences.T @ lost
        curve = lam * eye + differences.T @ ((lost * (1 - lost))[:, None] * differences)
        step = torch.linalg.solve(curve, slope)
        theta = theta - step
        if step.norm() < 1e-12:
            break
    return theta, torch.linalg.inv(lam * eye + differences.T @ differences)


def t_pop(
    engine: Engine,
    asks: Sequence[Ask],
    fitted: Any,
    *,
    k: int = 4,
    segment: int = 16,
    w: float = 1.0,
    nu: float = 1.0,
    lam: float = 1.0,
    layer: int | None = None,
    duels: int = 0,
    noise: float = 0.0,
    seed: int = 0,
) -> list[Decoded]:
    engine.fitting(fitted.theta)
    writings = _written(engine, asks, k, segment, fitted.layer, w, lambda i, x: _scaled(x, fitted) @ fitted.theta)
    return [x.decoded() for x in writings]


def _written(
    engine: Engine, asks: Sequence[Ask], k: int, segment: int, layer: int, w: float, worth: Worth
) -> list[Writing]:
    writings = begun(asks)
    while open_ := [i for i, x in enumerate(writings) if not x.over]:
        mine = [writings[i] for i in open_]
        drawn = options(engine, mine, k, segment, reads=True)
        rows = continued(mine, drawn)
        streams = iter(engine.read(rows, layer) if rows else [])
        for i, few in zip(open_, drawn, strict=True):
            if few:
                phi = torch.stack([_feature(next(streams), len(writings[i].ask.prompt)) for _ in few])
                logp = torch.tensor([float(c.logp.sum()) for c in few if c.logp is not None], dtype=phi.dtype)
                writings[i].take(few[int((logp + w * worth(i, phi)).argmax())])
    return writings


def _feature(stream: Tensor, start: int) -> Tensor:
    """[d] of the answer that begins at `start` of a stream [n, d]."""
    return stream[start:].double().mean(0)


def _scaled(x: Tensor, by: Any) -> Tensor:
    return (x - by.center) / (by.spread * x.shape[-1] ** 0.5)


def fit(
    engine: Engine,
    pairs: Sequence[Example],
    *,
    k: int = 4,
    segment: int = 16,
    w: float = 1.0,
    nu: float = 1.0,
    lam: float = 1.0,
    layer: int | None = None,
    duels: int = 0,
    noise: float = 0.0,
    seed: int = 0,
) -> Taste:
    """What the pairs and the duels tell of the user. Raises ValueError for a layer that is not there, for lam of 0 or
    less, and for duels without a reward model."""
    layer = engine.layers - 1 if layer is None else engine.layer(layer)
    if lam <= 0:
        raise ValueError(f"lam is {lam}: it keeps theta finite where few duels are known; give a number above 0")
    rows = [np.concatenate([p.prompt, getattr(p, side)]) for p in pairs for side in ("chosen", "rejected")]
    starts = [len(p.prompt) for p in pairs for _ in range(2)]
    asks = [
        Ask(prompt=pairs[i % len(pairs)].prompt, seed=seed_for(seed, "drawn", i), max_tokens=engine.sampling.max_tokens)
        for i in range(DRAWN)
    ]
    drawn = [(a.prompt, d.segment.ids) for a, d in zip(asks, sample(engine, asks, None), strict=True)]
    whole = [np.concatenate(row) for row in drawn] + rows
    starts = [len(prompt) for prompt, _ in drawn] + starts
    x = [_feature(s[0], start) for s, start in zip(engine.streams(whole, [layer]), starts, strict=True)]
    center, spread = torch.stack(x[:DRAWN]).mean(0), torch.stack(x[:DRAWN]).std(0).clamp(min=1e-6)
    taste = Taste(
        theta=center * 0, inverse=torch.eye(len(center)), center=center, spread=spread, layer=layer, rewards=()
    )
    known = [_scaled(a, taste) - _scaled(b, taste) for a, b in zip(x[DRAWN::2], x[DRAWN + 1 :: 2], strict=True)]
    rng = np.random.default_rng(seed_for(seed, "duels"))
    for t in range(duels + 1):
        theta, inverse = learned(torch.stack(known), lam)
        taste = replace(taste, theta=theta, inverse=inverse)
        if t == duels:
            break
        ask = Ask(
            prompt=pairs[t % len(pairs)].prompt,
            seed=seed_for(seed, "duel", t),
            max_tokens=engine.sampling.max_tokens,
        )
        won, lost, rewards = _fought(engine, ask, taste, k, segment, w, nu, noise, rng)
        known.append(won - lost)
        taste = replace(taste, rewards=(*taste.rewards, rewards))
    return taste


def _fought(
    engine: Engine, ask: Ask, taste: Taste, k: int, segment: int, w: float, nu: float, noise: float, rng: Any
) -> tuple[Tensor, Tensor, tuple[float, float]]:
    """One duel -> phi [d] of the answer that the user took, that of the other, and the user's rewards."""

    def phi(one: Writing) -> Tensor:
        (stream,) = engine.read([(one.account, one.context)], taste.layer)
        return _scaled(_feature(stream, len(ask.prompt)), taste)

    def bold(i: int, x: Tensor) -> Tensor:
        apart = _scaled(x, taste) - mine
        return _scaled(x, taste) @ taste.theta + nu * ((apart @ taste.inverse) * apart).sum(1).clamp(min=0).sqrt()

    (one,) = _written(engine, [ask], k, segment, taste.layer, w, lambda i, x: _scaled(x, taste) @ taste.theta)
    mine = phi(one)
    rival = replace(ask, seed=seed_for(ask.seed, "rival"))
    (two,) = _written(engine, [rival], k, segment, taste.layer, w, bold)
    a, b = engine.rate([(one.account, one.context), (two.account, two.context)])
    chance = float(a >= b) if noise == 0 else 1 / (1 + math.exp((b - a) / noise))
    theirs = phi(two)
    return (mine, theirs, (a, b)) if rng.random() < chance else (theirs, mine, (a, b))
