"""Random policy valuation: the model's own log-ratio as the value of a uniform policy.

"Random Policy Valuation is Enough for LLM Reasoning with Verifiable Rewards", 2025 (ROVER, arXiv 2509.24981).

    Q_t = rho log r_t                value_t = (Q_t - sg(target_t))^2,      target_t = r - mean(r) of the group

Shapes: log_ratio and advantage (the centred reward) [T] in, values [T] out, mean over tokens. The value of acting at
random already ranks actions: it is positive exactly where a right ending can be reached. Leaves out the mean of Q over
all next actions in the target, which is 0 at the policy that sampled, and so with one update per batch. On policy its
gradient is -2 rho A times that of log p.
"""

from __future__ import annotations

from torch import Tensor

from training.learner.reduction import LIMIT, live
from training.types import Batch, Terms, TokenStats

ADVANTAGE_ONLY = False  # it has a gradient for zero advantage too


def random_value(log_ratio: Tensor, advantages: Tensor, stats: TokenStats, batch: Batch, *, rho: float = 1.0) -> Terms:
    q = rho * live(log_ratio, batch).clamp(-LIMIT, LIMIT)
    return Terms(values=live((q - live(advantages, batch)).square(), batch), denominator="tokens")
