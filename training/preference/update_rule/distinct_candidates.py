"""Candidates that differ: where all rollouts of a prompt say the same, all but the first are drawn again, hotter each time.

Our reading of the candidates of ProPerAssistant (2025, arXiv 2509.21730; read from the abstract): several possible actions of one moment are
rated, and a policy that has become sure of one would never hear what another is worth.

    temperature of try t = heat^t * the temperature of sampling, until the texts differ or `tries` are made

Costs up to `tries` times the rollouts of such prompts. Applies to pairs that are sampled while the policy learns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from synth.types import Problem
from training.preference.update_rule import UpdateRule
from training.rollout.play import Player
from training.types import Group


class distinct_candidates(UpdateRule):
    def __init__(self, *, tries: int = 3, heat: float = 2.0) -> None:
        if tries < 1 or heat <= 1:
            raise ValueError(
                f"distinct_candidates: tries is {tries} and heat {heat}: draw again at least once, and hotter (above 1)"
            )
        self.tries, self.heat = tries, heat

    def played(
        self, problems: Sequence[Problem], groups: Sequence[Group], player: Player, seed: Sequence[Any]
    ) -> list[Group]:
        groups = list(groups)
        for t in range(1, self.tries + 1):
            same = [i for i, g in enumerate(groups) if len({r.ids.tobytes() for r in g.rollouts}) == 1]
            if not same:
                break
            hot = replace(player.sampling, temperature=player.sampling.temperature * self.heat**t)
            samples = len(groups[same[0]].rollouts)
            again = replace(player, sampling=hot).play([problems[i] for i in same], samples, *seed, "again", t)
            for i, new in zip(same, again, strict=True):
                rest = (replace(r, group=groups[i].id) for r in new.rollouts[1:])
                groups[i] = replace(groups[i], rollouts=(groups[i].rollouts[0], *rest))
        return groups
