"""A Metropolis search through plans: change one call's devices, keep every better plan, and sometimes a worse one.

Mei et al. 2024, "ReaL: Efficient RLHF Training of Large Language Models with Parameter Reallocation" (arXiv
2406.14088).

    propose   one call, chosen at random, on another range of devices
    accept    with probability min(1, exp(-beta (cost' - cost) / cost_0)),    cost_0 that of the start

The search starts from the greedy plan (each call, in order, on the devices where the step so far ends first) and
returns the best plan seen. beta is relative to the cost of the start, so that it means the same for steps of seconds
and of minutes; the paper's beta is absolute.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tasks.lab.placement._graph import Call, Plan, choices, cost


def metropolis(
    calls: Sequence[Call], devices: int, move: float, rng: np.random.Generator, *, beta: float = 20.0, steps: int = 2000
) -> Plan:
    plan: dict[str, tuple[int, int]] = {}
    ranges = {c.name: list(choices(c, devices)) for c in calls}
    for i, call in enumerate(calls):
        so_far = calls[: i + 1]
        plan[call.name] = min(ranges[call.name], key=lambda r: cost(so_far, {**plan, call.name: r}, devices, move))  # noqa: B023
    now = start = cost(calls, plan, devices, move)
    best, least = dict(plan), now
    names = [c.name for c in calls if len(ranges[c.name]) > 1]
    for _ in range(steps if names else 0):
        name = names[int(rng.integers(len(names)))]
        other = {**plan, name: ranges[name][int(rng.integers(len(ranges[name])))]}
        then = cost(calls, other, devices, move)
        if then <= now or rng.random() < math.exp(-beta * (then - now) / start):
            plan, now = other, then
            if now < least:
                best, least = dict(plan), now
    return best
