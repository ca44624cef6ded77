"""Every problem once per epoch, in a new random order each time.

The standard way of stochastic gradient descent; Shamir 2016, "Without-Replacement Sampling for Stochastic Gradient
Methods" (arXiv 1603.00570), shows why it is no worse than drawing with replacement.

Returns n indices into `problems`. `state` keeps the order of the epoch and the cursor in it, so that a resumed run
continues where it was. A list of another length starts a new epoch. Leaves out difficulty: see `success_band`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from synth.types import Problem


def uniform(problems: Sequence[Problem], state: dict, rng: np.random.Generator, n: int) -> list[int]:
    if not problems:
        raise ValueError(
            "the curriculum was given no problem to choose from: check the split and the filters of the stage before"
        )
    chosen: list[int] = []
    while len(chosen) < n:
        order = state.get("order", [])
        if len(order) != len(problems) or state["cursor"] >= len(order):
            state["order"], state["cursor"] = [int(i) for i in rng.permutation(len(problems))], 0
            order = state["order"]
        taken = order[state["cursor"] : state["cursor"] + n - len(chosen)]
        state["cursor"] += len(taken)
        chosen += taken
    return chosen
