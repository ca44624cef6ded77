"""An entropy bonus, and a penalty for leaving a corridor around the usual entropy of the turn.

"EPO: Entropy-regularized Policy Optimization for LLM Agents Reinforcement Learning", 2025 (arXiv 2509.22576).

    value_t = -coef (H_t - smooth alpha P_t),        P_t = relu(kappa_l B - H_t) + relu(H_t - kappa_r B)

Shapes: stats.entropy [T] in, values [T] out, mean over tokens. B is the mean entropy at sampling of the step's tokens
of the same turn number (`prepare`), where the paper keeps a history over training. The released P_t is an indicator,
whose gradient is zero almost everywhere; this uses the hinge, which was presumably meant. Leaves out the schedule of
`smooth` over training.
"""

from __future__ import annotations

import torch

from training.learner.reduction import live
from training.types import Batch, Terms, TokenStats

NEEDS = {"entropy", "sampling_entropy"}


def prepare(batch: Batch, **_: object) -> None:
    """Adds columns["usual"] [T]: the mean entropy of the token's turn number in this step."""
    turn = torch.where(batch.trainable, batch.columns["turn"], 0.0).long()
    entropy = live(batch.columns["sampling_entropy"], batch)
    zeros = torch.zeros(int(turn.max()) + 1, device=entropy.device)
    sums = zeros.index_add(0, turn, entropy)
    counts = zeros.index_add(0, turn, batch.trainable.float()).clamp_min(1)
    batch.add("usual", (sums / counts)[turn], "token")


def entropy_corridor(
    stats: TokenStats,
    batch: Batch,
    *,
    coef: float = 0.001,
    smooth: float = 1.0,
    alpha: float = 0.1,
    kappa_l: float = 0.8,
    kappa_r: float = 1.2,
) -> Terms:
    if stats.entropy is None:
        raise ValueError(
            "entropy_corridor needs TokenStats.entropy, and the pass that made them computed none: list 'entropy' in NEEDS"
        )
    h, usual = live(stats.entropy, batch), batch.columns["usual"]
    outside = torch.relu(kappa_l * usual - h) + torch.relu(h - kappa_r * usual)
    values = live(-coef * (h - smooth * alpha * outside), batch)
    return Terms(
        values=values,
        denominator="tokens",
        metrics={"outside": (outside.detach()[batch.trainable].sum(), batch.trainable.sum())},
    )
