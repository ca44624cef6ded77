"""Values made vague, and vague words read back: the number, year and date operators of fuzzy clues.

    level       number                      year                          date
    1           about 1,300                 between 1990 and 1994         in 1992
    2           between 1,200 and 1,500     in the 1990s                  in the 1990s
    3           between 1,000 and 10,000    in the late 20th century      in the late 20th century
    4           (a third of the ranking)    in the 20th century           in the 20th century

A span is what its words mean and nothing else: `read_span` computes the bounds from the words, and `span` only chooses
words. Numbers are rounded to two digits (half of the last digit either way), ranges are a fifth of the value wide, an
order of magnitude lies between powers of ten; a third of the 1900s is 1900-1932, 1933-1966, 1967-1999. A date is the
number yyyymmdd. The operators are those of InfoAgent (arXiv:2509.25189) and WebSailor (arXiv:2507.02592); their
extensions are computed here.
"""

from __future__ import annotations

import math
import random
import re

from synth.questions.pattern import Span

KINDS = ("number", "year", "date")  # ranges of relations whose values have an order
_SCALES = {"million": 10**6, "billion": 10**9, "trillion": 10**12}
_NUMBER = r"(-?[\d,]+(?:\.\d+)?)(?: (million|billion|trillion))?"
_ABOUT = re.compile(rf"about {_NUMBER}")
_BETWEEN = re.compile(rf"between {_NUMBER} and {_NUMBER}")
_IN_YEAR = re.compile(r"in (\d{1,4})")
_DECADE = re.compile(r"in the (\d{1,3}0)s")
_CENTURY = re.compile(r"in the (?:(early|mid|late) )?(\d{1,2})(?:st|nd|rd|th) century")
_THIRDS = {"early": (0, 32), "mid": (33, 66), "late": (67, 99)}


def value_of(literal: str, kind: str) -> float:
    """A literal as a number (nan where it is none): "1992-05-20" is 19920520."""
    try:
        return float(literal.replace("-", "") if kind == "date" else literal)
    except ValueError:
        return math.nan


def spell(value: float) -> str:
    """1300 -> "1,300", 2500000 -> "2.5 million", 0.25 -> "0.25"."""
    for word, scale in reversed(_SCALES.items()):
        if abs(value) >= scale:
            return f"{value / scale:,.6g} {word}"
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:.6g}"


def _number(digits: str, scale: str | None) -> float:
    return float(digits.replace(",", "")) * (_SCALES[scale] if scale else 1)


def read_span(text: str, kind: str) -> tuple[float, float] | None:
    """(low, high) that the words mean for a value of a kind; None where they are no span."""
    if kind == "number":
        if match := _ABOUT.fullmatch(text):
            value = _number(*match.groups())
            half = 10 ** (math.floor(math.log10(abs(value))) - 1) / 2 if value else 0.5
            return value - half, value + half
        match = _BETWEEN.fullmatch(text)
        return (_number(match[1], match[2]), _number(match[3], match[4])) if match else None
    years: tuple[int, int] | None = None
    if match := _BETWEEN.fullmatch(text):
        years = int(_number(match[1], None)), int(_number(match[3], None))
    elif match := _DECADE.fullmatch(text):
        years = int(match[1]), int(match[1]) + 9
    elif match := _CENTURY.fullmatch(text):
        first, last = _THIRDS.get(match[1] or "", (0, 99))
        years = 100 * int(match[2]) - 100 + first, 100 * int(match[2]) - 100 + last
    elif kind == "date" and (match := _IN_YEAR.fullmatch(text)):
        years = int(match[1]), int(match[1])
    if years is None:
        return None
    return (years[0], years[1]) if kind == "year" else (years[0] * 10_000 + 101, years[1] * 10_000 + 1231)


def span(value: float, kind: str, level: int, rng: random.Random, *, most: float = math.inf) -> Span | None:
    """Words of a level (1 to 4) for a value; None where there are none: zero and negative numbers, years before 100. No
    range goes beyond `most` (100, of a share in percent), and none begins there."""
    if not value > 0 or (kind != "number" and value < (100 if kind == "year" else 1_000_000)):
        return None
    text = (
        _vague_number(value, level, rng)
        if kind == "number"
        else _vague_year(int(value if kind == "year" else value // 10_000), level, kind, rng)
    )
    bounds = read_span(text, kind)
    if bounds and bounds[1] > most and (between := re.match(r"(between .+ and ).+", text)):
        text = f"{between[1]}{spell(most)}"
        bounds = read_span(text, kind) if bounds[0] < most else None
    return Span(low=bounds[0], high=bounds[1], said=text) if bounds and bounds[0] <= value <= bounds[1] else None


def _vague_number(value: float, level: int, rng: random.Random) -> str:
    whole = float(value).is_integer()
    power = math.floor(math.log10(value))
    if level >= 3:
        return f"between {spell(10.0**power)} and {spell(10.0 ** (power + 1))}"
    if level == 1 and not (whole and value < 100):
        return f"about {spell(float(f'{value:.1e}'))}"
    below = rng.random()  # where in the range the value lies: its middle would give it away
    low, high = value * (1 - 0.2 * below), value * (1.2 - 0.2 * below)
    unit = max(10.0 ** (power - 1), 1.0) if whole else 10.0 ** (power - 1)
    low, high = math.floor(low / unit) * unit, math.ceil(high / unit) * unit
    return f"between {spell(float(f'{low:.6g}'))} and {spell(float(f'{high:.6g}'))}"


def _vague_year(year: int, level: int, kind: str, rng: random.Random) -> str:
    if level == 1:
        first = year - rng.randrange(5)
        return f"in {year}" if kind == "date" else f"between {first} and {first + 4}"
    if level == 2:
        return f"in the {year // 10 * 10}s"
    part = next(p for p, (a, b) in _THIRDS.items() if a <= year % 100 <= b)
    return f"in the {f'{part} ' if level == 3 else ''}{_ordinal(year // 100 + 1)} century"


def _ordinal(n: int) -> str:
    return f"{n}{'th' if 10 < n % 100 < 14 else {1: 'st', 2: 'nd', 3: 'rd'}.get(n % 10, 'th')}"
