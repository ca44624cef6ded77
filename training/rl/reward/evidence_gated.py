"""A rubric whose points count only with evidence: each criterion is clipped to its maximum, and is 0 without support.

"TrueGradeAI: Retrieval-Augmented and Bias-Resistant AI for Transparent and Explainable Digital Assessments" (arXiv
2509.22516, 2025); the abstract gives retrieval, cache and audit, the aggregation is our reading.

    R = sum_k clip(x_k, 0, most_k) [e_k >= tau] / sum_k most_k

Shapes: one reward per rollout in (replaced) and out; unscorable stays NaN. x_k are `parts` of the scores, e_k the
  similarity of the evidence that was found for k (the part of the same name plus "_evidence"); an absent part is 0. The
  total depends on the recorded parts alone, so it can be recomputed from them. Leaves out OCR, the cache of earlier
  answers and the escalation to a person.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from training.rl.reward import part
from training.types import Group, Rewards

READS = ("{parts}", "{parts}_evidence")


def evidence_gated(
    groups: Sequence[Group],
    rewards: Rewards,
    state: dict,
    rng: np.random.Generator,
    *,
    parts: tuple = ("answered",),
    most: tuple = (),
    tau: float = 0.3,
) -> Rewards:
    limits = np.array(most or (1.0,) * len(parts), dtype=np.float64)
    if len(limits) != len(parts):
        raise ValueError(f"evidence_gated: {len(limits)} limits for {len(parts)} parts; give one per part, or none")
    out = []
    for group, r in zip(groups, rewards, strict=True):
        total = np.zeros(len(r))
        for name, limit in zip(parts, limits, strict=True):
            supported = part(group, r, f"{name}_evidence") >= tau
            total = total + np.where(supported, np.clip(part(group, r, name), 0.0, limit), 0.0)
        out.append(np.where(np.isnan(r), np.nan, total / limits.sum()))
    return out
