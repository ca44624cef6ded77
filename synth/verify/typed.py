"""An answer compared by its type: a name with its aliases, a number with its unit, a year, or a date in any spelling.

name     as `exact`: normalised text, or one of `aliases`
number   the same number, "28,748 sq km" for 28748 (unit "sq km" or none); within `tolerance` of it, as a share of the
         reference
year     the same year with its sign, alone: 500 BC is -500, AD 500 is 500
date     the same day: "14 July 1789", "July 14, 1789", "1789-07-14" and "1789/07/14" are one
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Literal

from synth.quantities import Quantity, date, quantity
from synth.types import Problem, Score, Unscorable
from synth.verify import RIGHT, UNPARSABLE, WRONG
from synth.verify.exact import MAX_CHARS, exact, normalise

FORM = "text"
_ISO = re.compile(r"^([0-9]{4})[/.]([0-9]{2})[/.]([0-9]{2})(?=\.?$)")
_ERA = r"B\.?C\.?(?:E\.?)?|C\.?E\.?|A\.?D\.?"
_YEAR = re.compile(
    rf"(?:(?P<before>A\.?D\.?) )?(?P<sign>-?)(?P<digits>[0-9]{{1,4}})(?: ?(?P<after>{_ERA}))?", re.IGNORECASE
)
_WORDS = {"square": "sq", "cubic": "cu", "kilometre": "km", "kilometer": "km", "metre": "m", "meter": "m", "mile": "mi"}
_WORDS |= {"kilogram": "kg", "kilogramme": "kg", "hectare": "ha", "dollar": "$", "percent": "%", "sqkm": "km2"}
_WORDS |= {f"{word}s": short for word, short in _WORDS.items() if word not in ("square", "cubic", "percent", "sqkm")}
EXAMPLE = {
    "prompt": "What is the area of Norvia in sq km?",
    "answer": "28748",
    "args": {"kind": "number", "unit": "sq km"},
}


def typed(
    problem: Problem,
    answer: str,
    *,
    kind: Literal["name", "number", "year", "date"] = "name",
    aliases: Sequence[str] = (),
    unit: str = "",
    tolerance: float = 0.0,
) -> Score:
    """1 where answer and reference are the same thing of the kind. A number with a wrong unit is wrong; without one it
    is right.

    Raises ValueError for a kind that there is not.
    """
    if kind == "name":
        return exact(problem, answer, aliases=aliases)
    if kind not in ("number", "year", "date"):
        raise ValueError(
            f"problem {problem.id} has answers of the kind {kind!r}: the kinds are name, number, year and date"
        )
    if len(answer) > MAX_CHARS:
        return UNPARSABLE
    if kind == "date":
        wanted, given = date(problem.answer), date(_ISO.sub(r"\1-\2-\3", answer))
    elif kind == "year":
        wanted, given = _year(problem.answer), _year(answer)
    else:
        wanted, given = quantity(problem.answer), quantity(_measure(answer.strip()))
    if wanted is None:
        return Unscorable(reason=f"bad_reference: {problem.answer!r} is no {kind}")
    if given is None:
        return UNPARSABLE
    if isinstance(wanted, Quantity) and isinstance(given, Quantity):
        right = given.unit == "" or _unit(given.unit) in {_unit(unit), _unit(wanted.unit)}
        one, other = Decimal(wanted.number), Decimal(given.number)
        return RIGHT if right and abs(one - other) <= abs(one) * Decimal(str(tolerance)) else WRONG
    return RIGHT if wanted == given else WRONG


def _measure(text: str) -> str:
    """The text with thousands parted by spaces written without, and raised digits of units raised."""
    text = re.sub(r"(?<![0-9.,])([0-9]{1,3})((?: [0-9]{3})+)(?![0-9,])", lambda m: m[1] + m[2].replace(" ", ""), text)
    return re.sub(r"(?<=[0-9 ])([a-z]{1,3})\^?([23])$", lambda m: m[1] + "\u00b2\u00b3"[int(m[2]) - 2], text)


def _unit(text: str) -> str:
    """A unit in the form in which two are compared: "km²", "sq km" and "square kilometres" are one."""
    words = normalise(text.replace("²", "2").replace("³", "3").replace("^", "")).split()
    words = [_WORDS.get(word, word) for word in words]
    if words[:1] in (["sq"], ["cu"]) and len(words) == 2:
        words = [words[1] + ("2" if words[0] == "sq" else "3")]
    return " ".join(words)


def _year(text: str) -> str | None:
    """The year that the whole text is, "-500" for "500 BC" too; None for anything else."""
    match = _YEAR.fullmatch(text.strip())
    if not match or sum(bool(match[part]) for part in ("before", "sign", "after")) > 1:
        return None
    digits = match["digits"].lstrip("0") or "0"
    ancient = match["sign"] or (match["after"] or "").upper().replace(".", "") in ("BC", "BCE")
    return f"-{digits}" if ancient and digits != "0" else digits
