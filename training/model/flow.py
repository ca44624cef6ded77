"""A policy that denoises: a small flow-matching network, each of whose noisy steps is an action with a normal density.

Lipman et al. 2023, "Flow Matching for Generative Modeling" (arXiv 2210.02747), on straight paths x_t = (1 - t) x_0 + t
noise, whose velocity is noise - x_0. The noisy steps: Liu et al. 2025, "Flow-GRPO: Training Flow Matching Models via
Online RL" (arXiv 2505.05470):

    x' = x - h (v + sigma^2 / (2 t) (x + (1 - t) v)) + sigma sqrt(h) eps          v = v(x, t, condition)
    log p(x') = sum over the d numbers of log N(x'; mean, sigma^2 h)

sigma = 0 is Euler's step of the flow, which chooses nothing. The sum is the density itself; the paper divides it by d.
An observation is x [d], condition [c], t, h, sigma, so that a step needs nothing else, and `action_stats` reads it as
it reads any action that is numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn


class FlowPolicy(nn.Module):
    """observation [n, d + c + 3] -> mean and deviation of the next x, [n, d + 1].

    The network says x_0, and v = (x - x_0) / t. temperature multiplies the variance: p^(1/T), normalised."""

    model_type = "espalier_flow"
    continuous = True

    def __init__(self, *, observation: int, actions: int, hidden: int = 256, seed: int = 0) -> None:
        super().__init__()
        self.made = {"observation": observation, "actions": actions, "hidden": hidden}
        self._d = actions
        condition = observation - actions - 3
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed % 2**63)
            self.enter = nn.Linear(actions + condition + 3, hidden)
            self.blocks = nn.ModuleList(
                nn.Sequential(
                    nn.LayerNorm(hidden + condition + 3),
                    nn.Linear(hidden + condition + 3, hidden),
                    nn.SiLU(),
                    nn.Linear(hidden, hidden),
                )
                for _ in range(2)
            )
            self.leave = nn.Linear(hidden, actions)

    def velocity(self, x: Tensor, condition: Tensor, t: Tensor) -> Tensor:
        """v [n, d] at x [n, d], condition [n, c], t [n, 1]."""
        told = torch.cat([condition, t, torch.sin(math.pi * t), torch.cos(math.pi * t)], 1)
        y = self.enter(torch.cat([x, told], 1))
        for block in self.blocks:
            y = y + block(torch.cat([y, told], 1))
        return (x - self.leave(torch.nn.functional.silu(y))) / t

    def forward(self, observation: Tensor) -> Tensor:
        x, condition = observation[:, : self._d], observation[:, self._d : -3]
        t, h, sigma = observation[:, -3:].split(1, 1)
        v = self.velocity(x, condition, t)
        mean = x - h * (v + sigma.square() / (2 * t) * (x + (1 - t) * v))
        return torch.cat([mean, sigma * h.sqrt()], 1)

    def extras(self, observation: Tensor, chosen: Tensor, out: Tensor) -> dict[str, Tensor]:
        """clean [n, d]: the x_0 that is predicted, read back from the mean of the step."""
        x, mean = observation[:, : self._d], out[:, :-1]
        t, h, sigma = observation[:, -3:].split(1, 1)
        pull = sigma.square() / (2 * t)
        return {"clean": x - t * ((x - mean) / h - pull * x) / (1 + pull * (1 - t))}

    def normal(self, out: Tensor, temperature: float) -> torch.distributions.Normal:
        mean, deviation = out[:, :-1], out[:, -1:]
        return torch.distributions.Normal(mean, deviation.expand_as(mean) * math.sqrt(temperature))


def fit(
    model: FlowPolicy,
    examples: Callable[[int, np.random.Generator], tuple[np.ndarray, np.ndarray]],
    *,
    steps: int,
    rows: int,
    lr: float,
    seed: int,
    pool: int = 8192,
) -> float:
    """Warm start: the velocity of straight paths, by Adam with a rate that falls to 0, on `pool` examples that are drawn once. Returns
    the mean squared error of x_0 in the last tenth of the steps.

    The error of v is that of x_0 divided by t; its square is weighted by t, or small t would be all that counts."""
    rng = np.random.default_rng(seed)
    pictures, conditions = (torch.from_numpy(x).float() for x in examples(pool, rng))
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    plan = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda k: 1 - k / max(steps, 1))
    last: list[float] = []
    for k in range(steps):
        at = torch.from_numpy(rng.integers(pool, size=rows))
        x0, c = pictures[at], conditions[at]
        t = torch.from_numpy(rng.uniform(0.02, 1, size=(rows, 1))).float()
        noise = torch.from_numpy(rng.standard_normal(x0.shape)).float()
        v = model.velocity((1 - t) * x0 + t * noise, c, t)
        error = (v - (noise - x0)).square()
        loss = (error * t).mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        plan.step()
        if k >= steps * 0.9:
            last.append(float((error.detach() * t.square()).mean()))
    return float(np.mean(last)) if last else math.nan
