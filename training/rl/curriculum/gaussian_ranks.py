"""Problems sorted once by a signal of the model itself, and a window that moves along the ranks as the model learns.

Wang et al. 2025, "Angles Don't Lie: Unlocking Training-Efficient RL Through the Model's Own Signals" (GAIN-RL, arXiv
2506.02281).

    signal C = mean cosine between the hidden states of a prompt's tokens, ranks from the highest down
    p(rank i) ~ exp(-(i - mu)^2 / (2 sigma^2)),    mu <- mu + clamp( step/2 tanh(alpha (Acc - beta)) + step/2 tanh(gamma
    C), 0, step )

Acc and C are means over the problems drawn last. Reads state["concentration"] (the observation, computed once) and
state["scores"]; keeps mu and the drawn problems. Returns n distinct indices (repeated only when n exceeds the number of
problems). Defaults are the paper's, for thousands of problems: scale sigma and step. Leaves out the cosine to the
system prompt.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from synth.types import Problem

NEEDS = {"concentration"}


def gaussian_ranks(
    problems: Sequence[Problem],
    state: dict,
    rng: np.random.Generator,
    n: int,
    *,
    sigma: float = 1000.0,
    step: float = 1000.0,
    alpha: float = 2.0,
    beta: float = 0.5,
    gamma: float = 2.0,
) -> list[int]:
    if not problems:
        raise ValueError(
            "the curriculum was given no problem to choose from: check the split and the filters of the stage before"
        )
    signal = state.get("concentration", {})
    mu, drawn = state.setdefault("mu", 0.0), state.get("drawn", [])
    if drawn:
        names = [problems[i].id for i in drawn if i < len(problems)]
        scores = [s[-1] for name in names if (s := state.get("scores", {}).get(name)) and not math.isnan(s[-1])]
        accuracy = sum(scores) / len(scores) if scores else beta
        mean = sum(signal.get(name, 0.0) for name in names) / max(len(names), 1)
        moved = step / 2 * math.tanh(alpha * (accuracy - beta)) + step / 2 * math.tanh(gamma * mean)
        mu = state["mu"] = mu + min(max(moved, 0.0), step)
    order = np.argsort([-signal.get(p.id, 0.0) for p in problems], kind="stable")
    rank = np.empty(len(problems))
    rank[order] = np.arange(len(problems))
    logits = -((rank - min(mu, len(problems) - 1)) ** 2) / (2 * sigma**2)
    p = np.exp(logits - logits.max()) + 1e-12
    state["drawn"] = [int(i) for i in rng.choice(len(problems), size=n, replace=n > len(problems), p=p / p.sum())]
    return list(state["drawn"])
