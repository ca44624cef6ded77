"""Pays a second thought by what it does to the answer.

Wan et al. 2025, "SRPO: Enhancing Multimodal LLM Reasoning via Reflection-Aware Reinforcement Learning": a reward for the
task and one for the reflection.

    R = accuracy x + form f + effect + there b + alpha f_len
    effect      wrong -> right +0.5, right -> right +0.25, wrong -> wrong 0, right -> wrong -0.25
    f_len       exp(-|L - target| / (longest - target)), L the words of the reflection; 0 without one

x is the reward so far (the last answer's), f and b the part `reflected`: here one form has both. The paper measures L
of the whole response against twice the first solution; here it is of the reflection, in words.
Shapes: one reward per rollout in and out; unscorable stays NaN. effect and f_len are 0 without a reflection.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from training.rl.reward import part
from training.types import Group, Rewards

RENAMED = {"mended": "corrected"}  # former knobs -> what to write now
READS = ("first", "second", "reflected", "reflection_words")


def reflection(
    groups: Sequence[Group],
    rewards: Rewards,
    state: dict,
    rng: np.random.Generator,
    *,
    accuracy: float = 0.5,
    form: float = 0.5,
    corrected: float = 0.5,
    kept: float = 0.25,
    spoilt: float = -0.25,
    there: float = 0.25,
    alpha: float = 0.1,
    target: float = 3.0,
    longest: float = 6.0,
) -> Rewards:
    if longest <= target:
        raise ValueError(f"reflection: longest is {longest} and target {target}: the longest must be more words")
    out = []
    for group, r in zip(groups, rewards, strict=True):
        first, second, thought = (part(group, r, name) >= 1.0 for name in ("first", "second", "reflected"))
        effect = np.where(second, np.where(first, kept, corrected), np.where(first, spoilt, 0.0))
        length = np.exp(-np.abs(part(group, r, "reflection_words") - target) / (longest - target))
        out.append(accuracy * r + np.where(thought, form + effect + there + alpha * length, 0.0))
    return out
