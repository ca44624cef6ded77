"""Explore-Execute Chain at test time: many short plans, one of them chosen, and only that one carried out.

"Explore-Execute Chain: Towards an Efficient Structured Reasoning Paradigm" 2025 (arXiv 2509.23946); read in the
abstract, the choice is our reading.

    e_1 .. e_K ~ p(. | x) at temperature temp_explore, plan_tokens each        e = argmax_k mean_j overlap(e_k, e_j)
    y = e, then the rest at temperature temp_execute

overlap is the share of tokens that two plans have in common, counted with repeats: the plan in the middle of all. execute
> 1 carries it out so often and gives what most agree on. k: 0 draws as many plans as the budget allows. select: "random"
is the control: any of the plans. Where the budget has no room for two plans, the answer is one draw.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from synth.types import seed_for
from training.decode import Ask, Decoded, Draw, Engine
from training.decode._segments import begun, options
from training.types import Segment


def plans(
    engine: Engine,
    asks: Sequence[Ask],
    fitted: Any,
    *,
    k: int = 32,
    plan_tokens: int = 16,
    execute: int = 1,
    temp_explore: float = 1.0,
    temp_execute: float = 0.2,
    select: Literal["centroid", "random"] = "centroid",
) -> list[Decoded]:
    if execute < 1:
        raise ValueError(f"execute is {execute}: it is how often the plan is carried out, 1 or more")
    if k == 0 and any(not ask.forward_tokens for ask in asks):
        raise ValueError("k is 0, as many plans as the budget allows, and there is no budget: set k, or a budget")
    writings = begun(asks)
    most = k or max((ask.forward_tokens for ask in asks), default=1)
    drawn = options(engine, writings, most, plan_tokens, temperature=temp_explore)
    draws: list[tuple[int, Draw]] = []
    for i, (w, few) in enumerate(zip(writings, drawn, strict=True)):
        if not few:
            continue
        w.take(few[_middle([p.ids for p in few]) if select == "centroid" else _any(w.ask.seed, len(few))])
        if not w.over:
            left = w.ask.max_tokens - len(w.ids)
            for j in range(max(1, int(min(execute, (w.account.left - len(w.context)) // left)))):
                seed = seed_for(w.ask.seed, "execute", j)
                draws.append((i, Draw(account=w.account, prompt=w.context, seed=seed, max_tokens=left)))
    carried: dict[int, list[Segment]] = {}
    for (i, _), segment in zip(draws, engine.sample([d for _, d in draws], temperature=temp_execute), strict=True):
        carried.setdefault(i, []).append(segment)
    for i, ways in carried.items():
        answers = [engine.said(np.concatenate([writings[i].ids, s.ids])) for s in ways]
        votes = Counter(a for a in answers if a)
        writings[i].take(max(enumerate(ways), key=lambda one: (votes[answers[one[0]]], -one[0]))[1])
    return [w.decoded() for w in writings]


def _any(seed: int, n: int) -> int:
    return int(np.random.default_rng(seed_for(seed, "any plan")).integers(n))


def _middle(plans: Sequence[np.ndarray]) -> int:
    """The plan that has most in common with all; of equals the first."""
    bags = [Counter(p.tolist()) for p in plans]
    kinds = [tuple(sorted(b.items())) for b in bags]
    many = Counter(kinds)
    score = {
        kind: sum(
            m
            * sum((Counter(dict(kind)) & Counter(dict(other))).values())
            / max(sum(n for _, n in kind), sum(n for _, n in other), 1)
            for other, m in many.items()
        )
        for kind in many
    }
    return max(range(len(plans)), key=lambda i: (score[kinds[i]], -i))
