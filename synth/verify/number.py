"""An integer or a rational, compared exactly: "0.5", "1/2" and "2/4" are one number, and 0.1 + 0.2 is 0.3.

Grammar (ASCII digits only): sign? digits, thousands in groups of three by comma, a decimal part, or a fraction of two
integers. No exponents, names or operations: nothing here can be made to compute.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Literal

from synth.types import Problem, Score, Unscorable
from synth.verify import RIGHT, UNPARSABLE, WRONG

MAX_CHARS = 80
EXAMPLE = {"prompt": "What is 3 * 7 / 2?", "answer": "-21/2"}
_INTEGER = r"(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)"
_NUMBER = re.compile(rf"(?P<sign>[-+]?)(?P<whole>{_INTEGER})(?:\.(?P<decimals>[0-9]+)|/(?P<below>[0-9]+))?")


def parse(text: str) -> tuple[Fraction, bool] | None:
    """The value, and whether it is written as an integer; None where `text` is no number, is too long, or divides by zero."""
    text = text.strip().replace("\N{MINUS SIGN}", "-") if len(text) <= MAX_CHARS else ""
    if not (found := _NUMBER.fullmatch(text)):
        return None
    whole, decimals, below = found["whole"].replace(",", ""), found["decimals"] or "", found["below"]
    if below is not None and not int(below):
        return None
    value = Fraction(int(whole + decimals), int(below) if below else 10 ** len(decimals))
    return (-value if found["sign"] == "-" else value), not decimals and below is None


def number(problem: Problem, answer: str, *, kind: Literal["rational", "integer"] = "rational") -> Score:
    """1 where answer and reference are the same number; `kind="integer"` also asks that the answer be written as one (3, not 3.0)."""
    if (gold := parse(problem.answer)) is None:
        return Unscorable(reason=f"bad_reference: {problem.answer!r} is no number")
    if (given := parse(answer)) is None or (kind == "integer" and not given[1]):
        return UNPARSABLE
    return RIGHT if given[0] == gold[0] else WRONG
