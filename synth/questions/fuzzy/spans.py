"""Values made vague, and vague words read back: the number, year and date operators of fuzzy clues.

    level       number                      year                          date
    1           about 1,300                 between 1990 and 1994         in 1992
    2           between 1,200 and 1,500     in the 1990s                  in the 1990s
    3           between 1,000 and 10,000    in the late 20th century      in the late 20th century
    4           (a third of the ranking,    in the 20th century           in the 20th century
                see `pattern.Third`)

A span is defined by its words alone: `read_span` computes the bounds from the words, and `span` only chooses
words. Readers differ in what vague words include, so a span has two meanings:

    words                     bounds: all that a reader may count in       core: where the value itself must lie
    about 1,300               a tenth either way                           what rounds to it (at most a twentieth)
    between 1,200 and 1,500   and what rounds to an end                    within, and rounds to neither end
    in the early 20th century 1900-1939                                    1901-1929
    in the mid 20th century   1930-1969                                    1936-1964
    in the late 20th century  1960-2000                                    1971-1999
    in the 20th century       1900-2000                                    1901-1999

A question is unique by the bounds and true by the core, and so for every reading between the two.
Numbers are rounded to two digits, ranges are a fifth of the value wide, an order of magnitude lies between powers of
ten. A date is the number yyyymmdd. The operators are those of InfoAgent (arXiv:2509.25189) and WebSailor
(arXiv:2507.02592); their extensions are computed here.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable
from dataclasses import replace

from synth.questions.pattern import Clue, Named, Node, Span, Than, Third

KINDS = ("number", "year", "date")  # ranges of relations whose values have an order
_SCALES = {"million": 10**6, "billion": 10**9, "trillion": 10**12}
_NUMBER = r"(-?[\d,]+(?:\.\d+)?)(?: (million|billion|trillion))?"
_ABOUT = re.compile(rf"about {_NUMBER}")
_BETWEEN = re.compile(rf"between {_NUMBER} and {_NUMBER}")
_IN_YEAR = re.compile(r"in (\d{1,4})")
_DECADE = re.compile(r"in the (\d{1,3}0)s")
_CENTURY = re.compile(r"in the (?:(early|mid|late) )?(\d{1,2})(?:st|nd|rd|th) century")
_PARTS = {  # part of a century -> ((first, last) year that may be counted in, (first, last) that surely is)
    "early": ((0, 39), (1, 29)),
    "mid": ((30, 69), (36, 64)),
    "late": ((60, 100), (71, 99)),
    "": ((0, 100), (1, 99)),
}


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
    """(low, high) of all that the words may mean for a value of a kind; None where they are no span."""
    both = _meanings(text, kind)
    return both and both[0]


def core(text: str, kind: str) -> tuple[float, float] | None:
    """(low, high) of what the words mean to every reader; None where they are no span."""
    both = _meanings(text, kind)
    return both and both[1]


def _meanings(text: str, kind: str) -> tuple[tuple[float, float], tuple[float, float]] | None:
    if kind == "number":
        if match := _ABOUT.fullmatch(text):
            value = _number(*match.groups())
            half, tenth = _unit(value) / 2, abs(value) / 10
            return (value - tenth, value + tenth), (value - half, value + half)
        if match := _BETWEEN.fullmatch(text):
            low, high = _number(match[1], match[2]), _number(match[3], match[4])
            half = min(_unit(low), _unit(high)) / 2
            return (low - half, high + half), (math.nextafter(low + half, high), math.nextafter(high - half, low))
        return None
    wide = sure = (0, 0)
    if match := _BETWEEN.fullmatch(text):
        wide = int(_number(match[1], None)), int(_number(match[3], None))
        sure = wide[0] + 1, wide[1] - 1
    elif match := _DECADE.fullmatch(text):
        wide = sure = int(match[1]), int(match[1]) + 9
    elif match := _CENTURY.fullmatch(text):
        first = 100 * int(match[2]) - 100
        wide, sure = ((first + a, first + b) for a, b in _PARTS[match[1] or ""])
    elif kind == "date" and (match := _IN_YEAR.fullmatch(text)):
        wide = sure = int(match[1]), int(match[1])
    else:
        return None
    return (wide, sure) if kind == "year" else (_days(wide), _days(sure))


def _unit(value: float) -> float:
    """One in the last of two digits; of zero, none."""
    return 10.0 ** (math.floor(math.log10(abs(value))) - 1) if value else math.inf


def _days(years: tuple[int, int]) -> tuple[int, int]:
    return years[0] * 10_000 + 101, years[1] * 10_000 + 1231


def narrowed(node: Node, kind: Callable[[str], str]) -> Node:
    """The description with the core of every vague value and third in place of its bounds. `kind`: relation -> its range."""

    def clue(c: Clue | Named) -> Clue | Named:
        if isinstance(c, Named):
            return c
        target = c.target
        if isinstance(target, Span):
            sure = core(target.said, kind(c.relation))
            target = target if sure is None else replace(target, low=sure[0], high=sure[1])
        elif isinstance(target, Third):
            target = replace(target, sure=True)
        elif isinstance(target, Than) and isinstance(target.other, Node):
            target = replace(target, other=narrowed(target.other, kind))
        elif isinstance(target, Node):
            target = narrowed(target, kind)
        return replace(c, target=target)

    return Node(type=node.type, clues=tuple(map(clue, node.clues)))


def span(value: float, kind: str, level: int, rng: random.Random, *, most: float = math.inf) -> Span | None:
    """Words of a level (1 to 4) for a value; None where there are none: zero and negative numbers, years before 100. No
    range goes beyond `most` (100, of a share in percent), and none begins there. Where the words of a level would have
    the value at an end, those of a lower level are taken."""
    if not value > 0 or (kind != "number" and value < (100 if kind == "year" else 1_000_000)):
        return None
    text = (
        _vague_number(value, level, rng)
        if kind == "number"
        else _vague_year(int(value if kind == "year" else value // 10_000), level, kind, rng)
    )
    between = _BETWEEN.fullmatch(text) if kind == "number" else None
    if between and _number(between[3], between[4]) > most:
        if _number(between[1], between[2]) >= most:
            return None
        text = f"{text.partition(' and ')[0]} and {spell(most)}"
    bounds, sure = read_span(text, kind), core(text, kind)
    return Span(low=bounds[0], high=bounds[1], said=text) if bounds and sure and sure[0] <= value <= sure[1] else None


def _vague_number(value: float, level: int, rng: random.Random) -> str:
    whole = float(value).is_integer()
    power = math.floor(math.log10(value))
    if level >= 3:
        text = f"between {spell(10.0**power)} and {spell(10.0 ** (power + 1))}"
        low, high = core(text, "number") or (1, 0)
        if low <= value <= high:
            return text
    if level == 1 and not (whole and value < 100):
        return f"about {spell(float(f'{value:.1e}'))}"
    below = rng.random()  # where in the range the value lies: its middle would give it away
    low, high = value * (1 - 0.2 * below), value * (1.2 - 0.2 * below)
    unit = max(10.0 ** (power - 1), 1.0) if whole else 10.0 ** (power - 1)
    low, high = math.floor(low / unit) * unit, math.ceil(high / unit) * unit
    low = low if value - low > unit / 2 else low - unit  # no value that rounds to an end
    high = high if high - value > unit / 2 else high + unit
    return f"between {spell(float(f'{low:.6g}'))} and {spell(float(f'{high:.6g}'))}"


def _vague_year(year: int, level: int, kind: str, rng: random.Random) -> str:
    if level == 1:
        first = year - rng.randrange(1, 4)
        return f"in {year}" if kind == "date" else f"between {first} and {first + 4}"
    of = year % 100
    part = next((p for p, (_, (a, b)) in _PARTS.items() if a <= of <= b and bool(p) == (level == 3)), None)
    if level == 2 or part is None:
        return f"in the {year // 10 * 10}s"
    return f"in the {part + ' ' if part else ''}{_ordinal(year // 100 + 1)} century"


def _ordinal(n: int) -> str:
    return f"{n}{'th' if 10 < n % 100 < 14 else {1: 'st', 2: 'nd', 3: 'rd'}.get(n % 10, 'th')}"
