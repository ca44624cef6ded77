"""A plan of days as JSON, [["Oslo", "harbour"], ["Lima", "ruins"]], which rules check: any plan that keeps them all is right.

The rules of "Planner-R1: Reward Shaping Enables Efficient Agentic RL with Smaller LLMs", 2025 (arXiv 2509.25779), whose plans
are those of TravelPlanner; these rules are a small world's of our own. As parts of the score:

    schema               a JSON list of [city, sight], every city a known one; without it nothing else is looked at
    commonsense_micro    share of: as many days as asked; begins in the start; each city the last one's neighbour or itself;
                         each sight one of its city's; no sight twice
    hard_micro           share of what the user wants: within the budget (a night's price in each city); the wanted sight seen; and, where
                         a city is to be avoided, avoided
    *_macro              1 where all of a kind are met      final_pass    1 where all of both are

`cities` is {name: [price, [sights]]}; `roads` are pairs of names.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from synth.types import Problem, Score, Scored, Unscorable
from synth.verify import UNPARSABLE

MAX_CHARS = 2000
FORM = "data"
KINDS = ("commonsense", "hard")
GIVES = ("schema", "commonsense_micro", "commonsense_macro", "hard_micro", "hard_macro", "final_pass")
EXAMPLE = {
    "prompt": "Plan 2 days from Oslo.",
    "answer": '[["Oslo", "harbour"], ["Lima", "ruins"]]',
    "args": {
        "days": 2,
        "start": "Oslo",
        "cities": {"Oslo": [40, ["harbour"]], "Lima": [25, ["ruins"]]},
        "roads": [["Oslo", "Lima"]],
        "budget": 70,
        "see": "ruins",
    },
}
Plan = list[tuple[str, str]]


def read(text: str) -> Plan | None:
    """The days; None for text that is no JSON list of two texts each."""
    try:
        days = json.loads(text) if len(text) <= MAX_CHARS else None
    except (ValueError, RecursionError):
        return None
    if not isinstance(days, list) or not days:
        return None
    if any(not isinstance(d, list) or len(d) != 2 or not all(isinstance(x, str) for x in d) for d in days):
        return None
    return [(city, sight) for city, sight in days]


def trip_plan(problem: Problem, answer: str, **world: Any) -> Score:
    """1 where every rule is kept. The reference is checked alike."""
    gold, given = read(problem.answer), read(answer)
    known = lambda plan: all(city in world["cities"] for city, _ in plan)  # noqa: E731
    if gold is None or not known(gold) or not all(all(kept) for kept in rules(gold, **world).values()):
        return Unscorable(reason=f"bad_reference: {problem.answer!r} breaks a rule")
    if given is None or not known(given):
        return Scored(value=0.0, parts={**UNPARSABLE.parts, "schema": 0.0})
    kept = rules(given, **world)
    parts = {f"{kind}_micro": sum(kept[kind]) / len(kept[kind]) for kind in KINDS}
    parts |= {f"{kind}_macro": float(all(kept[kind])) for kind in KINDS}
    passed = float(all(parts[f"{kind}_macro"] for kind in KINDS))
    return Scored(value=passed, parts={"parsed": 1.0, "schema": 1.0, **parts, "final_pass": passed})


def rules(
    plan: Plan,
    *,
    days: int,
    start: str,
    cities: Mapping[str, Sequence[Any]],
    roads: Sequence[Sequence[str]],
    budget: int,
    see: str,
    avoid: str = "",
) -> dict[str, list[bool]]:
    """Kind -> whether each rule of it is kept, for a plan of known cities."""
    names, sights = [city for city, _ in plan], [sight for _, sight in plan]
    joined = {frozenset(r) for r in roads}
    common = [
        len(plan) == days,
        names[0] == start,
        all(a == b or frozenset((a, b)) in joined for a, b in zip(names, names[1:], strict=False)),
        all(sight in cities[city][1] for city, sight in plan),
        len(set(sights)) == len(sights),
    ]
    hard = [sum(cities[city][0] for city in names) <= budget, see in sights]
    return {"commonsense": common, "hard": [*hard, avoid not in names] if avoid else hard}
