"""Advantages in a tree of rollouts: each branch is compared with those that left the same place.

"Dynamic-TreeRPO: Breaking the Independent Trajectory Bottleneck with Structured Sampling", 2025 (arXiv 2509.23352), of
which the abstract was read.

    value of a branch = mean reward of the rollouts that follow it
    A = (value - mean) / (std + eps) over the branches that leave one node

The tree is read from the ids: the node of a turn is all ids before it, and two rollouts take one branch if they also
share the ids up to their next turn. A last turn is a branch of its own. So it is for text as it is for denoising.

Shapes: one reward per rollout in, one advantage per token out, the same within a turn. A branch without siblings, or
with siblings of the same value, has 0, and the advantages of the branches of a node add up to 0. std is the
population's. Unscorable rollouts count nowhere.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from training.rl.advantage import turns
from training.rl.standard import standard
from training.types import Advantages, Group, Rewards, Rollout

MIN_GROUP = 2


def siblings(
    groups: Sequence[Group], rewards: Rewards, state: dict, rng: np.random.Generator, *, eps: float = 1e-6
) -> Advantages:
    advantages: list = []
    for group, r in zip(groups, rewards, strict=True):
        tree: dict[bytes, dict[bytes | int, list[float]]] = defaultdict(lambda: defaultdict(list))
        ways = [_way(rollout, i) for i, rollout in enumerate(group.rollouts)]
        for way, x in zip(ways, r, strict=True):
            for node, branch in way if not math.isnan(x) else []:
                tree[node][branch].append(x)
        scaled = {
            node: dict(zip(b, standard(np.array([np.mean(x) for x in b.values()]), eps), strict=True))
            for node, b in tree.items()
        }
        advantages.append([])
        for rollout, way, x in zip(group.rollouts, ways, r, strict=True):
            out = np.zeros(rollout.n_model)
            for (here, _), (node, branch) in zip(turns(rollout), way, strict=True):
                out[here] = 0.0 if math.isnan(x) else scaled[node][branch]
            advantages[-1].append(out)
    return advantages


def _way(rollout: Rollout, i: int) -> list[tuple[bytes, bytes | int]]:
    """For each turn its node, and its branch: the next turn's node, or the number of the rollout at the end."""
    before, nodes = b"", []
    for s in rollout.segments:
        if s.role == "model":
            nodes.append(before)
        before += np.asarray(s.ids, dtype=np.int64).tobytes()
    return list(zip(nodes, [*nodes[1:], i], strict=True))
