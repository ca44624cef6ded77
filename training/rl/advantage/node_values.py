"""What came of each turn: the mean reward of the rollouts that took it, from the same place.

Chen et al. 2024, "Optima: Optimizing Effectiveness and Efficiency for LLM-Based Multi-Agent System" (arXiv 2410.08115): values
of the nodes of a tree of dialogues. They are no advantages, for nothing is subtracted: the loss sibling_pairs
(training/rl/policy_loss/sibling_pairs.py) compares them.

    A of a turn = mean reward of the rollouts of the group that have this turn after these ids

The place is what the model saw: all ids of its row before the turn. Two rollouts with the same turn there took one branch.

Shapes: one reward per rollout in, one value per token out, the same within a turn. Equal rewards keep their advantages.
Unscorable rollouts count nowhere.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from training.rl.advantage import turns
from training.types import Advantages, Group, Rewards, Rollout


def node_values(groups: Sequence[Group], rewards: Rewards, state: dict, rng: np.random.Generator) -> Advantages:
    advantages: list = []
    for group, r in zip(groups, rewards, strict=True):
        taken: dict[tuple[bytes, bytes], list[float]] = defaultdict(list)
        ways = [_way(rollout) for rollout in group.rollouts]
        for way, x in zip(ways, r, strict=True):
            for branch in way if not math.isnan(x) else ():
                taken[branch].append(float(x))
        advantages.append([])
        for rollout, way, x in zip(group.rollouts, ways, r, strict=True):
            out = np.zeros(rollout.n_model)
            for (here, _), branch in zip(turns(rollout), way, strict=True):
                out[here] = 0.0 if math.isnan(x) else np.mean(taken[branch])
            advantages[-1].append(out)
    return advantages


def _way(rollout: Rollout) -> list[tuple[bytes, bytes]]:
    """For each turn of the model the ids before it in its row, and its own."""
    out = []
    for fork in rollout.forks:
        before = b""
        for s in fork:
            ids = np.asarray(s.ids, dtype=np.int64).tobytes()
            if s.role == "model":
                out.append((before, ids))
            before += ids
    return out
