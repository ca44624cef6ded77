"""Some rollouts begin with a part of a guide's solution.

Chang et al. 2023, "Learning to Generate Better Than Your LLM" (RLGF: PPO++, arXiv 2306.11816); starts from one's own
best answers: "ReST-RL: Achieving Accurate Code Reasoning of LLMs with Optimized Self-Training and Decoding", 2025
(arXiv 2508.19576).

    with probability beta a rollout is replaced by one whose first turn begins with a prefix of the guide's text, and
    the policy continues
    length of the prefix:  uniform over the text        or, with decay a, k of L characters with weight a^(20 k / L)
    source "solution": the demonstration's first turn   "best": the text of the best earlier rollout, if it scored
    `least` or more

Shapes: groups in and out, of the same sizes. The prefix is given, so it has no gradient; the rest is the policy's own
text. beta 0 changes nothing, not even the random stream. `state["best"]` maps a problem's id to (score, text).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from training.rl.group_transform import demonstration
from training.rl.rollout_services import RolloutServices
from training.types import Group, Rollout


def roll_in(
    groups: Sequence[Group],
    services: RolloutServices,
    state: dict,
    rng: np.random.Generator,
    *,
    beta: float = 0.2,
    source: Literal["solution", "best"] = "solution",
    decay: float = 1.0,
    least: float = 0.9,
) -> list[Group]:
    if not 0 <= beta <= 1:
        raise ValueError(f"roll_in: beta is {beta}; it is the share of rollouts that the guide begins, between 0 and 1")
    if not beta:
        return list(groups)
    best, out = state.setdefault("best", {}), []
    for group in groups:
        problem, text = group.rollouts[0].problem, ""
        if source == "solution":
            text = demonstration(problem)[0]
        elif problem.id in best:
            text = best[problem.id][1]
        rollouts = []
        for rollout in group.rollouts:
            if text and rng.random() < beta:
                opening = text[: _cut(len(text), decay, rng)]
                rollouts += services.play(problem, 1, group.id, opening=opening).rollouts if opening else (rollout,)
            else:
                rollouts.append(rollout)
        out.append(replace(group, rollouts=tuple(rollouts)))
        if source == "best":
            for rollout, x in zip(group.rollouts, group.rewards, strict=True):
                if x >= least and x > best.get(problem.id, (-np.inf, ""))[0]:
                    best[problem.id] = [float(x), _first_turn(rollout)]
    return out


def _cut(length: int, decay: float, rng: np.random.Generator) -> int:
    k = np.arange(length)
    weights = decay ** (20 * k / max(length, 1))
    return int(rng.choice(k, p=weights / weights.sum()))


def _first_turn(rollout: Rollout) -> str:
    return next((m.content for m in rollout.info.get("messages", ()) if m.role == "assistant"), "")
