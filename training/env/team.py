"""Two meet in a ring of rooms, serve a kitchen's orders, or play cards that the partner alone sees: problems of the family teamwork with env "team".

LLM-Coordination, Agashe et al. 2023, "LLM-Coordination: Evaluating and Analyzing Multi-agent Coordination Abilities in Large
Language Models" (arXiv 2310.03903): games of pure coordination, small enough that the best play with each partner is known by search. A turn is
<act>up</act>, an order's name, a place of a card, and so on; the state is told after each. The score is the fewest steps over those taken, at most
1, and 0 where the game is not over after `slack` times the fewest, or a wrong card was played. The fewest are those of who knows the partner's
rule and plays no card by luck. `told` false takes the sentence about the rule out, and `partners` puts others in the place of the problems'
own, at most one a game: name in it rules that training has not seen, and what is measured is zero-shot coordination. An act that is
not open is refused with those that are, and no time passes. Parts: `steps`, `fewest`, `illegal`, `finished`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from synth.types import Message, Problem, Score, Scored
from synth.verify._team import GAMES, RULES, best, read
from training.env import system

TOOLS = "act"
BUDGETS = ("slack",)
ENDS = "the game is won; a wrong card; more than `slack` times the fewest steps; as many refusals as steps may be taken"
GIVES = ("steps", "fewest", "illegal", "finished")
_ACT = re.compile(r"<act>\s*(\w+)\s*</act>")


@dataclass(frozen=True)
class Team:
    slack: float
    partners: Mapping[str, str]  # game -> rule
    told: bool
    instructions: str

    def start(self, problem: Problem, tools: Mapping[str, Any]) -> tuple[dict, list[Message]]:
        known = read(problem.question)
        if known is None:
            raise ValueError(
                f"problem {problem.id} plays in the environment 'team', but its question tells no game for two: those of the family teamwork do"
            )
        name, now, rule = known
        own, rule = rule, self.partners.get(name, rule)
        fewest = len(best(GAMES[name], now, rule) or ())
        state = {
            "game": name,
            "now": now,
            "rule": rule,
            "fewest": fewest,
            "limit": int(self.slack * fewest),
            "steps": 0,
            "illegal": 0,
            "calls": 0,
        }
        hint = f"{GAMES[name].SAID[rule]}. " if self.told and rule == own else ""
        prompt = f"{hint}{GAMES[name].shown(now, rule)} You may: {' '.join(GAMES[name].acts(now))}."
        return state, [*system(self.instructions), *problem.prompt[:-1], Message(role="user", content=prompt)]

    def step(self, state: dict, text: str) -> tuple[list[Message], bool, Score | None]:
        game, match = GAMES[state["game"]], _ACT.search(text)
        state["calls"] += 1
        if match is None or match[1] not in game.acts(state["now"]):
            state["illegal"] += 1
            if state["illegal"] >= state["limit"]:
                return [], True, _ended(state, 0.0)
            return [Message(role="user", content=f"You may: {' '.join(game.acts(state['now']))}.")], False, None
        state["steps"] += 1
        after = game.moved(state["now"], state["rule"], match[1])
        if after is not None and game.done(after):
            return [], True, _ended(state, min(1.0, state["fewest"] / state["steps"]))
        if after is None or state["steps"] >= state["limit"]:
            return [], True, _ended(state, 0.0)
        state["now"] = after
        return [Message(role="user", content=game.shown(after, state["rule"]))], False, None


def _ended(state: Mapping[str, Any], value: float) -> Scored:
    parts = {name: float(state[name]) for name in ("steps", "fewest", "illegal")}
    return Scored(value=value, parts={**parts, "finished": float(value > 0)})


def team(*, slack: float = 2.0, partners: Sequence[str] = (), told: bool = True, instructions: str = "") -> Team:
    """At most `slack` times the fewest steps; `partners` are rules of the family teamwork. Raises ValueError for too little slack, unknown
    rules, and two rules of one game."""
    if slack < 1:
        raise ValueError(f"team: slack is {slack}: the fewest steps must be allowed, so at least 1")
    if not set(partners) <= set(RULES) or len({RULES[x] for x in partners}) < len(partners):
        raise ValueError(f"team: partners {list(partners)}: name at most one rule a game of {', '.join(RULES)}")
    return Team(slack, {RULES[x]: x for x in partners}, told, instructions)
