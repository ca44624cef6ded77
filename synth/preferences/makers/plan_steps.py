"""Sibling steps under one parent, the better against the worse, with the advantage gap as margin: the data of Step-APO
in CPL (arXiv:2409.08642, 2024).

From the root, `children` steps are drawn; the value of each is the share of `rollouts` completions behind it that end
right, and its advantage the value less that of its parent (no reward for steps). The greatest and least advantage make
the pair where they differ by `min_gap`; else the walk goes on below the best child, at most `depth` steps. A reading of
the abstract: the paper's tree search with a learned value is a walk with Monte-Carlo values here, and steps are those
of the solution, not of an abstract plan.
"""

from __future__ import annotations

from synth.preferences.makers._made import ask, continued, made, quarantined, right, steps
from synth.types import Generate, PreferencePair, Problem, Quarantined


def plan_steps(
    seed: int,
    problem: Problem,
    index: int,
    generate: Generate,
    *,
    children: int = 5,
    rollouts: int = 4,
    depth: int = 6,
    min_gap: float = 0.1,
) -> PreferencePair | Quarantined:
    """The sides are prefix and step; `columns["advantage_gap"]` is A_w - A_l, and the margin. Quarantined: no_gap."""
    begun, parent = "", None
    for level in range(depth):
        key = (seed, "plan_steps", problem.id, index, level)
        drawn = [steps(t)[:1] for t in ask(generate, continued(problem.prompt, begun), children, *key)]
        options = sorted({s[0] for s in drawn if s})
        if not options:
            break
        ends = {
            s: [begun + s + t for t in ask(generate, continued(problem.prompt, begun + s), rollouts, *key, s)]
            for s in options
        }
        values = {s: sum(right(problem, t) is True for t in ended) / rollouts for s, ended in ends.items()}
        parent = sum(values.values()) / len(values) if parent is None else parent
        best, worst = max(options, key=lambda s: (values[s], s)), min(options, key=lambda s: (values[s], s))
        gap = values[best] - values[worst]
        if gap >= min_gap and best != worst:
            advantages = {"chosen": values[best] - parent, "rejected": values[worst] - parent}
            return made(
                problem, "plan_steps", begun + best, begun + worst, margin=gap, advantage_gap=gap, advantages=advantages
            )
        begun, parent = begun + best, values[best]
        if "</answer>" in best:
            break
    return quarantined(problem, index, "no_gap", f"no siblings differ by {min_gap} below {begun!r}")
