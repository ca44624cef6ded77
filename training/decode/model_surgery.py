"""Model surgery: a probe of the wanted behaviour, added to those rows of the gates that are most opposed to it.

"Model Surgery: Modulating LLM's Behavior Via Simple Parameter Editing" 2024 (arXiv 2407.08770); read in the abstract,
the equations are our reading.

    p = sigmoid(w . mean x(answer) + b)                 a logistic probe: 1 for chosen answers, 0 for rejected ones
    v <- v + alpha ||v|| w / ||w||                      of the rows v of the gates with the lowest cosine to w

x is the residual stream after block `layer`, averaged over the answer. The share `rows` of the rows of all gates of that
block and those behind it is changed. Whether alpha or -alpha is taken, the pairs say (choose_sign): the
one under which a fifth of them, kept from the probe, prefer the chosen answer more. The weights are changed while an answer is drawn and are bit by bit as before afterwards. rows_by: "random" is
the control: as many rows, changed as much, drawn by chance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, cosine_similarity

from training.decode import Ask, Decoded, Engine, Example
from training.decode.sample import sample

GATE = "mlp.gate_proj.weight"


@dataclass(frozen=True, kw_only=True)
class Surgery:
    """weights: name -> the changed gates [m, d]; probe [d] of length 1; accuracy: of the probe on its own pairs; changed:
    how many rows."""

    weights: dict[str, Tensor]
    probe: Tensor
    accuracy: float
    changed: int


def model_surgery(
    engine: Engine,
    asks: Sequence[Ask],
    fitted: Any,
    *,
    alpha: float = 10.0,
    rows: float = 0.3,
    layer: int = 0,
    rows_by: Literal["probe", "random"] = "probe",
    ridge: float = 0.01,
    choose_sign: bool = True,
    seed: int = 0,
    temperature: float | None = None,
) -> list[Decoded]:
    with engine.changed(fitted.weights):
        return sample(engine, asks, None, temperature=temperature)


def probed(streams: Tensor, wanted: Tensor, ridge: float) -> tuple[Tensor, float]:
    """Mean streams [n, d] and which of them are wanted [n] (1 or 0) -> (w [d] of length 1, the share of them that the
    probe tells). Logistic regression on streams of unit spread, with ridge / 2 ||w||^2."""
    center, spread = streams.mean(0), streams.std(0).clamp(min=1e-6)
    x = (streams - center) / spread
    w = x.new_zeros(x.shape[1] + 1, requires_grad=True)
    optimizer = torch.optim.LBFGS([w], max_iter=100, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        value = binary_cross_entropy_with_logits(x @ w[:-1] + w[-1], wanted) + ridge / 2 * (w[:-1] ** 2).sum()
        value.backward()
        return value

    optimizer.step(loss)  # type: ignore[arg-type]
    with torch.no_grad():
        right = ((x @ w[:-1] + w[-1] > 0) == (wanted > 0.5)).double().mean()
        probe = w[:-1] / spread
        return probe / probe.norm().clamp(min=1e-12), float(right)


def operated(
    gates: dict[str, Tensor], probe: Tensor, alpha: float, share: float, order: Tensor | None
) -> tuple[dict, int]:
    """The changed gates [m, d] by name, and how many rows of all are changed: the first of `order`, or those with the
    lowest cosine to the probe."""
    every = torch.cat(list(gates.values()))
    n = int(round(share * len(every)))
    if order is None:
        order = cosine_similarity(every, probe.to(every)[None], dim=1).argsort(stable=True)
    chosen = torch.zeros(len(every), 1, dtype=every.dtype)
    chosen[order[:n]] = 1.0
    moved = every + chosen * (alpha * every.norm(dim=1, keepdim=True) * probe.to(every))
    return dict(zip(gates, moved.split([len(g) for g in gates.values()]), strict=True)), n


def fit(
    engine: Engine,
    pairs: Sequence[Example],
    *,
    alpha: float = 10.0,
    rows: float = 0.3,
    layer: int = 0,
    rows_by: Literal["probe", "random"] = "probe",
    ridge: float = 0.01,
    choose_sign: bool = True,
    seed: int = 0,
    temperature: float | None = None,
) -> Surgery:
    """The rows to be changed. Raises ValueError for a layer that is not there, a share outside 0 to 1, and a model without
    gates."""
    layer = engine.layer(layer)
    if not 0 <= rows <= 1:
        raise ValueError(f"rows is {rows}: it is the share of the rows of the gates that is changed, from 0 to 1")
    if len(pairs) < 5:
        raise ValueError(f"a probe cannot be learned of {len(pairs)} preference pairs: give 5 or more")
    held = max(1, len(pairs) // 5) if choose_sign else 0
    learned_from = pairs[held:]
    whole = [np.concatenate([p.prompt, getattr(p, side)]) for p in learned_from for side in ("chosen", "rejected")]
    starts = [len(p.prompt) for p in learned_from for _ in range(2)]
    means = torch.stack(
        [s[0, start:].double().mean(0) for s, start in zip(engine.streams(whole, [layer]), starts, strict=True)]
    )
    wanted = torch.tensor([1.0, 0.0] * len(learned_from), dtype=torch.float64)
    probe, accuracy = probed(means, wanted, ridge)
    gates = {n: w for n, (block, w) in engine.weights(GATE).items() if block >= layer}
    order = None
    if rows_by == "random":
        order = torch.randperm(sum(map(len, gates.values())), generator=torch.Generator().manual_seed(seed))
    done = [operated(gates, probe, sign * alpha, rows, order) for sign in ((1, -1) if choose_sign else (1,))]
    weights, n = max(done, key=lambda one: _margin(engine, one[0], pairs[:held])) if choose_sign else done[0]
    return Surgery(weights=weights, probe=probe, accuracy=accuracy, changed=n)


def _margin(engine: Engine, weights: dict[str, Tensor], pairs: Sequence[Example]) -> float:
    """Mean nats by which the policy with these weights prefers the chosen answer."""
    with engine.changed(weights):
        better, worse = (engine.logp([(p.prompt, getattr(p, side)) for p in pairs]) for side in ("chosen", "rejected"))
    return float((better - worse).mean())
