"""Two checkpoints rate the problems before training: how often the weak one solves each, and how often the strong one
does.

    set:
      rl:
        ratings: {weak: artifacts/sft/base, strong: artifacts/sft/model, tries: 16}

The rates are stored in the problem's lineage as {"rates": {"weak": 0.25, "strong": 1.0}}, where the filter `two_models`
reads them. The user says which one is strong; nothing checks it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from synth.types import Problem
from tasks.core.errors import UserError, nearest
from tasks.storage.problems import Problems
from training.rollout.play import Player

KEYS = ("weak", "strong", "tries")


def configured(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The settings with their defaults. Raises UserError for a missing or unknown key, and for a value that is not a
    number."""
    for key in spec:
        if key not in KEYS:
            raise UserError(f"rl.ratings: unknown key {key!r}: {nearest(key, KEYS)}")
    for side in KEYS[:2]:
        if not spec.get(side) or not isinstance(spec[side], str):
            raise UserError(f"rl.ratings: {side} is missing: name a model folder, for example artifacts/sft/model")
    tries = spec.get("tries", 16)
    if not isinstance(tries, int) or isinstance(tries, bool) or tries < 1:
        raise UserError(f"rl.ratings: tries is {tries!r}: give the number of answers to each problem, at least 1")
    return {**spec, "tries": tries}


def rated(
    spec: Mapping[str, Any],
    problems: Sequence[Problem],
    player_of: Callable[[str], Player],
    seed: int,
    at_once: int = 16,
) -> Problems:
    """The problems with their rates in the lineage; answers without a score are not counted, and a problem without any
    score gets no rate. player_of: model folder -> its player; at_once: problems that are played together."""
    told = configured(spec)
    rates: list[dict[str, float]] = [{} for _ in problems]
    for side in ("weak", "strong"):
        player = player_of(told[side])
        for first in range(0, len(problems), at_once):
            groups = player.play(problems[first : first + at_once], told["tries"], seed, "ratings", side, first)
            for i, group in enumerate(groups, first):
                known = group.rewards[~np.isnan(group.rewards)]
                if len(known):
                    rates[i][side] = float(np.mean(known >= 1.0))
    return Problems(replace(p, lineage={**p.lineage, "rates": r}) for p, r in zip(problems, rates, strict=True))
