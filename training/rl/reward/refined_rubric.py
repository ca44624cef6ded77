"""A rubric that grows where its best answers tie: weighted criteria, and new ones from what separates the best.

"Chasing the Tail: Effective Rubric-based Reward Modeling for Large Language Model Post-Training", 2025 (arXiv 2509.21500).

    R = sum_k w_k x_k / sum_k w_k       over the criteria of the rubric
    every `every` steps: of the candidates, the `add` that separated the best answers of most groups join, with `weight`
    c separates the best of a group: several share its greatest R, and x_c is not the same for all of them

Shapes: one reward per rollout in (replaced) and out; unscorable stays NaN. x are parts of the scores ("value": the reward so
far); `known` are the criteria of the first rubric, `weights` theirs (1 each), `candidates` what may join. What matters is
that the best answers are ordered rightly, so nothing joins for what it says about the others, and nothing more once no two of
the best tie. The state keeps what joined. Our reading: the paper has a language model compare the two best and word what
separates them; here the candidates are what programs can tell about an answer.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from training.rl.reward import part
from training.types import Group, Rewards

READS = ("{known}", "{candidates}")


def refined_rubric(
    groups: Sequence[Group],
    rewards: Rewards,
    state: dict,
    rng: np.random.Generator,
    *,
    known: tuple = ("value",),
    weights: tuple = (),
    candidates: tuple = ("answered",),
    every: int = 10,
    add: int = 1,
    weight: float = 1.0,
) -> Rewards:
    """Raises ValueError for weights of another number than `known`, for a criterion that is also a candidate, and for
    `every` or `add` below 1."""
    if weights and len(weights) != len(known):
        raise ValueError(
            f"refined_rubric: {len(weights)} weights for {len(known)} criteria; give one for each, or none"
        )
    if twice := sorted(set(known) & set(candidates)):
        raise ValueError(f"refined_rubric: {', '.join(twice)} is a criterion already: leave it out of candidates")
    if every < 1 or add < 1:
        raise ValueError(f"refined_rubric: every is {every} and add is {add}: both count from 1")
    joined, separated = state.setdefault("joined", []), state.setdefault("separated", {})
    names = [*known, *joined]
    w = np.array([*(weights or [1.0] * len(known)), *[weight] * len(joined)], dtype=np.float64)
    out = []
    for group, r in zip(groups, rewards, strict=True):
        total = sum(x * part(group, r, name) for x, name in zip(w, names, strict=True)) / w.sum()
        total = np.where(np.isnan(r), np.nan, total)
        out.append(total)
        best = np.isclose(total, np.nanmax(total)) if not np.isnan(total).all() else np.zeros(len(r), bool)
        for name in candidates:
            x = part(group, r, name)[best]
            if name not in joined and len(x) and x.min() < x.max():
                separated[name] = separated.get(name, 0) + 1
    state["step"] = state.get("step", 0) + 1
    if state["step"] % every == 0:
        by_count = sorted(separated, key=lambda c: (-separated[c], candidates.index(c)))
        state["joined"], state["separated"] = [*joined, *by_count[:add]], {}
    return out
