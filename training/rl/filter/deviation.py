"""Keeps groups whose rewards spread enough: above a bound, above a moving bound, or among the step's widest.

Moving bound: Yu et al. 2025, "RLPR: Extrapolating RLVR to General Domains without Verifiers" (arXiv 2506.18254); widest
share: Wang et al. 2025, "RAGEN: Understanding Self-Evolution in LLM Agents via Multi-Turn Reinforcement Learning"
(StarPO-S, arXiv 2504.20073).

    keep a group  <=>  std(x) > minimum,  std(x) > factor * m (m the moving mean of std),  and its std is among the top
    `share`

Shapes: one verdict per group: None (keep) or a reason: "unscorable" (fewer than two scores), "too_even". x are the
scores or a `part` of them; std is the population's. m <- memory m + (1 - memory) (mean std of this call) after use, in
`state["mean"]`; it starts at the first mean. The share keeps ceil(share * groups with scores) groups and all ties. With
the defaults the three bounds drop only groups of equal rewards.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from training.rl.reward import part as part_of
from training.types import Group, Rewards

READS = ("{part}",)

MIN_GROUP = 2


def deviation(
    groups: Sequence[Group],
    rewards: Rewards,
    state: dict,
    rng: np.random.Generator,
    *,
    minimum: float = 0.0,
    factor: float = 0.0,
    memory: float = 0.99,
    share: float = 1.0,
    part: str = "value",
) -> list[str | None]:
    if not 0 < share <= 1:
        raise ValueError(f"deviation: share is {share}; it is the share of groups kept, above 0 and at most 1")
    values = [part_of(group, group.rewards, part) for group in groups]
    spread = [float(x[~np.isnan(x)].std()) if (~np.isnan(x)).sum() > 1 else math.nan for x in values]
    known = [s for s in spread if not math.isnan(s)]
    now = sum(known) / len(known) if known else 0.0
    mean = state.setdefault("mean", now)
    state["mean"] = memory * mean + (1 - memory) * now
    cut = sorted(known, reverse=True)[math.ceil(share * len(known)) - 1] if known else 0.0

    def reason(s: float) -> str | None:
        if math.isnan(s):
            return "unscorable"
        return None if s > minimum and s > factor * mean and s >= cut else "too_even"

    return [reason(s) for s in spread]
