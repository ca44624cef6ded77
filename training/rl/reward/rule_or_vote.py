"""Right by the rule, or right by the majority of the verifier's votes.

Yang et al. 2025, "SPELL: Self-Play Reinforcement Learning for evolving Long-Context Language Models" (arXiv
2509.23863).

    r <- max(rule, 1[share of the votes that say right > 1/2])

The rule is the score, the share of votes is the part `votes` of it, by default the policy's own votes (the observation
`votes`); with a tie the rule decides. Shapes: one reward per rollout in and out; unscorable stays NaN. Assumes that a
rule that compares text mainly errs by calling right answers wrong because of their wording.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from training.rl.reward import part
from training.types import Group, Rewards

NEEDS = {"votes"}
READS = ("{votes}",)


def rule_or_vote(
    groups: Sequence[Group], rewards: Rewards, state: dict, rng: np.random.Generator, *, votes: str = "votes"
) -> Rewards:
    return [
        np.maximum(r, (part(group, r, votes) > 0.5).astype(np.float64)) + 0.0 * r
        for group, r in zip(groups, rewards, strict=True)
    ]
