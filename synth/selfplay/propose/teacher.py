"""A teacher that targets failures: new problems near a failed one, harder ones if all are solved.

Socratic-Zero, Wang et al. 2025, "Socratic-Zero: Bootstrapping Reasoning via Data-Free Agent Co-evolution" (arXiv
2509.24726). There a large model refines a failed question and trusts its own answer; here a program does it, and the
answer is certified.

- a share `replay` of the proposals stays at what the curriculum wants (the paper replays old questions)
- a failed problem whose family reads questions gets one of its numbers changed; of another family, a sibling is drawn
  at its level
- a problem that every attempt solved spawns a sibling one level up
"""

from __future__ import annotations

import re

import numpy as np

from synth.selfplay.loop import View
from synth.selfplay.propose.ladder import cells_of, drawn
from synth.selfplay.spec import Spec
from synth.types import Problem

_NUMBER = re.compile(r"\d+")


def teacher(view: View, rng: np.random.Generator, n: int, *, replay: float = 0.25, harder: float = 0.25) -> list[str]:
    ladders = cells_of(view)
    solved = [p for p, rate in view.solved if rate == 1.0 and p.family in ladders]
    failed = [p for p, _ in view.failed if p.family in ladders]
    out = []
    for cell in view.wanted[:n]:
        u = rng.random()
        if u < replay or not (failed or solved):
            out.append(drawn(cell, rng))
        elif solved and (u < replay + harder or not failed):
            problem = solved[int(rng.integers(len(solved)))]
            rungs = ladders[problem.family]
            out.append(drawn(rungs[min(int(problem.difficulty["level"]), len(rungs) - 1)], rng))
        else:
            out.append(refined(failed[int(rng.integers(len(failed)))], view, rng))
    return out


def refined(problem: Problem, view: View, rng: np.random.Generator) -> str:
    """A spec near a failed problem: one number of its text changed by up to 3, or a sibling."""
    level = int(problem.difficulty["level"])
    if view.families[problem.family].posed is None:
        return drawn(next(c for c in view.cells if (c.family, c.level) == (problem.family, level)), rng)
    places = [m.span() for m in _NUMBER.finditer(problem.question)]
    start, end = places[int(rng.integers(len(places)))]
    number = max(1, int(problem.question[start:end]) + int(rng.choice([-3, -2, -1, 1, 2, 3])))
    return Spec(
        family=problem.family, level=level, question=f"{problem.question[:start]}{number}{problem.question[end:]}"
    ).text()
