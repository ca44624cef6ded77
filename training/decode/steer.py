"""PaLRS: preference pairs give a direction in the residual stream, which is added while the model answers.

"Toward Preference-aligned Large Language Models via Residual-based Model Steering" 2025 (arXiv 2509.23982).

    v_{i,l} = mean x_{i,l}(prompt, chosen) - mean x_{i,l}(prompt, rejected)      x <- x + alpha v

x_{i,l} is the residual stream after block l at the i-th token from the end of the answer, i <= positions. Among all i
and l, or among all i of the layer that is named, the one whose two means have the lowest cosine is used. normalise: v
has length 1. The vector is added from the prompt's last token on (the first new token is drawn there). No weight
changes; a negative alpha steers away. direction: "random" is the control, a random direction of the same length,
different for each seed.

Leaves out choosing layer and alpha by the score on a validation set: name them, and compare in `evaluate`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from training.decode import Account, Ask, Decoded, Draw, Engine, Example
from training.model.residual import AddVector


@dataclass(frozen=True, kw_only=True)
class Steering:
    """vector [d]; layer: the block after which it is added; position: tokens from the answer's end where it was read
    (1: the last); cosine: that of the two means there."""

    vector: Tensor
    layer: int
    position: int
    cosine: float


def steer(
    engine: Engine,
    asks: Sequence[Ask],
    fitted: Any,
    *,
    alpha: float = 1.0,
    layer: int | None = None,
    positions: int = 5,
    normalise: bool = True,
    direction: Literal["means", "random"] = "means",
    seed: int = 0,
    temperature: float | None = None,
) -> list[Decoded]:
    vector, draws = engine.fitting(fitted.vector), []
    for ask in asks:
        account = Account(limit=ask.forward_tokens)
        edit = AddVector(vector=alpha * vector, layer=fitted.layer, start=len(ask.prompt) - 1)
        room = engine.room(ask, account)
        draws.append(Draw(account=account, prompt=ask.prompt, seed=ask.seed, max_tokens=room, edit=edit))
    segments = engine.sample(draws, temperature=temperature)
    return [Decoded(segment=s, account=d.account) for d, s in zip(draws, segments, strict=True)]


def fit(
    engine: Engine,
    pairs: Sequence[Example],
    *,
    alpha: float = 1.0,
    layer: int | None = None,
    positions: int = 5,
    normalise: bool = True,
    direction: Literal["means", "random"] = "means",
    seed: int = 0,
    temperature: float | None = None,
) -> Steering:
    """The direction that the pairs give. Raises ValueError for a layer that does not exist, and if the two sides of
    every pair are the same."""
    if positions < 1:
        raise ValueError(f"positions is {positions}: it is how many tokens from the end are looked at, 1 or more")
    layers = list(range(engine.layers)) if layer is None else [engine.layer(layer)]
    means = []
    for side in ("chosen", "rejected"):
        streams = engine.streams([np.concatenate([p.prompt, getattr(p, side)]) for p in pairs], layers)
        last = min(positions, min(s.shape[1] for s in streams))
        means.append([torch.stack([s[:, -i] for s in streams]).mean(0) for i in range(1, last + 1)])
    places = [
        (float(torch.cosine_similarity(a, b, dim=0)), k, i)
        for i, (better, worse) in enumerate(zip(*means, strict=False), start=1)
        for k, (a, b) in enumerate(zip(better, worse, strict=True))
    ]
    cosine, k, i = min(places)
    vector = means[0][i - 1][k] - means[1][i - 1][k]
    length = vector.norm()
    if not length > 0:
        raise ValueError("chosen and rejected answers leave the same residual stream: these pairs give no direction")
    if direction == "random":
        drawn = torch.randn(vector.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        vector = (drawn / drawn.norm()).to(vector) * length
    return Steering(vector=vector / length if normalise else vector, layer=layers[k], position=i, cosine=cosine)
