"""Prompts whose whole group failed come back, every few steps, until they are mostly solved.

"DeepTravel: An End-to-End Agentic Reinforcement Learning Framework for Autonomous Travel Planning Agents", 2025 (arXiv
2509.21842).

    a problem enters the buffer when its last mean score is 0, and leaves it when one exceeds `leave`
    every `every`-th draw takes floor(share * n) of its prompts from the buffer, the rest by equal chance from all
    others

Returns n distinct indices (repeated only when n exceeds the number of problems). Reads state["scores"][problem id], a
list of past mean scores; keeps state["failed"], the ids in the buffer, and state["draws"]. The fraction and the
frequency are our reading of the abstract.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from synth.types import Problem


def failure_replay(
    problems: Sequence[Problem],
    state: dict,
    rng: np.random.Generator,
    n: int,
    *,
    every: int = 5,
    share: float = 0.25,
    leave: float = 0.5,
) -> list[int]:
    if not problems:
        raise ValueError(
            "the curriculum was given no problem to choose from: check the split and the filters of the stage before"
        )
    failed, draws = set(state.get("failed", ())), state.get("draws", 0) + 1
    for problem in problems:
        scores = [s for s in state.get("scores", {}).get(problem.id, ()) if not math.isnan(s)]
        if scores and scores[-1] <= 0:
            failed.add(problem.id)
        elif scores and scores[-1] > leave:
            failed.discard(problem.id)
    state["failed"], state["draws"] = sorted(failed), draws
    waiting = [i for i, p in enumerate(problems) if p.id in failed]
    again = min(len(waiting), int(share * n), n) if draws % every == 0 else 0
    chosen = [int(i) for i in rng.choice(waiting, size=again, replace=False)] if again else []
    rest = [i for i in range(len(problems)) if i not in set(chosen)]
    more = n - len(chosen)
    return chosen + [
        int(i) for i in rng.choice(rest or list(range(len(problems))), size=more, replace=more > len(rest))
    ]
