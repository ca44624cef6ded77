"""Alternating offers over coins that melt, and their equilibrium by backward induction: what the family alternating_offers and the environment
offers share.

Rubinstein 1982, "Perfect Equilibrium in a Bargaining Model" (Econometrica 50), with finitely many rounds, whole coins and a fixed loss (Stahl
1972). In round t = 1, ..., T there are v_t = coins - (t - 1) loss coins; who offers keeps the rest if the offer is accepted, else the next round
begins and the other offers. After the last refusal nobody gets anything. Who would gain nothing by refusing accepts, so there is one
subgame-perfect equilibrium:

    K_{T+1} = 0        K_t = v_t - K_{t+1}        in round t K_{t+1} is offered, which is accepted, and K_t kept

One round is the ultimatum game: nothing is offered.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

TEXT = re.compile(  # in any wording of the family
    r"(?=.*\bshare (\d+) coins)(?=.*\b[Bb]y offers in turn)(?=.*\bin (\d+) rounds? at most)(?=.*\b[Ee]ach refusal costs (\d+))"
    r"(?=.*\b(You offer|The other offers) first)(?:(?=.*\boffers in round (\d+)\b)|).*",
    re.DOTALL,
)


@dataclass(frozen=True)
class Pie:
    """coins in round 1, `loss` fewer after each refusal, `rounds` at most; whether you offer first."""

    coins: int
    loss: int
    rounds: int
    yours: bool

    def left(self, t: int) -> int:
        """v_t."""
        return self.coins - (t - 1) * self.loss

    def keeps(self, t: int) -> int:
        """K_t, for t from 1 to rounds + 1."""
        return 0 if t > self.rounds else self.left(t) - self.keeps(t + 1)

    def offered_by_you(self, t: int) -> bool:
        return self.yours == (t % 2 == 1)


# partner -> the least that he accepts in a round, and what he offers in one
PARTNERS: dict[str, tuple[Callable[[Pie, int], int], Callable[[Pie, int], int]]] = {
    "exact": (lambda p, t: p.keeps(t + 1), lambda p, t: p.keeps(t + 1)),
    "low": (lambda p, t: p.keeps(t + 1), lambda p, t: p.keeps(t + 1) // 2),
    "fair": (lambda p, t: -(-p.left(t) // 2), lambda p, t: p.left(t) // 2),
}


def best(pie: Pie, partner: str, t: int = 1) -> int:
    """The most that you can get from round t on against a partner of PARTNERS."""
    if t > pie.rounds:
        return 0
    least, offer = PARTNERS[partner]
    now = pie.left(t) - least(pie, t) if pie.offered_by_you(t) else offer(pie, t)
    return max(now, best(pie, partner, t + 1))


def told(question: str) -> tuple[Pie, int]:
    """What `read` gives of a question that tells a pie. Raises ValueError for another one."""
    pie = read(question)
    if pie is None:
        raise ValueError(f"{question[:80]!r} tells no pie: it is no question of alternating_offers")
    return pie


def read(question: str) -> tuple[Pie, int] | None:
    """The pie that a question tells and the round that it asks about, 0 where it asks for the first offer; None where it tells none."""
    match = TEXT.fullmatch(question)
    if match is None:
        return None
    pie = Pie(int(match[1]), int(match[3]), int(match[2]), match[4] == "You offer")
    return (pie, int(match[5] or 0)) if pie.left(pie.rounds) >= 1 and int(match[5] or 0) <= pie.rounds else None
