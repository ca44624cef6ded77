"""Pairs on which judges change their minds with the order of the sides.

A judge who votes 1 as shown and -1 swapped (both about the chosen side) voted for a place and not for an answer; "Large
Language Models are not Fair Evaluators" (arXiv:2305.17926, 2023). Where fewer than `consistent` of the judges say the
same twice, nobody knows: the pair is asked about. A tie said twice is consistent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from synth.preferences.cleaners._columns import Action, refusal, verdict
from synth.types import Decision, PreferencePair

NEEDS = {"both_orders"}
ALONE = True  # each pair is judged by itself


def order_bias(
    pairs: Sequence[PreferencePair], *, consistent: float = 0.5, action: Action = "ask"
) -> Sequence[Decision]:
    """Decision `action` with reason order_decides, else "keep" with order_does_not_matter; score = share of consistent
    judges.

    Raises ValueError where a pair lacks the column. A pair without judges stays.
    """
    shares = [_consistency(pair) for pair in pairs]
    return [
        verdict("order_bias", s < consistent, action, ("order_decides", "order_does_not_matter"), s) for s in shares
    ]


def _consistency(pair: PreferencePair) -> float:
    judges = pair.columns.get("both_orders")
    sound = isinstance(judges, Mapping) and all(
        isinstance(v, list | tuple) and len(v) == 2 and all(type(x) is int and x in (-1, 0, 1) for x in v)
        for v in judges.values()
    )
    if not sound:
        raise refusal(
            pair, "both_orders", "{judge: [vote as shown, vote swapped]}, each 1, -1 or 0 about the chosen side,"
        )
    return sum(a == b for a, b in judges.values()) / len(judges) if judges else 1.0
