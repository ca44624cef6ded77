"""Families of problems as arms of a bandit; the reward of an arm is the mean absolute advantage of its rollouts.

Wang et al. 2025, "DUMP: Automated Distribution-Level Curriculum Learning for RL-based LLM Post-training" (arXiv
2504.09710); Chen et al. 2025, "Self-Evolving Curriculum for LLM Reasoning" (SEC, arXiv 2505.14970).

    ucb       v_j = mean |A| of the last `window` rollouts + sqrt(2 ln(n + 1) / (n_j + 1)),  n_j rollouts of family j so
              far, n of all
    moving    v_j <- alpha mean |A| of the step + (1 - alpha) v_j       for the families that were played, from 0
    a family is drawn with probability softmax(v / tau), a problem in it uniformly

Reads state["latest"], family -> |advantage| per rollout of the last step, and removes it; keeps window, counts and v in
`state`, and the probabilities in state["weights"]. Returns n distinct indices (repeated only when n exceeds the number
of problems).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Literal

import numpy as np

from synth.types import Problem


def bandit(
    problems: Sequence[Problem],
    state: dict,
    rng: np.random.Generator,
    n: int,
    *,
    rule: Literal["ucb", "moving"] = "ucb",
    tau: float = 0.1,
    window: int = 300,
    alpha: float = 0.5,
) -> list[int]:
    if not problems:
        raise ValueError(
            "the curriculum was given no problem to choose from: check the split and the filters of the stage before"
        )
    if tau <= 0:
        raise ValueError(
            f"bandit: tau is {tau}; it is the temperature of the choice among families and must be above 0"
        )
    sizes = Counter(p.family for p in problems)
    values, counts, last = (state.setdefault(k, {}) for k in ("values", "counts", "last"))
    for family, rates in state.pop("latest", {}).items():
        counts[family] = counts.get(family, 0) + len(rates)
        last[family] = [*last.get(family, []), *rates][-window:]
        values[family] = alpha * float(np.mean(rates)) + (1 - alpha) * values.get(family, 0.0)
    total = sum(counts.get(f, 0) for f in sizes)
    worth = {}
    for family in sizes:
        seen = last.get(family, [])
        bonus = math.sqrt(2 * math.log(total + 1) / (counts.get(family, 0) + 1))
        worth[family] = (float(np.mean(seen)) if seen else 0.0) + bonus if rule == "ucb" else values.get(family, 0.0)
    top = max(worth.values())
    shares = {f: math.exp((v - top) / tau) for f, v in worth.items()}
    state["weights"] = {f: v / sum(shares.values()) for f, v in shares.items()}
    p = np.array([state["weights"][q.family] / sizes[q.family] + 1e-9 for q in problems])
    return [int(i) for i in rng.choice(len(problems), size=n, replace=n > len(problems), p=p / p.sum())]
