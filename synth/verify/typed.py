"""An answer compared as what it is: a name with its aliases, a number with its unit, a year, or a date in any spelling.

    name     as `exact`: normalised text, or one of `aliases`
    number   the same number, "28,748 sq km" for 28748 (unit "sq km" or none); within `tolerance` of it, as a share of the reference
    year     the same year, alone
    date     the same day: "14 July 1789", "July 14, 1789" and "1789-07-14" are one
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Literal

from synth.quantities import Quantity, date, quantity
from synth.types import Problem, Score, Unscorable
from synth.verify import RIGHT, UNPARSABLE, WRONG
from synth.verify.exact import MAX_CHARS, exact, normalise

EXAMPLE = {"prompt": "What is the area of Norvia in sq km?", "answer": "28748", "args": {"kind": "number", "unit": "sq km"}}


def typed(
    problem: Problem,
    answer: str,
    *,
    kind: Literal["name", "number", "year", "date"] = "name",
    aliases: Sequence[str] = (),
    unit: str = "",
    tolerance: float = 0.0,
) -> Score:
    """1 where answer and reference are the same thing of the kind. A number with a wrong unit is wrong; without one it is right.

    Raises ValueError for a kind that there is not.
    """
    if kind == "name":
        return exact(problem, answer, aliases=aliases)
    if kind not in ("number", "year", "date"):
        raise ValueError(f"problem {problem.id} has answers of the kind {kind!r}: the kinds are name, number, year and date")
    if len(answer) > MAX_CHARS:
        return UNPARSABLE
    if kind == "date":
        wanted, given = date(problem.answer), date(answer)
    elif kind == "year":
        wanted, given = _year(problem.answer), _year(answer)
    else:
        wanted, given = quantity(problem.answer), quantity(answer.strip())
    if wanted is None:
        return Unscorable(reason=f"bad_reference: {problem.answer!r} is no {kind}")
    if given is None:
        return UNPARSABLE
    if isinstance(wanted, Quantity) and isinstance(given, Quantity):
        right = given.unit == "" or normalise(given.unit) in {normalise(unit), normalise(wanted.unit)}
        one, other = Decimal(wanted.number), Decimal(given.number)
        return RIGHT if right and abs(one - other) <= abs(one) * Decimal(str(tolerance)) else WRONG
    return RIGHT if wanted == given else WRONG


def _year(text: str) -> str | None:
    """The year that the whole text is; None for anything else."""
    text = text.strip().rstrip(".").removeprefix("-")
    return text.lstrip("0") or "0" if text.isascii() and text.isdigit() and len(text) <= 4 else None
