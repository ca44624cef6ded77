"""Keeps problems between those that a weak model always solves and those that a strong model never solves.

Cheng et al. 2025, "Revisiting Reinforcement Learning for LLM Reasoning from A Cross-Domain Perspective" (Guru, arXiv
2506.14965).

    drop where weak >= always ("too_easy"), where strong <= never ("too_hard"), where weak > strong ("mislabelled")

weak and strong are the pass rates of two models: those in the problem's lineage under "rates" (with the knob `ratings`
of the stage rl two checkpoints play every problem before training), or else parts of the scores with these names (the
mean over the group). A stronger model should not be worse: if it is, the label is likely wrong. Shapes: one
verdict per group: None (keep) or a reason, "unscorable" without a score. A group without ratings is kept.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from synth.types import Scored
from training.types import Group, Rewards

NEEDS = {"rates"}


def two_models(
    groups: Sequence[Group],
    rewards: Rewards,
    state: dict,
    rng: np.random.Generator,
    *,
    always: float = 0.9375,
    never: float = 0.0,
) -> list[str | None]:
    def reason(group: Group) -> str | None:
        scores = [r.score for r in group.rollouts if isinstance(r.score, Scored)]
        if not scores:
            return "unscorable"
        told = group.rollouts[0].problem.lineage.get("rates") or {}
        rated = [x for x in ([told] if told else [s.parts for s in scores]) if {"weak", "strong"} <= x.keys()]
        if not rated:
            return None
        weak, strong = (float(np.mean([p[k] for p in rated])) for k in ("weak", "strong"))
        return (
            "too_easy"
            if weak >= always
            else "too_hard"
            if strong <= never
            else "mislabelled"
            if weak > strong
            else None
        )

    return [reason(group) for group in groups]
