"""A reward that is learned from demonstrations alone: whether an expert or the policy wrote this answer to this question.

"Inverse Reinforcement Learning Meets Large Language Model Post-Training: Basics, Advances, and Opportunities", 2025; read
from the abstract. Ho and Ermon 2016, "Generative Adversarial Imitation Learning" (arXiv 1606.03476).

    r(q, y) = w . x(q, y) + b                    paid in the place of the score, `center`: less its mean over the step
    L(w, b) = mean over demonstrations of -log sigmoid(r) + mean over the policy's answers of -log(1 - sigmoid(r))

    x(q, y) = counts of pairs (token of the question, token of the answer), hashed into `buckets`, of length 1;
              `conditional` false: counts of tokens of the answer alone

The off_policy rollouts of a group are the demonstrations (group transform `demonstrations`); they keep their score. After
use, w and b take `updates` steps of AdaGrad of size `lr` on L. Shapes: one reward per rollout in (replaced) and out;
unscorable stays NaN. The score is never read: a problem needs no verifier that is right, an answer only has to be
scorable. `state` holds w, b and the sums of squared slopes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from training.types import Group, Rewards, Rollout


def from_demonstrations(
    groups: Sequence[Group],
    rewards: Rewards,
    state: dict,
    rng: np.random.Generator,
    *,
    lr: float = 0.5,
    updates: int = 5,
    buckets: int = 4096,
    conditional: bool = True,
    center: bool = True,
) -> Rewards:
    if updates < 1 or buckets < 1:
        raise ValueError(f"from_demonstrations: updates is {updates} and buckets {buckets}: both must be at least 1")
    weights = np.array(state.setdefault("weights", [0.0] * (buckets + 1)))  # the last is b
    squares = np.array(state.setdefault("squares", [0.0] * (buckets + 1)))
    if len(weights) != buckets + 1:
        raise ValueError(
            f"from_demonstrations: buckets is {buckets}, but {len(weights) - 1} were learned before: keep that number"
        )
    known = [~np.isnan(r) for r in rewards]
    shown = [np.array([x.off_policy for x in group.rollouts], dtype=bool) for group in groups]
    x = [np.stack([_features(one, buckets, conditional) for one in group.rollouts]) for group in groups]
    logits = [f @ weights for f in x]
    own = [k & ~s for k, s in zip(known, shown, strict=True)]
    values = np.concatenate([z[o] for z, o in zip(logits, own, strict=True)])
    mean = float(values.mean()) if center and len(values) else 0.0
    out = [
        np.where(s, r, np.where(np.isnan(r), np.nan, z - mean)) for r, z, s in zip(rewards, logits, shown, strict=True)
    ]
    expert = np.concatenate([f[k & s] for f, k, s in zip(x, known, shown, strict=True)])
    policy = np.concatenate([f[o] for f, o in zip(x, own, strict=True)])
    if len(expert) and len(policy):
        for _ in range(updates):
            slope = _sigmoid(-(expert @ weights)) @ expert / len(expert) - _sigmoid(policy @ weights) @ policy / len(
                policy
            )
            squares += slope**2
            weights += lr * slope / np.sqrt(np.maximum(squares, 1e-12))
    state["weights"], state["squares"] = weights.tolist(), squares.tolist()
    return out


def _sigmoid(z: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-np.clip(z, -50, 50)))


def _features(rollout: Rollout, buckets: int, conditional: bool) -> np.ndarray:
    """[buckets + 1]: x(q, y), of length 1 (0 where nothing was written), and 1 for b."""
    first = next((s.ids for s in rollout.segments if s.role == "env"), np.zeros(0, dtype=np.int64))
    written = [s.ids for s in rollout.segments if s.role == "model"]
    ids = np.concatenate(written) if written else np.zeros(0, dtype=np.int64)
    pairs = (np.unique(first)[:, None] * 1_000_003 + ids[None] * 7_919).ravel() if conditional else ids * 7_919
    counts = np.bincount(pairs % buckets, minlength=buckets).astype(np.float64)
    return np.append(counts / max(float(np.linalg.norm(counts)), 1.0), 1.0)
