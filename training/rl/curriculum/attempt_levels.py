"""Problems binned into levels by how often the first policy solves them, and levels drawn evenly.

AlphaMed, Liu et al. 2025, "Beyond Distillation: Pushing the Limits of Medical LLM Reasoning with Minimalist Rule-Based
RL" (arXiv 2505.17952).

    right = scores of 1 among `tries` answers, before training        level = min(levels, 1 + floor(levels (1 - right / tries)))
    P(level) = 1 / (number of levels that are kept and hold a problem)

With 5 tries and 6 levels, level 1 is right five times in five and level 6 never. `keep` names the levels that are
trained on; the others wait for ever. Within a level every problem comes once before any comes again. Returns n indices
into `problems`. The tries are the piece's own observation, made once; `state` keeps the levels, and the order of each.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from synth.types import Problem
from training.rl.curriculum.family_mix import mixed
from training.rollout.play import Player

OBSERVES = "problems"


def observe(
    player: Player,
    problems: Sequence[Problem],
    *,
    tries: int = 5,
    levels: int = 6,
    keep: tuple = (1, 2, 3, 4, 5, 6),
) -> dict[str, int]:
    """Problem id -> its level. Raises ValueError for numbers that make no levels."""
    if tries < 1 or levels < 1 or not keep or not set(keep) <= set(range(1, levels + 1)):
        raise ValueError(
            f"attempt_levels: tries is {tries}, levels {levels} and keep {list(keep)}: keep names some of the levels 1 to {levels}, tries and levels are at least 1"
        )
    groups = player.play(problems, tries, 0, "attempt_levels")
    return {
        p.id: level(sum(float(x) >= 1.0 for x in g.rewards), tries, levels)
        for p, g in zip(problems, groups, strict=True)
    }


def level(right: int, tries: int, levels: int) -> int:
    """From 1 (always right) to `levels`."""
    return min(levels, 1 + levels * (tries - right) // tries)


def attempt_levels(
    problems: Sequence[Problem],
    state: dict,
    rng: np.random.Generator,
    n: int,
    *,
    tries: int = 5,
    levels: int = 6,
    keep: tuple = (1, 2, 3, 4, 5, 6),
) -> list[int]:
    known = state.get("attempt_levels", {})
    kept = {i: at for i, p in enumerate(problems) if (at := known.get(p.id, levels)) in keep}
    if not kept:
        raise ValueError(
            f"attempt_levels: no problem of {len(problems)} is of the levels {list(keep)}: keep others, or make easier or harder problems"
        )
    places = list(kept)
    return [places[i] for i in mixed([str(at) for at in kept.values()], state, rng, n)]
