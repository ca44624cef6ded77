"""In how few steps do two do it together, when the partner's rule is known? They meet in a ring of rooms, serve the orders of a kitchen, or
play cards that only the partner sees.

Questions about games for two with an exact answer, and the games themselves: env "team" has them played with that partner (LLM-Coordination,
Agashe et al. 2023, arXiv 2310.03903; the games are our own small ones after its kinds). Certificate: breadth-first search over states of the
game, against counting on what the text says (rooms apart, a table over the tasks that are left, the hints until the cards are known).
Difficulty axes: rooms, orders, cards, of which a problem uses one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from random import Random
from typing import Any

from synth.families._sample import Refused, item
from synth.types import Problem, Quarantined, Split
from synth.verify._team import GAMES, RULES, Hints, Kitchen, Meet, best, read

LADDER = (
    {"rooms": 9, "orders": 2, "cards": 4},
    {"rooms": 13, "orders": 3, "cards": 5},
    {"rooms": 17, "orders": 4, "cards": 6},
    {"rooms": 21, "orders": 5, "cards": 7},
)
CERTIFICATE = ("breadth-first search", "counting on the text")
DISHES = ("soup", "salad", "stew", "pie", "toast", "cake")


def teamwork(
    seed: int,
    split: Split,
    index: int,
    *,
    levels: Sequence[int] = (1,),
    rules: Sequence[str] = (
        "up",
        "down",
        "stays",
        "opposes",
        "first",
        "last",
        "cooks",
        "waits",
        "next",
        "top",
        "left",
        "right",
    ),
    env: str = "single",
) -> Problem | Quarantined:
    """Problem `index` of a split: a number of steps. `levels` are the rungs of the ladder to draw from; `rules` are the partners, and with them
    the games: up, down, stays, opposes (meet), first, last, cooks, waits (kitchen), next, top, left, right (hints). Env "team" has it played in
    turns (training/env/team.py), with the best ones as its demonstration. Raises ValueError for no or unknown rules."""
    if not rules or not set(rules) <= set(RULES):
        raise ValueError(f"teamwork: rules {list(rules)}: name some of {', '.join(RULES)}")

    def drawn(rng: Random, **sizes: int) -> tuple[str, str]:
        return draw(rng, rules=rules, **sizes)

    problem = item(
        seed,
        split,
        index,
        levels,
        family="teamwork",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=drawn,
        pose=pose,
        solve=solve,
        env=env,
    )
    if not isinstance(problem, Problem) or env != "team":
        return problem
    turns = [f"<act>{act}</act>" for act in _played(problem.question)]
    return replace(problem, lineage={**problem.lineage, "demonstration": turns})


def draw(rng: Random, *, rooms: int, orders: int, cards: int, rules: Sequence[str] = tuple(RULES)) -> tuple[str, str]:
    """A question, which is its own normal form."""
    game = rng.choice(sorted({RULES[rule] for rule in rules}))
    statement = GAMES[game].SAID[rng.choice([rule for rule in rules if RULES[rule] == game])]
    if game == "meet":
        you, partner = rng.sample(range(1, rooms + 1), 2)
        text = (
            f"A ring of {rooms} rooms, from 1 up and then 1 again. You are in room {you}, your partner in room {partner}. Each step both go one up, one "
            f"down or stay. {statement}. After how few steps can you be in one room?"
        )
    elif game == "kitchen":
        tasks = [" ".join(rng.choices(("chop", "cook"), k=rng.randint(1, 3))) for _ in range(orders)]
        listed = "; ".join(f"{dish} {x} serve" for dish, x in zip(rng.sample(DISHES, orders), tasks, strict=True))
        text = (
            f"Orders, to be served as listed: {listed}. Each step you and your partner both do the next task of an order or wait; in the same order it is "
            f"done once. {statement}. In how few steps is all served?"
        )
    else:
        held = rng.sample(range(1, cards + 1), cards)
        text = (
            f"Your cards, which only your partner sees: {' '.join(map(str, held))}, 1 to {cards} in some order. Play 1 to {rng.randint(2, cards)}, lowest "
            f"first. Each step you play a card or ask. {statement}. In how few steps can it be done, playing only what you then know?"
        )
    return text, text


def _played(question: str) -> list[str]:
    known = read(question)
    ways = best(GAMES[known[0]], known[1], known[2]) if known else None
    if ways is None:
        raise Refused(f"impossible: nothing ends {question[:80]!r}")
    return ways


def pose(text: str) -> dict[str, Any]:
    return {"prompt": text, "answer": str(len(_played(text))), "verifier": "number"}


def solve(question: str) -> str:
    for pattern, count in ((Meet.TEXT, _apart), (Kitchen.TEXT, _served), (Hints.TEXT, _named)):
        if match := pattern.fullmatch(question):
            return str(count(match))
    raise Refused(f"roundtrip: no game is told by {question[:80]!r}")


def _apart(match: re.Match[str]) -> int:
    """How far apart they are both ways round, and how much nearer a step brings them."""
    rooms, up = int(match[1]), (int(match[3]) - int(match[2])) % int(match[1])
    down, statement = rooms - up, match["rule"]
    if statement == Meet.SAID["stays"]:
        return min(up, down)
    if statement == Meet.SAID["up"]:  # who goes down meets him in half of that way
        return -(-down // 2)
    if statement == Meet.SAID["down"]:
        return -(-up // 2)
    if (
        statement == Meet.SAID["opposes"]
    ):  # each of your steps brings you two nearer, but the last brings one, or none where you stay
        return min(up, down) // 2 + 1
    raise Refused(f"roundtrip: no partner does {statement!r}")


def _served(match: re.Match[str]) -> int:
    """A table over how many tasks of each order are left."""
    lists = [x.split()[1:] for x in match[1].split("; ")]
    statement = match["rule"]

    @cache
    def steps(left: tuple[int, ...]) -> int:
        if not any(left):
            return 0
        head = next(i for i, n in enumerate(left) if n)
        can = [i for i, n in enumerate(left) if n > 1 or i == head]
        if statement == Kitchen.SAID["first"]:
            his = head
        elif statement == Kitchen.SAID["last"]:
            his = can[-1]
        elif statement == Kitchen.SAID["cooks"]:
            his = next((i for i in can if lists[i][-left[i]] == "cook"), -1)
        elif statement == Kitchen.SAID["waits"]:
            his = -1
        else:
            raise Refused(f"roundtrip: no partner does {statement!r}")
        return 1 + min(steps(tuple(n - (i in (mine, his)) for i, n in enumerate(left))) for mine in can)

    return steps(tuple(len(x) for x in lists))


def _named(match: re.Match[str]) -> int:
    """Hints until what must be played is known, each card of all but one, or those that are played; and the plays."""
    cards, goal, statement = [int(x) for x in match[1].split()], int(match[3]), match["rule"]
    most = len(cards) - 1
    if statement == Hints.SAID["next"]:
        return goal + min(goal, most)
    if statement == Hints.SAID["top"]:
        return goal + most
    if statement not in (Hints.SAID["left"], Hints.SAID["right"]):
        raise Refused(f"roundtrip: no partner does {statement!r}")
    row = cards if statement == Hints.SAID["left"] else cards[::-1]
    return goal + min(most, max(row.index(card) for card in range(1, goal + 1)) + 1)
