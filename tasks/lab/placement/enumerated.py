"""The best of all plans, by trying them all.

The auto-mapping of Sheng et al. 2024, "HybridFlow: A Flexible and Efficient RLHF Framework" (arXiv 2409.19256):
placements and sizes are enumerated, and a simulator of costs says which is best.

    plan = argmin cost(plan)        over the product of the ranges of each call

The search is exact, and exponential in the number of calls: above `most` plans it refuses. If plans tie, the first is
taken.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from tasks.lab.placement._graph import Call, Plan, choices, cost


def enumerated(
    calls: Sequence[Call], devices: int, move: float, rng: np.random.Generator, *, most: int = 200_000
) -> Plan:
    """Raises ValueError if there are more than `most` plans."""
    ranges = [list(choices(c, devices)) for c in calls]
    n = math.prod(map(len, ranges))
    if n > most:
        raise ValueError(
            f"enumerated: {len(calls)} calls on {devices} devices have {n} plans, more than {most}: search them with the piece metropolis"
        )
    names = [c.name for c in calls]
    return min(
        (dict(zip(names, one, strict=True)) for one in itertools.product(*ranges)),
        key=lambda plan: cost(calls, plan, devices, move),
    )
