"""The gain in probability of the reference answer from the policy's text before its answer: a reward without a
verifier.

Yu et al. 2025, "RLPR: Extrapolating RLVR to General Domains without Verifiers" (arXiv 2506.18254).

    r = clip(mean_i p(y*_i | x, z, y*_<i) - mean_i p(y*_i | x, y*_<i), 0, 1)        R = (1 - format) r + format
    [answered]

Shapes: one reward per rollout in (replaced) and out; unscorable stays NaN. The two means are parts "reference" and
"reference_bare" of the scores, which the observation "reference_answer" computes with the policy that sampled; the paper's
bare one is the base model's. It is a mean of probabilities, not their product, so one unlikely token cannot make it 0.
`debias` false omits the second mean.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from training.rl.reward import part
from training.types import Group, Rewards

NEEDS = {"reference_answer"}
READS = ("reference", "answered")


def reference_probability(
    groups: Sequence[Group],
    rewards: Rewards,
    state: dict,
    rng: np.random.Generator,
    *,
    debias: bool = True,
    format: float = 0.1,
) -> Rewards:
    out = []
    for group, r in zip(groups, rewards, strict=True):
        gain = part(group, r, "reference") - (part(group, r, "reference_bare") if debias else 0.0)
        out.append((1 - format) * np.clip(gain, 0.0, 1.0) + format * part(group, r, "answered"))
    return out
