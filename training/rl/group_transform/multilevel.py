"""Multi-level Monte Carlo gradients of an average reward: each step is given its weighted temporal difference.

Suttle et al. 2023, "Beyond Exponentially Fast Mixing in Average-Reward Reinforcement Learning via Multi-Level Monte Carlo
Actor-Critic" (MAC, arXiv 2301.12083).

    J ~ geometric(1/2), N = 2^J samples in a row; g^j the mean of the first 2^j of them
    g = g^0 + N (g^J - g^(J-1))  if N <= most, else g^0           E[g] = E[mean of `most` samples], at log2(most) samples

    delta_t = r_t - eta + V(s_{t+1}) - V(s_t)

g is linear in the samples, so it is a weight of each: -1 for the first half, 1 for the second, and 1 more for the very
first. The step's reward becomes w_t delta_t, which the advantage `step_reward` hands on, so that a sum over steps of it times
grad log pi is the actor's g; eta follows the same g of r_t - eta, and V that of delta_t grad V.

Shapes: groups in and out, with the rewards of turns replaced; scores stay. `state` holds eta and V, a small network. The last
step of a play gives its next state alone: its reward becomes 0. Where `multilevel` is off, the weights are 1/N: plain means of
plays of any length.

Leaves out AdaGrad (Adam is here, for V and for the policy), and trajectories that go on from one update to the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from synth.types import Scored
from training.rl.group_transform._steps import Small, each_step, paid
from training.rl.rollout_services import RolloutServices
from training.types import Group, Rollout

STEPS = True  # it does not use the services, so it works for worlds of numbers too
GIVES = ("turn_reward",)


def multilevel(
    groups: Sequence[Group],
    services: RolloutServices,
    state: dict,
    rng: np.random.Generator,
    *,
    levels: bool = True,
    rate: float = 0.1,
    hidden: int = 32,
    updates: int = 8,
    lr: float = 3e-3,
) -> list[Group]:
    """levels: whether the weights are those of several levels; otherwise they are those of a mean. rate: of the average
    reward's updates. hidden: width of V. updates: of V at each call, each towards the same next values. lr: its learning rate."""
    state.setdefault("eta", 0.0)
    plays: dict[int, tuple[np.ndarray, np.ndarray, np.ndarray]] = {}  # id of a rollout -> seen, rewards, weights
    for rollout in (r for g in groups for r in g.rollouts):
        n = rollout.turns - 1
        if n >= 1 and isinstance(rollout.score, Scored):
            rewards = np.array([s.reward or 0.0 for s in rollout.segments if s.role == "model"][:-1])
            plays[id(rollout)] = each_step(rollout, "observation"), rewards, weights(n) if levels else np.full(n, 1 / n)
    if not plays:
        return list(groups)
    before = np.concatenate([seen[:-1] for seen, _, _ in plays.values()])
    after = np.concatenate([seen[1:] for seen, _, _ in plays.values()])
    rewards, weight = (np.concatenate([p[i] for p in plays.values()]) for i in (1, 2))
    net = Small(state.setdefault("net", {}), before.shape[1], hidden=hidden, seed=int(rng.integers(2**31)))
    eta = float(state["eta"])
    for _ in range(updates):
        delta = torch.from_numpy(rewards - eta + net.values(after) - net.values(before))

        def loss(delta=delta) -> torch.Tensor:
            return -(torch.from_numpy(weight) * delta * net(before)).sum() / len(plays)  # its gradient is that of TD(0)

        net.learn(loss, lr)
    difference = weight * (rewards - eta + net.values(after) - net.values(before))
    state["eta"] = eta + rate * float((weight * (rewards - eta)).sum()) / len(plays)
    given = dict(zip(plays, np.split(difference, np.cumsum([len(p[1]) for p in plays.values()])[:-1]), strict=True))

    def step(rollout: Rollout) -> Rollout:
        return paid(rollout, np.append(given[id(rollout)], 0.0)) if id(rollout) in given else rollout

    return [replace(g, rollouts=tuple(step(r) for r in g.rollouts)) for g in groups]


def weights(n: int) -> np.ndarray:
    """[n] the weight of each sample in g, for n = 1 (g^0 alone) or a power of 2. Raises ValueError for another n."""
    if n & (n - 1):
        raise ValueError(
            f"group_transform/multilevel: a play has {n} steps that count, and plays of several levels have a power of 2: choose a world with "
            "such lengths (control/fields), or levels: false"
        )
    w = np.ones(n)
    if n > 1:
        w[: n // 2] = -1.0
        w[0] += 1.0
    return w
