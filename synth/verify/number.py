"""An integer or a rational, compared exactly: "0.5", "1/2" and "2/4" are one number, and 0.1 + 0.2 is 0.3.

Grammar: sign? digits, thousands in groups of three by comma or space, a decimal part (".5" too), a fraction of two
integers, a mixed number ("2 1/2"), a power of ten ("1.5e3", "1.5 * 10^3", at most 30), a percent sign (13% is 0.13).
A decimal comma is not read: "1,5" has no one meaning.

Beside the number an answer may hold what the question names: "25 mg" where it asks "How many mg", "25%" where it asks
for percent, "x = 4" where it is solved for x or holds no other variable, and a dollar sign where nothing is counted.
Another unit or variable is wrong. Spelling is read as in the form "number" of `synth.verify._spelling`.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Literal

from synth.types import Problem, Score, Unscorable
from synth.verify import RIGHT, UNPARSABLE, WRONG

MAX_CHARS = 80
FORM = "number"
EXAMPLE = {"prompt": "What is 3 * 7 / 2?", "answer": "-21/2"}
MAX_POWER = 30
_INTEGER = r"(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]{1,3}(?: [0-9]{3})+|[0-9]+)"
_NUMBER = re.compile(
    rf"(?P<sign>[-+]?) ?(?:(?P<mixed>[0-9]+) (?=[0-9]+/))?(?P<whole>{_INTEGER})?"
    r"(?:\.(?P<decimals>[0-9]+)|(?<=[0-9]) ?/ ?(?P<below>-?[0-9]+))?"
    r"(?:(?:[eE]| ?\* ?10\^)(?P<power>[-+]?[0-9]{1,2}|\([-+]?[0-9]{1,2}\)))?(?P<percent> ?%)?"
)
_COUNTED = re.compile(r"\bhow (?:many|much) ([^\s?.,]+)", re.IGNORECASE)
_SOLVED = re.compile(r"\b(?:for|of|is|find) ([a-z])\b(?! [a-z])", re.IGNORECASE)
_VARIABLE = re.compile(r"(?<![A-Za-z])[a-z](?![A-Za-z])")
_NAMED = re.compile(r"([A-Za-z]) ?= ?(.+)")
_MONEY = re.compile(r"([-+]?)\$ ?(.+)")
_WITH_UNIT = re.compile(r"(.*[0-9]) ?([^\s0-9]+)")


def parse(text: str) -> tuple[Fraction, bool] | None:
    """The value, and whether it is written as an integer; None where `text` is no number, is too long, or divides by
    zero."""
    if text.isdecimal() and text.isascii() and len(text) <= MAX_CHARS:
        return Fraction(int(text)), True  # what nearly all answers are, at a fourteenth of the time
    text = text.strip().replace("\N{MINUS SIGN}", "-") if len(text) <= MAX_CHARS else ""
    match = _NUMBER.fullmatch(text)
    if not match or (match["whole"] is None and match["decimals"] is None):
        return None
    whole, decimals = (match["whole"] or "").replace(",", "").replace(" ", ""), match["decimals"] or ""
    below, power = int(match["below"] or 1), int((match["power"] or "0").strip("()"))
    if (
        not below
        or abs(power) > MAX_POWER
        or (match["below"] and match["power"])
        or (match["mixed"] and int(whole) >= below)
    ):
        return None
    value = (Fraction(int(whole + decimals), 10 ** len(decimals)) / below + int(match["mixed"] or 0)) * Fraction(
        10
    ) ** power
    if match["percent"]:
        value /= 100
    plain = not decimals and not any(match[part] for part in ("below", "power", "percent"))
    return (-value if match["sign"] == "-" else value), plain


def named(text: str, question: str) -> str:
    """The text without the unit, variable or dollar sign that the question allows beside a number."""
    if len(text) > MAX_CHARS:
        return text
    counted = _COUNTED.search(question)
    if match := _NAMED.fullmatch(text):
        return match[2] if match[1] in solved_for(question) else text
    if match := _MONEY.fullmatch(text):
        return text if counted and counted[1].lower() not in ("dollars", "money") else match[1] + match[2]
    if match := _WITH_UNIT.fullmatch(text):
        units = {counted[1], counted[1].removesuffix("s")} if counted else set()
        units |= {unit.lower() for unit in units if len(unit) > 3} | {
            unit.capitalize() for unit in units if len(unit) > 3
        }
        units |= {"%", "percent"} if re.search(r"percent|\bin %", question, re.IGNORECASE) else set()
        return match[1] if match[2] in units else text
    return text


def solved_for(question: str) -> set[str]:
    """The variable that a question asks for; empty where it names none or leaves it open."""
    variables = set(_SOLVED.findall(question)) & set(_VARIABLE.findall(question))
    if len(variables) != 1 and question.lower().startswith("solve"):
        variables = set(_VARIABLE.findall(re.sub(r"[0-9]", " ", question)))
    return variables if len(variables) == 1 else set()


def number(problem: Problem, answer: str, *, kind: Literal["rational", "integer"] = "rational") -> Score:
    """1 where answer and reference are the same number; `kind="integer"` also asks that the answer be written as one
    (3, not 3.0)."""
    if (gold := parse(problem.answer)) is None:
        return Unscorable(reason=f"bad_reference: {problem.answer!r} is no number")
    given = parse(answer)
    if given is None or answer.endswith("%"):
        given = parse(named(answer, problem.question))
    if given is None or (kind == "integer" and not given[1]):
        return UNPARSABLE
    return RIGHT if given[0] == gold[0] else WRONG
