"""Policy mirror descent: the policy gradient and a squared log-ratio of the whole answer.

Kimi Team 2025, "Kimi k1.5: Scaling Reinforcement Learning with LLMs" (arXiv 2501.12599), section 2.3.2.

    value_i = -A_i log p(y_i) + tau / 2 (log p(y_i) - log old(y_i))^2,          A_i = r_i - mean(r)

Shapes: log_ratio per token and advantage [T] in, values [T] out (the square shared evenly by the tokens), summed over a
row, mean over rows. It is the gradient of the policy loss whose minimum is old exp(r / tau) / Z, with the group's mean
in place of tau log Z; no ratio is clipped, so answers of an older policy may be used. Leaves out resetting the
optimizer, and damping negative gradients early.
"""

from __future__ import annotations

from torch import Tensor

from training.learner.reduction import LIMIT, live
from training.types import Batch, Terms, TokenStats

EXCLUDES = {"ratio/sequence": "mirror sums the log-ratios of a row itself; use ratio token"}
ADVANTAGE_ONLY = False  # it has a gradient for zero advantage too


def mirror(log_ratio: Tensor, advantages: Tensor, stats: TokenStats, batch: Batch, *, tau: float = 0.1) -> Terms:
    if tau < 0:
        raise ValueError(
            f"mirror: tau is {tau}; it is the price of moving away from the policy that sampled, at least 0"
        )
    moved = batch.row_sum(live(log_ratio, batch)).clamp(-10 * LIMIT, 10 * LIMIT)
    square = live(batch.per_token(moved.square() / batch.row_tokens), batch)
    return Terms(values=-live(advantages, batch) * live(stats.logp, batch) + tau / 2 * square, denominator="sequences")
