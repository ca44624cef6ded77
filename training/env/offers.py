"""Two share coins that melt, by offers in turn, with a partner who keeps to a rule: problems of the family alternating_offers with env "offers".

Recon, Zhou et al. 2025, "Reasoning Like an Economist: Post-Training on Economic Problems Induces Strategic Generalization in LLMs" (arXiv
2506.00577), measures games that training does not play; alternating offers with finitely many rounds (Rubinstein 1982; Stahl 1972) are our
choice, since their equilibrium is known exactly. A turn is <offer>N</offer>, N coins for the other, where it is yours to offer, else
<reply>accept</reply> or <reply>refuse</reply>; text before it is free. The score is what you got over the most that can be had from this partner, in
[0, 1]. Partners, of whom a problem gets one by its id:

    exact   the equilibrium: offers K_{t+1} in round t, and accepts no less        low   accepts likewise, and offers half of that
    fair    offers half of the coins, and accepts no less than half

Another turn, or an offer of more coins than there are, ends the game with 0. Parts: `gained` and `best` (coins), `agreed`, `rounds` (begun), and
`gap`, the distance of your first offer from K_{t+1} over the coins of that round, where you made one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from synth.types import Message, Problem, Score, Scored, seed_for
from synth.verify._offers import PARTNERS, best, read
from training.env import system

TOOLS = "offer, reply"
BUDGETS = ()
ENDS = "an offer is accepted; the last one is refused; a turn that is neither offer nor reply"
GIVES = ("gained", "best", "agreed", "rounds", "gap")
_TURN = re.compile(r"<(offer|reply)>\s*(\d{1,6}|accept|refuse)\s*</\1>")


@dataclass(frozen=True)
class Offers:
    partners: tuple[str, ...]
    instructions: str

    def start(self, problem: Problem, tools: Mapping[str, Any]) -> tuple[dict, list[Message]]:
        known = read(problem.question)
        if known is None:
            raise ValueError(
                f"problem {problem.id} plays in the environment 'offers', but its question shares no coins: those of the family alternating_offers do"
            )
        pie = known[0]
        partner = self.partners[seed_for(0, "offers", problem.id) % len(self.partners)]
        state = {"pie": pie, "partner": partner, "round": 1, "gap": None, "calls": 0}
        told = (
            f"{pie.coins} coins, {pie.rounds} round{'s' * (pie.rounds > 1)} at most, each refusal costs {pie.loss}. "
            f"{_told(state)}"
        )
        return state, [*system(self.instructions), *problem.prompt[:-1], Message(role="user", content=told)]

    def step(self, state: dict, text: str) -> tuple[list[Message], bool, Score | None]:
        pie, t = state["pie"], state["round"]
        least, offer = PARTNERS[state["partner"]]
        there, mine, match = pie.left(t), pie.offered_by_you(t), _TURN.search(text)
        state["calls"] += 1
        if match is None or (match[1] == "offer") != mine or match[2].isdigit() != mine:
            return [], True, _ended(state, 0, 0.0, malformed=1.0)
        if mine:
            amount = int(match[2])
            if amount > there:
                return [], True, _ended(state, 0, 0.0, malformed=1.0)
            if state["gap"] is None:
                state["gap"] = abs(amount - pie.keeps(t + 1)) / there
            if amount >= least(pie, t):
                return [], True, _ended(state, there - amount, 1.0)
        elif match[2] == "accept":
            return [], True, _ended(state, offer(pie, t), 1.0)
        if t == pie.rounds:
            return [], True, _ended(state, 0, 0.0)
        state["round"] += 1
        return [Message(role="user", content=f"{'Refused. ' if mine else ''}{_told(state)}")], False, None


def _told(state: Mapping[str, Any]) -> str:
    pie, t = state["pie"], state["round"]
    if pie.offered_by_you(t):
        return f"Round {t}, {pie.left(t)} coins: you offer."
    return f"Round {t}, {pie.left(t)} coins: you are offered {PARTNERS[state['partner']][1](pie, t)}."


def _ended(state: Mapping[str, Any], gained: int, agreed: float, **more: float) -> Scored:
    most = max(1, best(state["pie"], state["partner"]))
    gap = {} if state["gap"] is None else {"gap": float(state["gap"])}
    parts = {"gained": float(gained), "best": float(most), "agreed": agreed, "rounds": float(state["round"])}
    return Scored(value=gained / most, parts={**parts, **gap, **more})


def offers(*, partners: Sequence[str] = ("exact",), instructions: str = "") -> Offers:
    """`partners` are those of the head of this file. Raises ValueError for none or unknown ones."""
    if not partners or not set(partners) <= set(PARTNERS):
        raise ValueError(f"offers: partners {list(partners)}: name some of {', '.join(PARTNERS)}")
    return Offers(tuple(partners), instructions)
