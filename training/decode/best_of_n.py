"""The draw with the highest reward among n, by the reward model.

Stiennon et al. 2020, "Learning to summarize from human feedback" (arXiv 2009.01325), section 3.4; Cobbe et al. 2021,
"Training Verifiers to Solve Math Word Problems" (arXiv 2110.14168).

    y = argmax_i  r(x, y_i)

The tokens that the reward model reads count against the same budget. n = 0: as many draws as the budget allows. A draw
that is too long for the reward model is chosen only if no other is left; of equal rewards the draw made first wins.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from training.decode import Ask, Decoded, Engine
from training.decode._draws import draws

NEEDS = {"reward_model"}


def best_of_n(engine: Engine, asks: Sequence[Ask], fitted: Any, *, n: int = 8) -> list[Decoded]:
    out = []
    for drawn in draws(engine, asks, n, rated=True):
        rewards = [-math.inf if r is None or math.isnan(r) else r for r in drawn.rewards]
        place = max(range(len(rewards)), key=lambda i: (rewards[i], -i))
        out.append(Decoded(segment=drawn.segments[place], account=drawn.account))
    return out
