"""More problems where the solver fails: each family's budget is proportional to its share of the failures, at the level
where it failed.

SwS, Liang et al. 2025, "SwS: Self-aware Weakness-driven Problem Synthesis in Reinforcement Learning for LLM Reasoning"
(arXiv 2506.08989): weak problems are those never mastered and not improving, the budget of a category follows its share
of them. Concepts of the failed problems are recombined there by a language model; here a family at a level is the
concept, and a fresh item the combination.

`share` of the proposals goes to weakness, the rest where the curriculum wants it. Where the curriculum calls families
weak, only their failures count.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from synth.selfplay.loop import View
from synth.selfplay.propose.ladder import drawn


def weak_skills(view: View, rng: np.random.Generator, n: int, *, share: float = 0.5) -> list[str]:
    known = {(c.family, c.level): c for c in view.cells}
    failed = Counter((p.family, int(p.difficulty["level"])) for p, _ in view.failed)
    failed = Counter({k: v for k, v in failed.items() if k in known and (not view.weak or k[0] in view.weak)})
    places = sorted(failed)
    weights = np.array([failed[p] for p in places], dtype=np.float64)
    out = []
    for cell in view.wanted[:n]:
        if places and rng.random() < share:
            cell = known[places[int(rng.choice(len(places), p=weights / weights.sum()))]]
        out.append(drawn(cell, rng))
    return out
