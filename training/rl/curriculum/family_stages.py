"""One family of problems after the other, in a given order.

"Omni-Thinker: Scaling Cross-Domain Generalization in LLMs via Multi-Task RL with Hybrid Rewards", 2025 (arXiv
2507.14783).

    stage k = (calls so far) // each,      problems are drawn from family order[k] alone; after the last stage from the
    last family

Returns n indices, drawn uniformly without repetition until n exceeds the family (then the others fill up). `order`
works best by backward transfer: first the families that are forgotten least, structured before open-ended ones;
families that it omits come after it by name. `axis` names an axis of difficulty whose values, from the least, are the stages
in the place of families (RewardMap 2025: judge, count, plan). `replay` is the share of draws from all families. state["step"]
counts the calls.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from synth.types import Problem


def family_stages(
    problems: Sequence[Problem],
    state: dict,
    rng: np.random.Generator,
    n: int,
    *,
    order: tuple = (),
    each: int = 30,
    replay: float = 0.0,
    axis: str = "",
) -> list[int]:
    if not problems:
        raise ValueError(
            "the curriculum was given no problem to choose from: check the split and the filters of the stage before"
        )
    step = state.get("step", 0)
    state["step"] = step + 1
    of = [q.difficulty.get(axis, 0.0) if axis else q.family for q in problems]
    known = set(of)
    stages = [f for f in order if f in known] + sorted(known - set(order))
    now = stages[min(step // max(each, 1), len(stages) - 1)]
    size = of.count(now)
    p = np.array([(1 - replay) * (one == now) / size + replay / len(problems) + 1e-12 for one in of])
    return [int(i) for i in rng.choice(len(problems), size=n, replace=n > len(problems), p=p / p.sum())]
