"""A step as a graph of calls on models, plans of who runs what, and what a plan costs.

A call (generate, reward, reference, train) belongs to a model, waits for other calls, and has a measured duration for
each number of devices. A plan gives each call a range of neighbouring devices. `cost` simulates the step: a call begins
when the calls it waits for have ended and its devices are free. If the model last ran on other devices, its weights are
moved first, which occupies the new devices for `move` seconds.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Call:
    """seconds: number of devices -> duration on that many. Numbers that are not listed are too few, or bring no
    gain."""

    name: str
    model: str
    seconds: Mapping[int, float]
    after: tuple[str, ...] = ()


Plan = Mapping[str, tuple[int, int]]  # name of a call -> (first device, how many)


def calls_of(rows: Sequence[Mapping]) -> list[Call]:
    """Builds the calls from plain values. Raises ValueError for a call that waits for one not listed before it, and for
    a call without seconds."""
    out: list[Call] = []
    for row in rows:
        call = Call(
            name=row["name"],
            model=row.get("model", row["name"]),
            after=tuple(row.get("after", ())),
            seconds={int(k): float(v) for k, v in row["seconds"].items()},
        )
        missing = sorted(set(call.after) - {c.name for c in out})
        if missing or not call.seconds:
            raise ValueError(
                f"the call {call.name!r} {f'waits for {missing[0]!r}, which is not listed before it' if missing else 'has no seconds'}"
            )
        out.append(call)
    return out


def choices(call: Call, devices: int) -> Iterator[tuple[int, int]]:
    """Every range of neighbouring devices that a call may have. A range of n devices begins at a multiple of n."""
    for n in sorted(call.seconds):
        for first in range(0, devices - n + 1, n):
            yield first, n


def cost(calls: Sequence[Call], plan: Plan, devices: int, move: float = 0.0) -> float:
    """Duration of a step, in seconds. If several calls could begin at the same time, the one listed first does."""
    free = [0.0] * devices
    ended: dict[str, float] = {}
    home: dict[str, tuple[int, int]] = {}
    order = {c.name: i for i, c in enumerate(calls)}
    ready = [(0.0, order[c.name], c) for c in calls if not c.after]
    heapq.heapify(ready)
    while ready:
        at, _, call = heapq.heappop(ready)
        first, n = plan[call.name]
        mine = range(first, first + n)
        begin = max(at, *(free[d] for d in mine))
        if (
            begin > at and ready and ready[0][0] < begin
        ):  # another call can begin earlier: look again when this one's devices are free
            heapq.heappush(ready, (begin, order[call.name], call))
            continue
        end = begin + (move if home.get(call.model, (first, n)) != (first, n) else 0.0) + call.seconds[n]
        home[call.model] = (first, n)
        ended[call.name] = end
        for d in mine:
            free[d] = end
        for c in calls:
            if call.name in c.after and all(a in ended for a in c.after):
                heapq.heappush(ready, (max(ended[a] for a in c.after), order[c.name], c))
    return max(ended.values()) if len(ended) == len(calls) else math.inf
