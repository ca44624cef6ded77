"""A fixed penalty for an answer that cannot be parsed, otherwise the score.

Wu et al. 2025, "ToTRL: Unlock LLM Tree-of-Thoughts Reasoning Potential through Puzzles Solving" (arXiv 2505.12717): a
broken format costs a fixed amount; Wei et al. 2025, "SWE-RL: Advancing LLM Reasoning via Reinforcement Learning on Open
Software Evolution" (arXiv 2502.18449): -1 for an edit that does not apply, else the similarity of the patches.

    r <- malformed where the part `parsed` of the score is 0,   wrong where the score is 0,   else the score

A verifier gives the part `parsed`; a rollout without an answer has no such part, and counts as malformed. Shapes: one
reward per rollout in and out; unscorable stays NaN.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from training.rl.reward import part
from training.types import Group, Rewards

READS = ("parsed",)


def graded(
    groups: Sequence[Group],
    rewards: Rewards,
    state: dict,
    rng: np.random.Generator,
    *,
    malformed: float = -1.0,
    wrong: float = 0.0,
) -> Rewards:
    out = []
    for group, r in zip(groups, rewards, strict=True):
        paid = np.where(r == 0, wrong, r)
        out.append(np.where(np.isnan(r), np.nan, np.where(part(group, r, "parsed") > 0, paid, malformed)))
    return out
