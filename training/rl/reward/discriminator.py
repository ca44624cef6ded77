"""Trains a discriminator between the policy's answers and demonstrations, and adds its verdict to the reward.

"UniAPL: A Unified Adversarial Preference Learning Framework for Instruct-Following", 2025 (arXiv 2509.25148); read from
the abstract. Ho and Ermon 2016, "Generative Adversarial Imitation Learning" (arXiv 1606.03476).

    D(y) = sigmoid(w . x + b),  x = shares of token ids (in `buckets` by id) in the written text
    R = r + alpha (log D - log(1 - D)) = r + alpha (w . x + b)          for the policy's own rollouts;    then one step
    of D

Shapes: one reward per rollout in and out; unscorable stays NaN, off_policy rollouts keep their reward. D learns by one
gradient step of size `lr` per call on the mean cross-entropy of either class, after use; `state` holds w and b. It is
linear in token counts, where the paper uses a language model. alpha 0 changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from training.types import Group, Rewards, Rollout


def discriminator(
    groups: Sequence[Group],
    rewards: Rewards,
    state: dict,
    rng: np.random.Generator,
    *,
    alpha: float = 0.5,
    lr: float = 1.0,
    buckets: int = 1024,
) -> Rewards:
    w, b = np.array(state.setdefault("w", [0.0] * buckets)), float(state.setdefault("b", 0.0))
    features = [
        np.array([_shares(x, buckets) for x in group.rollouts]).reshape(len(group.rollouts), buckets)
        for group in groups
    ]
    foreign = [np.array([x.off_policy for x in group.rollouts], dtype=bool) for group in groups]
    logits = [x @ w + b for x in features]
    out = [np.where(f, r, r + alpha * z) for f, r, z in zip(foreign, rewards, logits, strict=True)]
    known = [~np.isnan(r) for r in rewards]
    for label in (True, False):
        rows = [
            (x[m], z[m])
            for x, z, f, k in zip(features, logits, foreign, known, strict=True)
            for m in [k & (f == label)]
        ]
        x, z = np.concatenate([a for a, _ in rows]), np.concatenate([c for _, c in rows])
        if len(x):
            slope = float(label) - 1 / (1 + np.exp(-np.clip(z, -50, 50)))
            w, b = w + lr * (slope @ x) / len(x), b + lr * float(slope.mean())
    state["w"], state["b"] = w.tolist(), b
    return out


def _shares(rollout: Rollout, buckets: int) -> np.ndarray:
    ids = [s.ids for s in rollout.segments if s.role == "model"]
    flat = np.concatenate(ids) if ids else np.zeros(0, dtype=np.int64)
    return np.bincount(flat % buckets, minlength=buckets) / max(len(flat), 1)
