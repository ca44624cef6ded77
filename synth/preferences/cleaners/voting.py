"""Pairs that voters disagree with: VoteAll-R/F and VoteMaj-R/F of PrefCleanBench (arXiv:2509.23564, 2025).

    a = share of voters who agree with the label, a tie counting as half
    rule "all"        act where every voter disagrees      (a = 0)
    rule "majority"   act where fewer than half agree      (a < 1/2: three to three stays)

With voters of accuracy 0.8 and independent errors, six of them under "majority" keep 9.9 % of the flipped and 98.3 % of
the right pairs; voters who make the same errors remove what they do not understand. A pair without voters stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from synth.preferences.cleaners._columns import Action, verdict, votes
from synth.types import Decision, PreferencePair

NEEDS = {"votes"}
ALONE = True  # each pair is judged by itself


def voting(
    pairs: Sequence[PreferencePair], *, rule: Literal["all", "majority"] = "majority", action: Action = "remove"
) -> Sequence[Decision]:
    """Decision `action` with reason voted_down, else "keep"; score = a. Raises ValueError where a pair lacks votes, or
    for another rule.

    A voter may also give [score of chosen, score of rejected]; it then votes by sign.
    """
    if rule not in ("all", "majority"):
        raise ValueError(f"voting has no rule {rule!r}: write all or majority")
    out = []
    for pair in pairs:
        cast = list(votes(pair).values())
        agree = sum((v + 1) / 2 for v in cast) / len(cast) if cast else 1.0
        against = agree == 0 if rule == "all" else agree < 0.5
        out.append(verdict("voting", against, action, ("voted_down", "voted_for" if cast else "no_votes"), agree))
    return out
