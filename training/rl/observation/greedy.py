"""Each prompt's answer at temperature 0, as `group.greedy`: never trained on.

Li et al. 2023, "ReMax: A Simple, Effective, and Efficient Reinforcement Learning Method for Aligning Large Language
Models" (arXiv 2310.10505), whose baseline is its reward.

The prompt is that of the problem as it was drawn, without help from a group transform. The cost is one more rollout per
group; it is scored like the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from synth.types import Problem
from training.rollout.play import Player
from training.types import Group


def greedy(player: Player, groups: Sequence[Group], problems: Sequence[Problem], seed: tuple[Any, ...]) -> list[Group]:
    coldest = replace(player, sampling=replace(player.sampling, temperature=0.0))
    played = coldest.play(problems, 1, *seed, "greedy")
    return [replace(g, greedy=replace(one.rollouts[0], group=g.id)) for g, one in zip(groups, played, strict=True)]
