"""Small games for two with a partner who keeps to a rule, and their best play by search: what the family teamwork and the environment team
share. A game tells its start as a text, and says from a state what you may do, what follows, and what you see."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Protocol

from synth.verify._told import told

State = tuple[Any, ...]


class Game(Protocol):
    SAID: dict[str, str]  # rule -> the sentence about it
    TEXT: re.Pattern[str]  # a whole question in any wording; the group "rule" is the sentence

    def start(self, match: re.Match[str]) -> State: ...
    def acts(self, state: State) -> Sequence[str]: ...
    def sure(self, state: State, act: str) -> bool: ...
    def moved(self, state: State, rule: str, act: str) -> State | None: ...
    def done(self, state: State) -> bool: ...
    def shown(self, state: State, rule: str) -> str: ...


class Meet:
    """A ring of rooms in which two want to be in the same one. A state: rooms, where you are, where the partner is, your last step."""

    SAID = {
        "up": "Your partner goes one up each time",
        "down": "Your partner goes one down each time",
        "stays": "Your partner stays",
        "opposes": "Your partner takes the opposite of your last step, and stays at first",
    }
    TEXT = told(SAID, r"ring of (\d+) rooms", r"[Yy]ou are in room (\d+)", r"partner in room (\d+)")
    STEPS = {"up": 1, "stay": 0, "down": -1}

    def start(self, match: re.Match[str]) -> State:
        return int(match[1]), int(match[2]), int(match[3]), "stay"

    def acts(self, state: State) -> Sequence[str]:
        return tuple(self.STEPS)

    def sure(self, state: State, act: str) -> bool:
        return True

    def moved(self, state: State, rule: str, act: str) -> State:
        rooms, you, partner, last = state
        goes = {"up": 1, "down": -1, "stays": 0, "opposes": -self.STEPS[last]}[rule]
        return rooms, (you + self.STEPS[act] - 1) % rooms + 1, (partner + goes - 1) % rooms + 1, act

    def done(self, state: State) -> bool:
        return state[1] == state[2]

    def shown(self, state: State, rule: str) -> str:
        return f"A ring of {state[0]} rooms. You: {state[1]}. Partner: {state[2]}."


class Kitchen:
    """Orders that are served as listed, each with its tasks. A state: (order, tasks that are left) of those not served."""

    SAID = {
        "first": "Your partner takes the first order that can go on",
        "last": "Your partner takes the last order that can go on",
        "cooks": "Your partner takes the first order whose next task is cook",
        "waits": "Your partner waits",
    }
    TEXT = told(SAID, r"served as listed: ([a-z ;]+)\.")

    def start(self, match: re.Match[str]) -> State:
        return tuple((name, tuple(tasks)) for name, *tasks in (x.split() for x in match[1].split("; ")))

    def acts(self, state: State) -> Sequence[str]:
        return (*self._open(state), "wait")

    @staticmethod
    def _open(state: State) -> list[str]:
        return [name for i, (name, tasks) in enumerate(state) if tasks[0] != "serve" or i == 0]

    def sure(self, state: State, act: str) -> bool:
        return True

    def moved(self, state: State, rule: str, act: str) -> State:
        can = self._open(state)
        wants = {
            "first": can[:1],
            "last": can[-1:],
            "cooks": [name for name, tasks in state if tasks[0] == "cook"][:1],
            "waits": [],
        }
        after = ((name, tasks[1:] if name in (act, *wants[rule]) else tasks) for name, tasks in state)
        return tuple((name, tasks) for name, tasks in after if tasks)

    def done(self, state: State) -> bool:
        return not state

    def shown(self, state: State, rule: str) -> str:
        return f"Orders: {'; '.join(' '.join((name, *tasks)) for name, tasks in state)}."


class Hints:
    """Cards that only the partner sees, of which some must be played from 1 on. A state: the cards, how many must be played, how many are, the
    places that the partner has pointed at, the last of them (0: none since the last play)."""

    SAID = {
        "next": "Asked, your partner points at your lowest card",
        "top": "Asked, your partner points at your highest card not pointed at yet",
        "left": "Asked, your partner names your first card from the left not named yet",
        "right": "Asked, your partner names your first card from the right not named yet",
    }
    TEXT = told(SAID, r"partner sees: ([\d ]+), 1 to (\d+) in some order", r"[Pp]lay 1 to (\d+), lowest first")

    def start(self, match: re.Match[str]) -> State:
        return tuple(map(int, match[1].split())), int(match[3]), 0, frozenset(), 0

    def acts(self, state: State) -> Sequence[str]:
        cards, _, played, _, _ = state
        return (*(str(i) for i, card in enumerate(cards, 1) if card > played), "ask")

    def sure(self, state: State, act: str) -> bool:
        """What the partner pointed at is known, and so is a last card of which nothing else is left."""
        cards, _, played, told, _ = state
        if act == "ask":
            return True
        unknown = [i for i, card in enumerate(cards, 1) if card > played and i not in told]
        return cards[int(act) - 1] == played + 1 and (int(act) in told or len(unknown) == 1)

    def moved(self, state: State, rule: str, act: str) -> State | None:
        cards, goal, played, told, _ = state
        if act != "ask":
            return (cards, goal, played + 1, told, 0) if cards[int(act) - 1] == played + 1 else None
        held = [i for i, card in enumerate(cards, 1) if card > played]
        new = [i for i in held if i not in told] or held
        place = {
            "next": min(held, key=lambda i: cards[i - 1]),
            "top": max(new, key=lambda i: cards[i - 1]),
            "left": new[0],
            "right": new[-1],
        }[rule]
        return cards, goal, played, told | {place}, place

    def done(self, state: State) -> bool:
        return state[2] == state[1]

    def shown(self, state: State, rule: str) -> str:
        cards, goal, played, _, place = state
        held = " ".join(str(i) for i, card in enumerate(cards, 1) if card > played)
        says = f"says: place {place} is {cards[place - 1]}" if rule in ("left", "right") else f"points at place {place}"
        hint = f" Your partner {says}." if place else ""
        return f"Cards 1 to {len(cards)}, of which 1 to {goal} are played, lowest first. Played: {played}. You hold places {held}.{hint}"


GAMES: dict[str, Game] = {"meet": Meet(), "kitchen": Kitchen(), "hints": Hints()}
RULES = {rule: name for name, game in GAMES.items() for rule in game.SAID}  # rule -> its game


def read(question: str) -> tuple[str, State, str] | None:
    """(game, start, rule) that a question tells; None where it tells none."""
    for name, game in GAMES.items():
        rules = {rule_text: rule for rule, rule_text in game.SAID.items()}
        if (match := game.TEXT.fullmatch(question)) and match["rule"] in rules:
            return name, game.start(match), rules[match["rule"]]
    return None


def best(game: Game, state: State, rule: str) -> list[str] | None:
    """The fewest acts that end the game, by breadth-first search over what is surely right; None where there are none."""
    ways: dict[State, list[str]] = {state: []}
    for now in (queue := [state]):
        if game.done(now):
            return ways[now]
        for act in game.acts(now):
            after = game.moved(now, rule, act) if game.sure(now, act) else None
            if after is not None and after not in ways:
                ways[after] = [*ways[now], act]
                queue.append(after)
    return None
