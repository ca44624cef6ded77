"""Draws families in fixed shares, whatever their sizes; within a family every problem once before any comes again.

Li et al. 2025, "InternBootcamp Technical Report: Boosting LLM Reasoning with Verifiable Task Scaling" (arXiv
2508.08636): uniform over tasks; Ruan et al. 2025, "Critique-Coder: Enhancing Coder Models by Critique Reinforcement
Learning" (arXiv 2509.22824): a fraction of the prompts is of one kind.

    P(family) = fraction for the named family, (1 - fraction) / (families - 1) for each other;   1 / families without a
    name

Returns n indices into `problems`, distinct while a family has problems left. `state` keeps the order of each family and
the place in it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from synth.types import Problem


def family_mix(
    problems: Sequence[Problem],
    state: dict,
    rng: np.random.Generator,
    n: int,
    *,
    family: str = "",
    fraction: float = 0.2,
) -> list[int]:
    if not problems:
        raise ValueError(
            "the curriculum was given no problem to choose from: check the split and the filters of the stage before"
        )
    return mixed([p.family for p in problems], state, rng, n, family, fraction)


def mixed(
    families: Sequence[str], state: dict, rng: np.random.Generator, n: int, family: str = "", fraction: float = 0.0
) -> list[int]:
    """As `family_mix`, of the family of each problem; a fraction is of a family that is named."""
    members: dict[str, list[int]] = {}
    for i, name in enumerate(families):
        members.setdefault(name, []).append(i)
    names = sorted(members)
    if family and family not in members:
        raise ValueError(f"family_mix: there is no problem of the family {family!r}; there are {', '.join(names)}")
    shares = np.full(len(names), 1 / len(names))
    if family and len(names) > 1:
        shares = np.array([fraction if name == family else (1 - fraction) / (len(names) - 1) for name in names])
    orders, chosen, taken = state.setdefault("orders", {}), [], {name: set() for name in names}
    while len(chosen) < n:
        live = np.array([len(taken[name]) < len(members[name]) for name in names])
        if not live.any():
            taken = {name: set() for name in names}
            continue
        name = names[
            int(
                rng.choice(
                    len(names), p=shares * live / (shares * live).sum() if (shares * live).any() else live / live.sum()
                )
            )
        ]
        index = _next(members[name], orders.setdefault(name, {"order": [], "at": 0}), taken[name], rng)
        taken[name].add(index)
        chosen.append(index)
    return chosen


def _next(members: list[int], kept: dict, taken: set[int], rng: np.random.Generator) -> int:
    """The next problem of a family that this draw has not taken; a new order when the old one is used up."""
    while True:
        if kept["at"] >= len(kept["order"]) or len(kept["order"]) != len(members):
            kept["order"], kept["at"] = [int(i) for i in rng.permutation(members)], 0
        kept["at"] += 1
        if kept["order"][kept["at"] - 1] not in taken:
            return kept["order"][kept["at"] - 1]
