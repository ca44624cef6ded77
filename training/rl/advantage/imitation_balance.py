"""A learned weight between imitation and exploration: weight given to demonstrations is taken from the policy's own
rollouts.

He et al. 2025, "AMFT: Aligning LLM Reasoners by Meta-Learning the Optimal Imitation-Exploration Balance" (arXiv
2508.06944).

    A_i = (1 - mu) (N / N_own) (r_i - mean) / (std + eps)    own rollouts, compared with each other
    A_y = mu N / N_off                                       off_policy ones
    mu <- clip(mu + entropy_lr (H_0 - H) + meta_lr g, low, high)       after use;  H: mean entropy of the step's own
    tokens, H_0 the first
    g = (U - U') / (mu - mu') within [-1, 1] every `every` calls, else 0;      U: mean own reward of those calls, ' of
    those before them

Shapes: one reward per rollout in, one advantage per rollout out; N, N_own and N_off are the step's rollouts, so that with a
policy loss that averages over sequences (aggregate: sequences) each of the two losses is a separate mean, as in the
paper: mu = 1/2 is half and half however few the demonstrations are. Lower entropy increases imitation. g is our
reading: the paper takes dU/dmu from gradients on held-out prompts (and its released code has the sign turned), here it
is the slope of the reward between two stretches; the first probes upwards with g = 1. With equal rewards only
off_policy rollouts keep their advantages. The authors asked to withdraw the manuscript, so its numbers are not
reliable.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from training.rl.standard import standard
from training.types import Advantages, Group, Rewards


def imitation_balance(
    groups: Sequence[Group],
    rewards: Rewards,
    state: dict,
    rng: np.random.Generator,
    *,
    mu: float = 0.5,
    low: float = 0.05,
    high: float = 0.95,
    meta_lr: float = 0.02,
    entropy_lr: float = 0.0005,
    every: int = 20,
    eps: float = 1e-6,
) -> Advantages:
    if not 0 <= low <= mu <= high <= 1:
        raise ValueError(
            f"imitation_balance: mu is {mu}, between {low} and {high}; they must be in order, within 0 and 1"
        )
    now, advantages, earned, doubt = state.setdefault("mu", mu), [], [], []
    known = [
        rollout.off_policy
        for g, r in zip(groups, rewards, strict=True)
        for rollout, x in zip(g.rollouts, r, strict=True)
        if not np.isnan(x)
    ]
    whole, off = len(known), sum(known)
    ours, theirs = (1 - now) * whole / max(whole - off, 1), now * whole / max(off, 1)
    for group, r in zip(groups, rewards, strict=True):
        own = np.array([not rollout.off_policy for rollout in group.rollouts], dtype=bool) & ~np.isnan(r)
        out = np.where(np.isnan(r), 0.0, theirs)
        out[own] = ours * standard(r[own], eps)
        advantages.append(out)
        earned += r[own].tolist()
        played = [rollout for rollout, use in zip(group.rollouts, own, strict=True) if use and rollout.n_model]
        doubt += [float(rollout.each("entropy").mean()) for rollout in played]
    if earned and doubt:
        _learn(state, float(np.mean(earned)), float(np.mean(doubt)), (low, high), meta_lr, entropy_lr, every)
    return advantages


def _learn(
    state: dict,
    reward: float,
    entropy: float,
    bounds: tuple[float, float],
    meta_lr: float,
    entropy_lr: float,
    every: int,
) -> None:
    """state: mu; "entropy" of the first call; "rewards" since the last look; "before", mu and mean reward of the
    stretch before."""
    mu, first = state["mu"], state.setdefault("entropy", entropy)
    seen = state["rewards"] = [*state.get("rewards", ()), reward]
    slope = 0.0
    if len(seen) >= every:
        useful, slope = float(np.mean(seen)), 1.0
        if before := state.get("before"):
            moved = mu - before[0]
            slope = float(np.clip((useful - before[1]) / moved, -1.0, 1.0)) if abs(moved) > 1e-9 else 0.0
        state["before"], state["rewards"] = [mu, useful], []
    state["mu"] = float(np.clip(mu + entropy_lr * (first - entropy) + meta_lr * slope, *bounds))
