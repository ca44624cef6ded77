"""The prompt names a direction over two objectives, and rollouts are compared along it.

Wang et al. 2024, "Arithmetic Control of LLMs for Diverse User Preferences: Directional Preference Alignment with
Multi-Objective Rewards" (arXiv 2402.18571).

    v = (cos a, sin a) for an angle a, drawn for each problem of a step
    worth = v . (score, brevity),      brevity = 1 - tokens / most,      most: tokens that a turn may have

angles are in degrees. The direction is given in a system message before the problem, in hundredths. Applies to pairs
that are sampled while the policy learns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from math import cos, radians, sin

import numpy as np

from synth.types import Message, Problem
from training.preference.update_rule import UpdateRule, Worth
from training.rollout.play import Player
from training.types import Rollout


class directions(UpdateRule):
    def __init__(self, *, angles: Sequence[float] = (-45.0, -22.5, 0.0, 22.5, 45.0)) -> None:
        if not angles:
            raise ValueError("directions: `angles` is empty: name at least one angle, in degrees")
        self.angles = angles

    def asked(
        self, problems: Sequence[Problem], rng: np.random.Generator, player: Player
    ) -> list[tuple[Problem, Worth]]:
        drawn = [radians(self.angles[i]) for i in rng.integers(0, len(self.angles), len(problems))]
        vectors = [(cos(a), sin(a)) for a in drawn]
        most = player.sampling.max_tokens
        return [(directed(p, v), partial(along, v, most)) for p, v in zip(problems, vectors, strict=True)]


def along(v: tuple[float, float], most: int, value: float, rollout: Rollout) -> float:
    """v . (value, brevity)"""
    return v[0] * value + v[1] * (1 - rollout.n_model / most)


def directed(problem: Problem, v: tuple[float, float]) -> Problem:
    """The problem with a direction, in hundredths, in a system message before it."""
    wish = Message(role="system", content=f"right {round(100 * v[0])} short {round(100 * v[1])}")
    return replace(problem, prompt=(wish, *problem.prompt))
