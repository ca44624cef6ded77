"""Beta posteriors of success, per cell (a family at a level) and per axis of difficulty: the state that curricula
share.

A curriculum is given past mean scores by problem (`state["scores"]`); `fold` counts the scores that are new since its
last call:

    state["cells"][family/level]       {"right": a, "wrong": b, "means": [mean of each call that had something new]}
    state["axes"][family:axis=value]   [a, b]
    state["latest"]                    [sum, number] of the scores that the last call found new

with a and b discounted before new evidence is added, so that a solver that learns is not judged by its past. The
posterior of a success probability is Beta(1 + a, 1 + b). The state has only plain values, because it is part of the
checkpoint.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

from synth.types import Problem

KEPT = 32  # how many means of a cell are kept


def cell_of(problem: Problem) -> str:
    """family/level; the family's other axes if it has no ladder ("entity_tree/hops=2")."""
    level = problem.difficulty.get("level")
    inner = f"{level:g}" if level is not None else ",".join(f"{k}={v:g}" for k, v in sorted(problem.difficulty.items()))
    return f"{problem.family}/{inner}"


def fold(problems: Sequence[Problem], state: dict, *, samples: float, discount: float) -> set[str]:
    """Count the scores that no earlier call has seen; each is the mean of `samples` attempts. Returns the cells that
    have new evidence."""
    cells, axes = state.setdefault("cells", {}), state.setdefault("axes", {})
    seen, scores = state.setdefault("counted", {}), state.get("scores", {})
    new: dict[str, list[float]] = defaultdict(list)
    by_axis: dict[str, list[float]] = defaultdict(list)
    for problem in problems:
        given = scores.get(problem.id, ())
        fresh = [s for s in given[seen.get(problem.id, 0) :] if not math.isnan(s)]
        if len(given) > seen.get(problem.id, 0):
            seen[problem.id] = len(given)
        if fresh:
            new[cell_of(problem)] += fresh
            for axis, value in problem.difficulty.items():
                by_axis[f"{problem.family}:{axis}={value:g}"] += fresh
    state["latest"] = [sum(map(sum, new.values())), sum(map(len, new.values()))]
    for name, fresh in new.items():
        cell = cells.setdefault(name, {"right": 0.0, "wrong": 0.0, "means": []})
        cell["right"] = discount * cell["right"] + samples * sum(fresh)
        cell["wrong"] = discount * cell["wrong"] + samples * (len(fresh) - sum(fresh))
        cell["means"] = [*cell["means"], sum(fresh) / len(fresh)][-KEPT:]
    for name, fresh in by_axis.items():
        a, b = axes.get(name, [0.0, 0.0])
        axes[name] = [discount * a + samples * sum(fresh), discount * b + samples * (len(fresh) - sum(fresh))]
    return set(new)


def posterior(cell: dict | None) -> tuple[float, float]:
    """(alpha, beta) of a cell's Beta posterior; the flat prior without evidence."""
    return (1.0 + cell["right"], 1.0 + cell["wrong"]) if cell else (1.0, 1.0)
