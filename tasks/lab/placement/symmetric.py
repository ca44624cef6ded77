"""Every call on all devices, one after the other, as a trainer without a plan does.

This is the heuristic that Mei et al. 2024, "ReaL: Efficient RLHF Training of Large Language Models with Parameter
Reallocation" (arXiv 2406.14088), measures itself against.

    plan(call) = (0, the most devices that the call can use)

calls: tasks/lab/placement/_graph.py. No weights are ever moved.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tasks.lab.placement._graph import Call, Plan


def symmetric(calls: Sequence[Call], devices: int, move: float, rng: np.random.Generator) -> Plan:
    return {c.name: (0, max(n for n in c.seconds if n <= devices)) for c in calls}
