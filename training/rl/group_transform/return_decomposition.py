"""Turns a reward at the end of an episode into rewards of steps: a small network learns step rewards that add up to the
return.

Qu et al. 2025, "Latent Reward: LLM-Empowered Credit Assignment in Episodic Reinforcement Learning" (LaRe, arXiv 2412.11120).

    phi(s, a) [k]     factors of a step, computed by a program (the extra "factors", or the observation for `of:
                      observation`)
    f(phi)            one hidden layer; trained on whole episodes by a random subset of K of their T steps:
                      L = (R - T/K sum_{t in subset} f(phi_t))^2
    r_t = f(phi_t)    the reward of step t, replacing the world's reward

Shapes: groups in and out, with the rewards of turns replaced; scores stay. `state` holds the newest `kept` episodes, the network
and its optimizer. Factors are divided by their standard deviation over those episodes.

Leaves out the language model that writes phi and checks its own drafts; the world provides phi.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
import torch

from training.rl.group_transform._steps import Small, each_step, paid
from training.rl.rollout_services import RolloutServices
from training.types import Group

STEPS = True  # it does not use the services, so it works for worlds of numbers too
GIVES = ("turn_reward",)


def return_decomposition(
    groups: Sequence[Group],
    services: RolloutServices,
    state: dict,
    rng: np.random.Generator,
    *,
    of: Literal["factors", "observation"] = "factors",
    hidden: int = 64,
    subset: float = 0.5,
    updates: int = 32,
    episodes: int = 32,
    lr: float = 3e-3,
    kept: int = 512,
) -> list[Group]:
    """of: the extra that is read at each step. hidden: width of the network. subset: K/T. updates: how many updates of
    the network at each call, with `episodes` each. lr: its learning rate. kept: how many of the newest episodes it is
    trained on."""
    known = state.setdefault("episodes", [])
    for group in groups:
        for rollout, score in zip(group.rollouts, group.rewards, strict=True):
            if not np.isnan(score) and rollout.n_model:
                known.append([each_step(rollout, of), float(score)])
    del known[:-kept]
    if not known:
        return list(groups)
    every = np.concatenate([x for x, _ in known])
    mean, deviation = every.mean(0), every.std(0)
    scale = np.where(deviation > 0, deviation, 1.0)
    net = Small(state.setdefault("net", {}), every.shape[1], hidden=hidden, seed=int(rng.integers(2**31)))
    for _ in range(updates):
        chosen = [known[i] for i in rng.integers(len(known), size=episodes)]
        steps = [rng.choice(len(x), size=max(1, round(subset * len(x))), replace=False) for x, _ in chosen]
        rows = np.concatenate([(x[t] - mean) / scale for (x, _), t in zip(chosen, steps, strict=True)])
        which = torch.from_numpy(np.repeat(np.arange(len(chosen)), [len(t) for t in steps]))
        factor = torch.tensor([len(x) / len(t) for (x, _), t in zip(chosen, steps, strict=True)], dtype=torch.float64)
        returns = torch.tensor([r for _, r in chosen], dtype=torch.float64)

        def loss(rows=rows, which=which, factor=factor, returns=returns) -> torch.Tensor:
            total = torch.zeros(len(returns), dtype=torch.float64).index_add(0, which, net(rows))
            return ((returns - factor * total) ** 2).mean()

        net.learn(loss, lr)
    return [
        replace(
            g,
            rollouts=tuple(
                paid(r, net.values((each_step(r, of) - mean) / scale)) if r.n_model else r for r in g.rollouts
            ),
        )
        for g in groups
    ]
