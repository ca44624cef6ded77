"""Plan a trip day by day within a budget, along roads, to see what is wanted; any plan that keeps all rules is right.

Certificate: the plan is drawn by walking the roads, so one exists; from the text a search over all plans, the cheapest city
first, finds one on its own. Difficulty axes: cities, days, avoided."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from random import Random
from typing import Any

from synth.families._sample import Refused, item, parsed
from synth.families._wordings import Wordings
from synth.types import Problem, Quarantined, Split

LADDER = (
    {"cities": 3, "days": 2, "avoided": 0},
    {"cities": 4, "days": 3, "avoided": 0},
    {"cities": 5, "days": 4, "avoided": 1},
)
CERTIFICATE = ("a plan drawn by walking the roads", "search over all plans from the text")
NAMES: tuple[str, ...] = ("Oslo", "Lima", "Rome", "Cairo", "Quito", "Turin", "Bergen", "Delhi", "Porto", "Izmir")
SIGHTS: tuple[str, ...] = (
    "harbour",
    "ruins",
    "museum",
    "market",
    "garden",
    "tower",
    "bridge",
    "palace",
    "temple",
    "theatre",
    "cave",
    "lake",
)
WORDINGS = Wordings(
    "Cities: {cities}. Roads: {roads}. Plan {days} days from {start}: {rules}.",
    "Which {days} days from {start} keep to this: {rules}? Cities: {cities}. Roads: {roads}.",
    "A traveller in {start} has {days} days: {rules}. Cities: {cities}. Roads: {roads}. Make a plan.",
    "How can {days} days from {start} be spent? Rules: {rules}. Roads: {roads}. Cities: {cities}.",
    "Find a trip of {days} days that begins in {start}: {rules}. Cities: {cities}. Roads: {roads}.",
    answer="Prices are for a day. Answer in JSON: [[city, sight], ...], a new sight each day.",
    cities=r"\w+ \d+ \([a-z, ]+\)(?:, \w+ \d+ \([a-z, ]+\))*",
    roads=r"\w+-\w+(?:, \w+-\w+)*",
    start=r"\w+",
    rules=r"see the \w+, spend at most \d+(?:, avoid \w+)?",
)
_RULES = re.compile(r"see the (\w+), spend at most (\d+)(?:, avoid (\w+))?")
_CITY = re.compile(r"(\w+) (\d+) \(([^)]+)\)")
Spec = tuple[dict[str, tuple[int, list[str]]], list[tuple[str, str]], list[tuple[str, str]], str, int, str]


def trip_plans(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: a JSON list of [city, sight]. `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="trip_plans",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, cities: int, days: int, avoided: int) -> tuple[str, Spec]:
    while True:
        names, sights = rng.sample(NAMES, cities), rng.sample(SIGHTS, 2 * cities)
        about = {n: (rng.randint(2, 19) * 5, sights[2 * i : 2 * i + 2]) for i, n in enumerate(names)}
        pairs = [(a, b) for i, a in enumerate(names) for b in names[i + 1 :]]
        roads = rng.sample(pairs, min(len(pairs), cities))
        plan: list[tuple[str, str]] = []
        here = names[0]
        for _ in range(days):
            new = [s for s in about[here][1] if s not in [seen for _, seen in plan]]
            if not new:
                break
            plan.append((here, rng.choice(new)))
            here = rng.choice([b if a == here else a for a, b in roads if here in (a, b)] + [here])
        rest = [n for n in names if n not in [city for city, _ in plan]]
        if len(plan) < days or len({city for city, _ in plan}) < 2 or (avoided and not rest):
            continue
        spent = sum(about[city][0] for city, _ in plan)
        budget, avoid = spent + rng.randint(0, 3) * 5, rng.choice(rest) if avoided else ""
        form = f"{sorted(about.items())} {sorted(roads)} {plan[0][0]} {plan[-1][1]} {days} {budget} {avoid}"
        return form, (about, roads, plan, plan[-1][1], budget, avoid)


def pose(spec: Spec) -> dict[str, Any]:
    about, roads, plan, see, budget, avoid = spec
    listed = ", ".join(f"{n} {price} ({', '.join(sights)})" for n, (price, sights) in about.items())
    return {
        "prompt": WORDINGS.write(
            cities=listed,
            roads=", ".join(f"{a}-{b}" for a, b in roads),
            days=len(plan),
            start=plan[0][0],
            rules=f"see the {see}, spend at most {budget}{f', avoid {avoid}' if avoid else ''}",
        ),
        "answer": json.dumps(plan),
        "verifier": "trip_plan",
        "args": {
            "days": len(plan),
            "start": plan[0][0],
            "cities": {n: [price, list(sights)] for n, (price, sights) in about.items()},
            "roads": [list(r) for r in roads],
            "budget": budget,
            "see": see,
            **({"avoid": avoid} if avoid else {}),
        },
    }


def solve(question: str) -> str:
    read = WORDINGS.read(question)
    see, budget, avoid = parsed(_RULES, read["rules"]).groups()
    about = {n: (int(price), sights.split(", ")) for n, price, sights in _CITY.findall(read["cities"])}
    roads = [tuple(r.split("-")) for r in read["roads"].split(", ")]
    near = {n: {n, *(b if a == n else a for a, b in roads if n in (a, b))} - {avoid} for n in about}
    plan = _search(about, near, [], {read["start"]} - {avoid}, int(read["days"]), see, int(budget))
    if plan is None:
        raise Refused("impossible: no plan keeps all rules")
    return json.dumps(plan)


def _search(about, near, plan: list[list[str]], next_, days: int, see: str, left: int) -> list[list[str]] | None:
    """The first whole plan that goes on from this one, or None. left: what may still be spent."""
    if len(plan) == days:
        return plan if see in [sight for _, sight in plan] else None
    for city in sorted(next_, key=lambda n: about[n]):
        price, sights = about[city]
        for sight in sights if price <= left else ():
            if sight not in [seen for _, seen in plan] and (
                whole := _search(about, near, [*plan, [city, sight]], near[city], days, see, left - price)
            ):
                return whole
    return None
