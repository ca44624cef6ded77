"""Simplifies problems that are too hard and rephrases problems of medium difficulty; the answer must not change.

CLPO, Zhang et al. 2025, "CLPO: Curriculum Learning meets Policy Optimization for LLM Reasoning" (arXiv 2509.25004):
attempts sort the problems into hard (success up to `hard`), medium (up to `medium`) and easy. There the policy
rewrites; here a program does, on expressions, where both rewrites are exact: the first operation is carried out, or the
sides of a sum or product are exchanged. Of other families a sibling one level lower (hard) or at the level (medium) is
drawn, which has another answer and so is no rewrite but a problem.
"""

from __future__ import annotations

import numpy as np

from synth.families._arithmetic import Tree, evaluate, parse, write
from synth.selfplay.loop import View
from synth.selfplay.propose.ladder import cells_of, drawn
from synth.selfplay.spec import Spec
from synth.types import Problem


def rewrite(
    view: View, rng: np.random.Generator, n: int, *, hard: float = 0.3, medium: float = 0.7, share: float = 0.5
) -> list[str]:
    rates = {p.id: rate for p, rate in view.solved}
    rated = {p.id: (p, rates.get(p.id, 0.0)) for p, _ in view.failed}
    pool = [(p, rate) for p, rate in rated.values() if rate <= medium]
    out = []
    for cell in view.wanted[:n]:
        if pool and rng.random() < share:
            problem, rate = pool[int(rng.integers(len(pool)))]
            out.append(rewritten(problem, rate <= hard, view, rng))
        else:
            out.append(drawn(cell, rng))
    return out


def rewritten(problem: Problem, simpler: bool, view: View, rng: np.random.Generator) -> str:
    """The spec of a simplified or varied problem."""
    level = int(problem.difficulty["level"])
    if problem.family == "integer_arithmetic":
        tree = parse(problem.question.removeprefix("Compute ").removesuffix("."))
        tree = simplified(tree) if simpler else varied(tree, rng)
        if isinstance(tree, tuple):
            return Spec(family=problem.family, level=level, question=f"Compute {write(tree)}.").text()
    rungs = cells_of(view)[problem.family]
    return drawn(rungs[max(0, level - 2) if simpler else level - 1], rng)


def simplified(tree: Tree) -> Tree:
    """The tree with its first innermost operation carried out, where the value can be written (it is not negative)."""
    if not isinstance(tree, tuple):
        return tree
    if not isinstance(tree[1], tuple) and not isinstance(tree[2], tuple):
        value = evaluate(tree, [])
        return value if value >= 0 else tree
    left = simplified(tree[1])
    return (tree[0], left, tree[2]) if left != tree[1] else (tree[0], tree[1], simplified(tree[2]))


def varied(tree: Tree, rng: np.random.Generator) -> Tree:
    """The tree with the sides of sums and products exchanged, each with probability 1/2, the outermost always."""
    if not isinstance(tree, tuple):
        return tree
    left, right = (
        varied(tree[1], rng) if rng.random() < 0.5 else tree[1],
        varied(tree[2], rng) if rng.random() < 0.5 else tree[2],
    )
    return (tree[0], right, left) if tree[0] in "+*" else (tree[0], left, right)
