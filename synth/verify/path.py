"""A path in a graph, by its nodes: any path of the least cost is right, whichever of several it is.

Nodes are parted by spaces, commas, lines, "-", ">", "->" or an arrow, in brackets and quotes or not. `edges` are (node, node, cost); every one can be walked both ways
unless `directed`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from synth.types import Problem, Score, Unscorable
from synth.verify import RIGHT, UNPARSABLE, WRONG

MAX_CHARS = 1000
FORM = "number"
EXAMPLE = {
    "prompt": "Find the shortest path from A to C. A-B 1, B-C 2, A-C 4.",
    "answer": "A B C",
    "args": {"edges": [["A", "B", 1], ["B", "C", 2], ["A", "C", 4]], "start": "A", "goal": "C", "cost": 3},
}


def nodes(text: str) -> list[str]:
    """The nodes in order; empty where the text is too long."""
    return [n for n in re.split(r"[-=,;>→⇒\s\[\]()\"']+", text.strip()) if n] if len(text) <= MAX_CHARS else []


def path(
    problem: Problem,
    answer: str,
    *,
    edges: Sequence[Sequence] = (),
    start: str = "",
    goal: str = "",
    cost: float = 0,
    directed: bool = False,
) -> Score:
    """1 where `answer` walks along edges from `start` to `goal` at exactly `cost`. The reference is checked alike."""
    costs = {(a, b): c for a, b, c in edges} | ({} if directed else {(b, a): c for a, b, c in edges})
    if not _walks(nodes(problem.answer), costs, start, goal, cost):
        return Unscorable(
            reason=f"bad_reference: {problem.answer!r} does not lead from {start} to {goal} at cost {cost}"
        )
    if not (given := nodes(answer)):
        return UNPARSABLE
    return RIGHT if _walks(given, costs, start, goal, cost) else WRONG


def _walks(walk: Sequence[str], costs: dict[tuple[str, str], float], start: str, goal: str, cost: float) -> bool:
    steps = list(zip(walk, walk[1:], strict=False))
    return (
        bool(steps)
        and walk[0] == start
        and walk[-1] == goal
        and all(s in costs for s in steps)
        and sum(costs[s] for s in steps) == cost
    )
