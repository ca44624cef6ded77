"""Group-in-group advantage: compares whole episodes, and turns that began at the same point.

Feng et al. 2025, "Group-in-Group Policy Optimization for LLM Agent Training" (GiGPO, arXiv 2505.10978); turns of the
same number, Lu et al. 2025, "UI-S1: Advancing GUI Automation via Semi-online Reinforcement Learning" (arXiv
2509.11543).

    A^E_i = (r_i - mean(r)) / (std(r) + eps)         A^S_it = (R_it - mean) / (std + eps) over the turns of the group
    with one anchor
    R_it = sum_{k >= t} gamma^(k - t) r_k,  r_k the reward of turn k, and the episode's on its last turn          A =
    A^E + omega A^S

Shapes: one reward per rollout in; one advantage per token out, the same within a turn. Anchor "state": the
environment's text before the turn is the same, token for token; "index": the turn has the same number. A turn that is
alone at its anchor has A^S = 0. Standard deviations are the sample's, as in the authors' code (eps guards them); `std`
none omits them. Leaves out anchors by similarity. Equal rewards keep their advantage if turns with the same anchor
differ in their distance from the end.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Literal

import numpy as np

from training.rl.advantage import relative, turns
from training.rl.standard import standard
from training.types import Advantages, Group, Rewards, Rollout

MIN_GROUP = 2


def gigpo(
    groups: Sequence[Group],
    rewards: Rewards,
    state: dict,
    rng: np.random.Generator,
    *,
    omega: float = 1.0,
    gamma: float = 0.95,
    anchor: Literal["state", "index"] = "state",
    std: Literal["sample", "population", "none"] = "sample",
    eps: float = 1e-6,
) -> Advantages:
    scaled_by = lambda x: x - x.mean() if std == "none" else standard(x, eps, ddof=int(std == "sample"))  # noqa: E731
    episode = relative(rewards, scaled_by)
    advantages: list = []
    for group, r, whole in zip(groups, rewards, episode, strict=True):
        met: dict[bytes | int, list[tuple[int, int, float]]] = defaultdict(list)
        for i, rollout in enumerate(group.rollouts):
            if not math.isnan(r[i]):
                for t, (name, later) in enumerate(
                    zip(_anchors(rollout, anchor), _returns(rollout, r[i], gamma), strict=True)
                ):
                    met[name].append((i, t, later))
        step: dict[tuple[int, int], float] = {}
        for steps in met.values():
            values = np.array([x for _, _, x in steps])
            scaled = scaled_by(values)
            step |= {(i, t): float(a) for (i, t, _), a in zip(steps, scaled, strict=True)}
        advantages.append([])
        for i, rollout in enumerate(group.rollouts):
            out = np.zeros(rollout.n_model)
            for t, (here, _) in enumerate(turns(rollout)):
                out[here] = whole[i] + omega * step.get((i, t), 0.0)
            advantages[-1].append(out)
    return advantages


def _returns(rollout: Rollout, final: float, gamma: float) -> list[float]:
    rewards = [x for _, x in turns(rollout)]
    later, out = 0.0, []
    for k in range(len(rewards) - 1, -1, -1):
        later = rewards[k] + (final if k == len(rewards) - 1 else 0.0) + gamma * later
        out.append(later)
    return out[::-1]


def _anchors(rollout: Rollout, anchor: str) -> list[bytes | int]:
    if anchor == "index":
        return list(range(rollout.turns))
    return [
        before.ids.tobytes()
        for before, s in zip(rollout.segments, rollout.segments[1:], strict=False)
        if s.role == "model"
    ]
