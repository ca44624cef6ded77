"""In how few steps do two do it together, when the partner's rule is known? They meet in a ring of rooms, serve the orders of a kitchen, or
play cards that only the partner sees.

Questions about games for two with an exact answer, and the games themselves: env "team" has them played with that partner (LLM-Coordination,
Agashe et al. 2023, arXiv 2310.03903; the games are our own small ones after its kinds). Certificate: breadth-first search over states of the
game, against counting on what the text says (rooms apart, a table over the tasks that are left, the hints until the cards are known).
Of SPREAD problems one is taken, each of their answers equally likely. Difficulty axes: rooms, orders, cards, of which a problem uses one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from random import Random
from typing import Any

from synth.families._sample import Refused, item
from synth.families._spread import by_answer
from synth.families._wordings import Wordings, read_kind
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
SPREAD = 3
_RING = "from 1 up and then 1 again"
TOLD = {  # game -> a problem's normal form
    "meet": f"A ring of {{rooms}} rooms, {_RING}. You are in room {{you}}, your partner in room {{partner}}. Each step both go one up, one "
    "down or stay. {rule}. After how few steps can you be in one room?",
    "kitchen": "Orders, to be served as listed: {orders}. Each step you and your partner both do the next task of an order or wait; in the same order it is "
    "done once. {rule}. In how few steps is all served?",
    "hints": "Your cards, which only your partner sees: {cards}, 1 to {size} in some order. Play 1 to {goal}, lowest "
    "first. Each step you play a card or ask. {rule}. In how few steps can it be done, playing only what you then know?",
}
_GO = "Each step both go one up, one down or stay."
_TASK = "Each step both of you do an order's next task or wait; the same task is done once."
_PLAY = "Each step you play a card or ask."
_NUMBER = "Answer with one number."
_RULE = "[A-Z][A-Za-z, ]+"
WORDINGS = {
    "meet": Wordings(
        f"A ring of {{rooms}} rooms, {_RING}. You are in room {{you}}, your partner in room {{partner}}. {_GO} {{rule}}. After how few steps can you be in one room?",
        f"In a ring of {{rooms}} rooms, {_RING}, you are in room {{you}} and your partner in room {{partner}}. {{rule}}. {_GO} What is the fewest number of steps until you are in one room?",
        f"How soon can two be in one room of a ring of {{rooms}} rooms, {_RING}? You are in room {{you}}, your partner in room {{partner}}. {_GO} {{rule}}.",
        f"You are in room {{you}} of a ring of {{rooms}} rooms, {_RING}, and your partner in room {{partner}}. {_GO} {{rule}}. How many steps do you need at least to be in one room?",
        f"Two want to meet in a ring of {{rooms}} rooms, {_RING}. You are in room {{you}}, your partner in room {{partner}}. {{rule}}. {_GO} After how few steps can it be?",
        answer=_NUMBER,
        rule=_RULE,
    ),
    "kitchen": Wordings(
        f"Orders, to be served as listed: {{orders}}. {_TASK} {{rule}}. In how few steps is all served?",
        f"In how few steps can all be served? Orders, to be served as listed: {{orders}}. {_TASK} {{rule}}.",
        f"A kitchen has orders, to be served as listed: {{orders}}. {{rule}}. {_TASK} How soon is all served?",
        f"You and your partner cook what is served as listed: {{orders}}. {_TASK} {{rule}}. In how few steps?",
        f"{_TASK} {{rule}}. The orders are served as listed: {{orders}}. What is the fewest number of steps?",
        answer=_NUMBER,
        orders="[a-z ;]+",
        rule=_RULE,
    ),
    "hints": Wordings(
        f"Your cards, which only your partner sees: {{cards}}, 1 to {{size}} in some order. Play 1 to {{goal}}, lowest first. {_PLAY} {{rule}}. In how few steps can it be done, playing only what you then know?",
        f"Your hand, which only your partner sees: {{cards}}, 1 to {{size}} in some order. {_PLAY} {{rule}}. How soon can you play 1 to {{goal}}, lowest first, only cards that you know?",
        f"In how few steps can you play 1 to {{goal}}, lowest first, only cards that you know? {_PLAY} {{rule}}. Your cards, which only your partner sees: {{cards}}, 1 to {{size}} in some order.",
        f"Play 1 to {{goal}}, lowest first, only cards that you know. Your cards, which only your partner sees: {{cards}}, 1 to {{size}} in some order. {_PLAY} {{rule}}. How many steps does it take?",
        f"{_PLAY} {{rule}}. You hold cards that only your partner sees: {{cards}}, 1 to {{size}} in some order. What is the fewest number of steps to play 1 to {{goal}}, lowest first, only cards that you know?",
        answer=_NUMBER,
        cards="[0-9 ]+",
        rule=_RULE,
    ),
}
Spec = tuple[str, dict[str, str]]  # the game, and the fields of its text


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

    def drawn(rng: Random, **sizes: int) -> tuple[str, Spec]:
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


def draw(rng: Random, *, rules: Sequence[str] = tuple(RULES), **sizes: int) -> tuple[str, Spec]:
    game = rng.choice(sorted({RULES[rule] for rule in rules}))

    def once(rng: Random) -> tuple[int, dict[str, str]]:
        fields = _fields(rng, game, rules, **sizes)
        return len(_played(TOLD[game].format(**fields))), fields

    fields = by_answer(rng, once, SPREAD)
    return TOLD[game].format(**fields), (game, fields)


def _fields(rng: Random, game: str, rules: Sequence[str], *, rooms: int, orders: int, cards: int) -> dict[str, str]:
    """What a random text of the game says, of one of these partners."""
    rule = {"rule": GAMES[game].SAID[rng.choice([rule for rule in rules if RULES[rule] == game])]}
    if game == "meet":
        you, partner = rng.sample(range(1, rooms + 1), 2)
        return {"rooms": str(rooms), "you": str(you), "partner": str(partner), **rule}
    if game == "kitchen":
        tasks = [" ".join(rng.choices(("chop", "cook"), k=rng.randint(1, 3))) for _ in range(orders)]
        dishes = zip(rng.sample(DISHES, orders), tasks, strict=True)
        return {"orders": "; ".join(f"{dish} {x} serve" for dish, x in dishes), **rule}
    held = " ".join(map(str, rng.sample(range(1, cards + 1), cards)))
    return {"cards": held, "size": str(cards), "goal": str(rng.randint(2, cards)), **rule}


def _played(question: str) -> list[str]:
    known = read(question)
    ways = best(GAMES[known[0]], known[1], known[2]) if known else None
    if ways is None:
        raise Refused(f"impossible: nothing ends {question[:80]!r}")
    return ways


def pose(spec: Spec) -> dict[str, Any]:
    game, fields = spec
    question = WORDINGS[game].write(**fields)
    return {"prompt": question, "answer": str(len(_played(question))), "verifier": "number"}


def solve(question: str) -> str:
    game, fields = read_kind(WORDINGS, question)
    return str({"meet": _apart, "kitchen": _served, "hints": _named}[game](fields))


def _apart(told: Mapping[str, str]) -> int:
    """How far apart they are both ways round, and how much nearer a step brings them."""
    rooms = int(told["rooms"])
    up = (int(told["partner"]) - int(told["you"])) % rooms
    down, statement = rooms - up, told["rule"]
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


def _served(told: Mapping[str, str]) -> int:
    """A table over how many tasks of each order are left."""
    lists = [x.split()[1:] for x in told["orders"].split("; ")]
    statement = told["rule"]

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


def _named(told: Mapping[str, str]) -> int:
    """Hints until what must be played is known, each card of all but one, or those that are played; and the plays."""
    cards, goal, statement = [int(x) for x in told["cards"].split()], int(told["goal"]), told["rule"]
    most = len(cards) - 1
    if statement == Hints.SAID["next"]:
        return goal + min(goal, most)
    if statement == Hints.SAID["top"]:
        return goal + most
    if statement not in (Hints.SAID["left"], Hints.SAID["right"]):
        raise Refused(f"roundtrip: no partner does {statement!r}")
    row = cards if statement == Hints.SAID["left"] else cards[::-1]
    return goal + min(most, max(row.index(card) for card in range(1, goal + 1)) + 1)
