"""Shared by transforms that reward the steps of episodes: the observations of each step, replacing their rewards, and
small networks that are stored as plain arrays from step to step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from training.types import Rollout


def each_step(rollout: Rollout, name: str) -> np.ndarray:
    """[steps, d] float64: an extra of the first token of each turn of the model. Raises ValueError if it was not
    stored."""
    turns = [s for s in rollout.segments if s.role == "model"]
    if any(name not in s.extras for s in turns):
        raise ValueError(
            f"a group transform reads {name!r} of every step, and the rollouts of problem {rollout.problem.id} have none: it is for worlds "
            "of numbers (rl.control) that give it"
        )
    return np.array([np.asarray(s.extras[name], dtype=np.float64)[0] for s in turns])


def paid(rollout: Rollout, rewards: np.ndarray) -> Rollout:
    """The rollout with other rewards of its turns [steps]. Its score does not change."""
    given = iter(rewards)
    return replace(
        rollout,
        segments=tuple(replace(s, reward=float(next(given))) if s.role == "model" else s for s in rollout.segments),
    )


class Small:
    """x [n, d] -> [n]: one hidden layer with tanh, trained with Adam (Kingma and Ba 2015). All its state is plain
    arrays in `kept`, which is part of a checkpoint."""

    def __init__(self, kept: dict[str, Any], d: int, *, hidden: int, seed: int) -> None:
        if not kept:
            rng = np.random.default_rng(seed)
            kept["weights"] = [
                rng.normal(size=(d, hidden)) / np.sqrt(d),
                np.zeros(hidden),
                rng.normal(size=(hidden, 1)) * 0.01,
                np.zeros(1),
            ]
            kept["moments"] = [[np.zeros_like(w) for w in kept["weights"]] for _ in range(2)]
            kept["updates"] = 0
        self._kept = kept
        self.weights = [torch.tensor(w, dtype=torch.float64, requires_grad=True) for w in kept["weights"]]

    def __call__(self, x: np.ndarray) -> Tensor:
        a, b, c, d = self.weights
        return (torch.tanh(torch.from_numpy(np.asarray(x, dtype=np.float64)) @ a + b) @ c + d).squeeze(1)

    def values(self, x: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            return self(x).numpy()

    def learn(self, loss: Callable[[], Tensor], lr: float) -> float:
        """One update; returns the loss before it."""
        now = loss()
        gradients = torch.autograd.grad(now, self.weights)
        kept = self._kept
        kept["updates"] += 1
        for i, (w, g) in enumerate(zip(self.weights, gradients, strict=True)):
            m, v = kept["moments"][0][i], kept["moments"][1][i]
            m += 0.1 * (g.numpy() - m)
            v += 0.001 * (g.numpy() ** 2 - v)
            t = kept["updates"]
            step = lr * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
            with torch.no_grad():
                w -= torch.from_numpy(step)
            kept["weights"][i] = w.detach().numpy().copy()
        return float(now.detach())
