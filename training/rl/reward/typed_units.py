"""Reasoning made of units of known types, rewarded for its form, variety and length in addition to the answer.

"Think Socially via Cognitive Reasoning", 2025 (CogFlow, arXiv 2509.22546); read from its abstract: names of units and
weights are our reading.

    R = response r + flow q + diversity v            if the answer parses into units, else 0
    q = [the first unit is `first`] / 2 + [no unit occurs twice in a row] / 2
    v = (different types) / (units) where low <= units <= high, else 0

Shapes: one reward per rollout in (replaced) and out; unscorable stays NaN. A unit is <type>text</type> with a type of
`types`; the last turn of the model parses if it has only units before <answer>, and at least one. The
learned model that compares flows is left out: q is a rule.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from training.types import Group, Rewards, Rollout

_UNIT = re.compile(r"\s*<([a-z]{1,20})>([^<]*)</\1>")


def typed_units(
    groups: Sequence[Group],
    rewards: Rewards,
    state: dict,
    rng: np.random.Generator,
    *,
    types: tuple = ("observation", "attribution", "motivation", "regulation", "efficacy", "behaviour"),
    first: str = "observation",
    low: int = 2,
    high: int = 6,
    response: float = 1.0,
    flow: float = 1.0,
    diversity: float = 0.2,
) -> Rewards:
    if not 1 <= low <= high:
        raise ValueError(f"typed_units: the band from {low} to {high} units must begin at 1 or more")
    out = []
    for group, r in zip(groups, rewards, strict=True):
        paid = []
        for rollout, x in zip(group.rollouts, r, strict=True):
            written = units(last_turn(rollout), types)
            order = (
                float(written[:1] == [first]) + float(all(a != b for a, b in zip(written, written[1:], strict=False)))
            ) / 2
            variety = len(set(written)) / len(written) if low <= len(written) <= high else 0.0
            paid.append(response * x + flow * order + diversity * variety if written else 0.0)
        out.append(np.where(np.isnan(r), np.nan, paid))
    return out


def units(text: str, types: Sequence[str]) -> list[str]:
    """The types of the units before the answer in order; none if there is other text."""
    before, at, spans = text.partition("<answer>")[0], 0, []
    while unit := _UNIT.match(before, at):
        spans.append(unit[1])
        at = unit.end()
    return spans if not before[at:].strip() and set(spans) <= set(types) else []


def last_turn(rollout: Rollout) -> str:
    """The last turn of the model."""
    return next((m.content for m in reversed(rollout.info.get("messages", ())) if m.role == "assistant"), rollout.text)
