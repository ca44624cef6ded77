"""Chooses which two of the sampled answers are compared: those whose difference in reward is most uncertain, among
answers that the policy still gives.

"Towards Efficient Online Exploration for Reinforcement Learning with Human Feedback" 2025 (arXiv 2509.22633); from the
abstract, the rule is our reading of it. With x the features of an answer to its prompt and r(x) = theta . x,

    U(a, b) = |x_a - x_b| in the norm of H^-1,   H = l2 I + sum of p (1 - p) d d^T over the pairs that were compared
    targeted   a = the first sample, b = the answer with the largest (share of the samples) U(a, b)
    optimism   b = the sample nearest to c, a = the one with the largest r(a) + bonus U(a, c); c is the policy's first
               answer to the prompt, the fixed calibration that the paper warns about
    uniform    a and b are the first two samples
    after the answer d = x_better - x_worse:   H grows, theta += (1 - p) H^-1 d,   p = sigmoid(theta . d)

The update of theta is an online Newton step, where the paper means a maximum-likelihood fit over all pairs. x counts
the tokens that the model wrote, hashed with their prompt into `dim` buckets and normalised to length 1, so token order
is ignored. Applies to pairs that are sampled while the policy learns; two answers of equal score teach nothing, as
usual.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from synth.types import UserError, nearest
from training.learner.learner import Learner
from training.preference.update_rule import UpdateRule
from training.types import Rollout

QUERIES = ("targeted", "optimism", "uniform")


class Differences:
    """The estimate of answer rewards from comparisons, and the choice of the next comparison."""

    def __init__(self, *, query: str = "targeted", bonus: float = 1.0, l2: float = 0.1, dim: int = 256) -> None:
        if query not in QUERIES:
            raise UserError(f"uncertain_pairs: there is no query {query!r}: {nearest(query, QUERIES)}")
        if not (l2 > 0 and dim > 0 and bonus >= 0):
            raise UserError(
                f"uncertain_pairs: l2 and dim are above 0 and bonus is not below it: l2 {l2}, dim {dim}, bonus {bonus}"
            )
        self.query, self.bonus, self.dim = query, bonus, dim
        self.theta, self.inverse = np.zeros(dim), np.eye(dim) / l2

    def features(self, rollout: Rollout) -> np.ndarray:
        """[dim], of length 1."""
        x = np.zeros(self.dim)
        for token in (t for s in rollout.segments if s.role == "model" for t in s.ids):
            x[zlib.crc32(f"{rollout.problem.id}:{int(token)}".encode()) % self.dim] += 1.0
        return x / max(float(np.linalg.norm(x)), 1e-12)

    def pick(self, x: np.ndarray, c: np.ndarray) -> tuple[int, int]:
        """Which two of n samples, by their features [n, dim]; c [dim] is the calibration."""
        if self.query == "uniform":
            return 0, 1
        if self.query == "optimism":
            b = int(np.linalg.norm(x - c, axis=1).argmin())
            worth = x @ self.theta + self.bonus * self.unknown(x - c)
            worth[b] = -math.inf
            return int(worth.argmax()), b
        share = (np.abs(x[:, None] - x[None]).max(2) == 0).mean(1)
        return 0, 1 + int((share * self.unknown(x - x[0]))[1:].argmax())

    def unknown(self, d: np.ndarray) -> np.ndarray:
        """[n] U of differences [n, dim]."""
        return np.sqrt(np.maximum(np.einsum("ni,ij,nj->n", d, self.inverse, d), 0.0))

    def learn(self, d: np.ndarray) -> None:
        """One comparison, won by the answer whose features are those of the other plus d."""
        p = 1 / (1 + math.exp(-float(np.clip(self.theta @ d, -30, 30))))
        v, w = self.inverse @ d, p * (1 - p)
        self.inverse -= np.outer(v, v) * (w / (1 + w * float(d @ v)))
        self.theta = self.theta + (1 - p) * (self.inverse @ d)


class uncertain_pairs(Differences, UpdateRule):
    def __init__(self, *, query: str = "targeted", bonus: float = 1.0, l2: float = 0.1, dim: int = 256) -> None:
        super().__init__(query=query, bonus=bonus, l2=l2, dim=dim)
        self.first: dict[str, np.ndarray] = {}  # problem -> c

    def compared(self, rollouts: Sequence[Rollout]) -> tuple[int, int] | None:
        x = np.stack([self.features(r) for r in rollouts])
        return self.pick(x, self.first.setdefault(rollouts[0].problem.id, x.mean(0)))

    def learned(self, better: Rollout, worse: Rollout) -> None:
        self.learn(self.features(better) - self.features(worse))

    def state(self) -> dict[str, Any]:
        return {"theta": self.theta.copy(), "inverse": self.inverse.copy(), "first": dict(self.first)}

    def load_state(self, state: Mapping[str, Any], learner: Learner) -> None:
        self.theta, self.inverse = np.array(state["theta"]), np.array(state["inverse"])
        self.first = {k: np.array(v) for k, v in state["first"].items()}
