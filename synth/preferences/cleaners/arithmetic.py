"""Sums that an answer states and gets wrong, while the other side's are right: "2 plus 7 is 10", "16 - 3 = 12".

A statement is two or more numbers with signs or words between them (+ - * / × ÷, plus, minus, times, divided by), "=" or
"equals" (after words also is, makes, gives), and one number. It is computed exactly, products before sums, and counts
as right if it is right up to its stated digits: 10 / 3 = 3.33. A part of a longer formula, of a name or of a range is
not a statement, and neither is anything with a letter in it. It asks, because a person can check the reason, and
because a label may be right although a sum is wrong.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction

from synth.preferences.cleaners._columns import Action, verdict
from synth.types import Decision, PreferencePair

ALONE = True  # each pair is judged by itself

_NUMBER = r"[$€£]?\d[\d,]*(?:\.\d+)?"
_SIGN = r"\s?[-+*/×÷−]\s?"
_WORD = r"\s(?:plus|minus|times|divided by|multiplied by)\s"
_STATED = re.compile(
    rf"(?<![\w.,)%^$€£])(?:({_NUMBER}(?:{_SIGN}{_NUMBER})+)\s?(?:=|\sequals\s)"
    rf"|({_NUMBER}(?:{_WORD}{_NUMBER})+)\s?(?:=|\s(?:equals|is|makes|gives)\s))\s?({_NUMBER})(?![\w%^(]|[.,]\d|{_SIGN}[\w(]|{_WORD})",
    re.IGNORECASE,
)
_PART = re.compile(rf"{_NUMBER}|plus|minus|times|divided by|multiplied by|[-+*/×÷−]", re.IGNORECASE)
_WORDS = ("plus", "minus", "times", "divided by", "multiplied by", "equals")  # one of them, or "=", is in a statement
_BEFORE = re.compile(r"(?:[-+*/×÷−^]|\d\s|plus|minus|times|by|of)\s*$", re.IGNORECASE)
_SIGNS = {
    "plus": "+",
    "minus": "-",
    "−": "-",
    "times": "*",
    "×": "*",
    "multiplied by": "*",
    "divided by": "/",
    "÷": "/",
}


def arithmetic(pairs: Sequence[PreferencePair], *, action: Action = "ask") -> Sequence[Decision]:
    """Decision `action` with reason wrong_sum, and what is wrong, else "keep" with no_wrong_sum; score = 1 or 0."""
    out = []
    for pair in pairs:
        wrong = _wrong(pair.chosen)
        acts = bool(wrong) and bool(stated(pair.rejected)) and not _wrong(pair.rejected)
        evidence = f"wrong_sum: the chosen side says {wrong}; the rejected side has no wrong sum"
        out.append(verdict("arithmetic", acts, action, (evidence, "no_wrong_sum"), float(acts)))
    return out


def stated(text: str) -> list[tuple[str, str, Fraction]]:
    """(the expression, the stated result, the true result) of every statement in a text."""
    if "=" not in text:
        low = text.lower()
        if not any(word in low for word in _WORDS):
            return []
    out = []
    for m in _STATED.finditer(text):
        sum_, result = m[1] or m[2], m[3].rstrip(",")
        value = None if _BEFORE.search(text[max(0, m.start() - 12) : m.start()]) else _value(sum_)
        if value is not None:
            out.append((sum_, result, value))
    return out


def _wrong(text: str) -> str:
    """The first wrong statement of a text, as a person would say it; "" where there is none."""
    for sum_, result, value in stated(text):
        digits = len(result.partition(".")[2])
        if abs(value - _number(result)) * 2 * 10**digits > 1:
            exact = value.denominator == 1
            return f"{sum_} is {result}, but it is {value.numerator if exact else format(float(value), '.6g')}"
    return ""


def _value(text: str) -> Fraction | None:
    """Of numbers and signs in turn, products first; None for a division by zero."""
    first, *rest = _PART.findall(text)
    terms = [_number(first)]
    for word, number in zip(rest[0::2], map(_number, rest[1::2]), strict=True):
        sign = _SIGNS.get(word.lower()) or word
        if sign == "*":
            terms[-1] *= number
        elif sign != "/":
            terms.append(-number if sign == "-" else number)
        elif number:
            terms[-1] /= number
        else:
            return None
    return sum(terms, Fraction(0))


def _number(text: str) -> Fraction:
    return Fraction(text.lstrip("$€£").replace(",", ""))
