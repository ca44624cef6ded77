"""Evolves problems that were attempted: deeper, wider, or under a constraint more, each with its difficulty as a tag.

Prompt evolution of the "Yi-Lightning Technical Report" 2024 (arXiv 2412.01253), after Xu et al. 2023, "WizardLM: Empowering Large
Pre-Trained Language Models to Follow Complex Instructions" (arXiv 2304.12244). There language models rewrite and label; here a program
does, and every answer is certified.

    deepen      an expression gets an operation more in the place of one of its numbers; of another family an item one level up
    widen       an item of another family at the same level
    constrain   an item of a family whose ladder counts constraints (`constrained`), one level up; without one, as deepen

Parents are problems whose success lies from `low` to `high`: what is never or always solved is rejected, as a verifier sees it. The tag is
the level of the cell; `state["tags"]` counts operations by tag.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from synth.families._arithmetic import Tree, parse, write
from synth.selfplay.loop import View
from synth.selfplay.propose.ladder import cells_of, drawn
from synth.selfplay.spec import Spec
from synth.types import Problem

OPS = ("deepen", "widen", "constrain")


def evolve(
    view: View,
    rng: np.random.Generator,
    n: int,
    *,
    ops: tuple[str, ...] = OPS,
    constrained: tuple[str, ...] = ("topological_order", "constrained_writing"),
    share: float = 0.75,
    low: float = 0.25,
    high: float = 1.0,
) -> list[str]:
    """`share` of the proposals are evolved, the others drawn as wanted. Raises ValueError for an unknown operation."""
    if not ops or not set(ops) <= set(OPS):
        raise ValueError(f"evolve: ops {list(ops)}: name some of {', '.join(OPS)}")
    ladders = cells_of(view)
    parents = [p for p, rate in view.solved if low <= rate <= high and p.family in ladders]
    tags = view.state.setdefault("tags", {})
    out = []
    for cell in view.wanted[:n]:
        if not parents or rng.random() >= share:
            out.append(drawn(cell, rng))
            continue
        parent, op = parents[int(rng.integers(len(parents)))], ops[int(rng.integers(len(ops)))]
        level = int(parent.difficulty["level"])
        families = [f for f in ladders if f != parent.family]
        if op == "widen" and families:
            rungs = ladders[families[int(rng.integers(len(families)))]]
        elif op == "constrain" and (known := [f for f in constrained if f in ladders]):
            rungs = ladders[known[int(rng.integers(len(known)))]]
            level += 1
        else:
            op, rungs = "deepen", ladders[parent.family]
            level += 1
            if parent.family == "integer_arithmetic":
                level = min(level, len(rungs))
                out.append(Spec(family=parent.family, level=level, question=deeper(parent, rng)).text())
                tags[f"{op}/{level}"] = tags.get(f"{op}/{level}", 0) + 1
                continue
        chosen = rungs[min(level, len(rungs)) - 1]
        out.append(drawn(chosen, rng))
        tags[f"{op}/{chosen.level}"] = tags.get(f"{op}/{chosen.level}", 0) + 1
    return out


def deeper(problem: Problem, rng: np.random.Generator) -> str:
    """The question with one number written as a sum or difference of two, so that there is one operation more and the answer
    stays."""
    tree = parse(problem.question.removeprefix("Compute ").removesuffix("."))
    places = list(_leaves(tree))
    value, by = places[int(rng.integers(len(places)))], Fraction(int(rng.integers(1, 10)))
    new = ("+", value[1] - by, by) if value[1] > by else ("-", value[1] + by, by)
    return f"Compute {write(_with(tree, value[0], new))}."


def _leaves(tree: Tree, path: tuple[int, ...] = ()) -> list[tuple[tuple[int, ...], Fraction]]:
    if not isinstance(tree, tuple):
        return [(path, tree)]
    return [leaf for side in (1, 2) for leaf in _leaves(tree[side], (*path, side))]


def _with(tree: Tree, path: tuple[int, ...], new: Tree) -> Tree:
    if not path:
        return new
    assert isinstance(tree, tuple)
    parts = list(tree)
    parts[path[0]] = _with(parts[path[0]], path[1:], new)
    return tuple(parts)
