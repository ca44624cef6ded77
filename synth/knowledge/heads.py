"""Heads of real tables and documents as noun phrases: what stands in brackets, after a dash or before a year is worked into the phrase.

a head                                        becomes
exports - partners                            export partners
land boundaries (border countries)            border countries                  where its values are countries
dependency ratios (elderly dependency ratio)  elderly dependency ratio          the bracket has the same noun
sex ratio (at birth)                          sex ratio at birth
elevation (highest point)                     highest point
lower chamber (number of seats)               lower chamber seats               a number counts them
natural gas (exports)                         natural gas exports
coal (consumption)                            coal consumption
water use (industrial)                        industrial water use
country name (former)                         former name                       of a country
country name (local short form)               local short name                  of a country
nationality (adjective)                       nationality adjective
executive branch (head of government)         head of government                what comes before it is a heading alone
capital (name), anthem (title)                capital, anthem
real growth rate 2021                         real growth rate in 2021
age structure (0-14 years)                    stays: what it means cannot be told
"""

from __future__ import annotations

import re

from synth.knowledge.words import UNITS, adjective, many, singular

_NOTE = re.compile(r"\s*\(([^()]*)\)")
_OPEN = re.compile(r"(?<=\w)\((?:e?s)\)")  # "site(s)"
_PREPOSITION = re.compile(r"(?:from|at|in|of|for|per|on|without|to) [^\W\d_]")
_MEASURE = re.compile(r"by |.*\b(?:sq km|km|sq mi)\b")  # "(by length in km)", "(area sq km)": how a list is sorted
_MOST = re.compile(r"(?:highest|lowest|longest|shortest|largest|smallest|deepest|oldest|newest|tallest|biggest) [a-z]+")
_COUNT = re.compile(r"number of ([a-z]+s)")
_YEAR = re.compile(r"(.*[^\W\d_]\)?) ((?:1[89]|20)\d\d)")
_ODD = re.compile(r"[()\[\]{}/#|,;:=*]| - |(?:^| )[b-z](?: |$)|(?:^| )\d(?!\d{3}(?: |$))")
_UNITS = {
    "bbl": "barrels",
    "kWh": "kilowatt-hours",
    "kW": "kilowatts",
    "MW": "megawatts",
    "GW": "gigawatts",
    "kt": "kilotonnes",
}
_UNITS |= {"Btu": "British thermal units", "nm": "nautical miles"}
_LONGEST = 6  # words of a unit
_HEADING = re.compile(r"(?:\w+ )?(?:branch|section|department)")  # what a page is divided into says nothing of a value
_ROLE = re.compile(r"(?:head|chief|leader|president|chair|speaker|deputy|commander) of [a-z]+")
_KIND = re.compile(
    r"(?:[a-z]+al|former|previous|native|short|long|old|alternative|legal|full)"
)  # an adjective beside a noun
_DEED = re.compile(r"[a-z]+(?:tion|ment)")


def head_of(label: str, thing: str = "", domain: str = "") -> str:
    """The noun phrase of a head. thing: the type of its values, "" for plain values; domain: the type of what has them, whose
    name is not said twice."""
    text = _OPEN.sub("", re.sub(r"\b([^\W\d_]{3,})[^\W\d_]*/\1[^\W\d_]*", _first, label))
    text, year = (m[1], f" in {m[2]}") if (m := _YEAR.fullmatch(text)) else (text, "")
    words = text.split()
    if words and many(words[-1]) and all(re.match(r"[A-Z][a-z]", w) for w in words[1:]):  # the capitals of a headline
        text = " ".join([words[0], *map(str.lower, words[1:])])
    notes = [" ".join(n.split()) for n in _NOTE.findall(text)]
    base = " ".join(_NOTE.sub("", text).split())
    if text.endswith(")") or not notes:
        notes = [n for n in notes if not _MEASURE.match(n)]
        said = _with_note(base, notes[-1], thing, domain) if notes else _joined(base)
        if said:
            return f"{said}{year}"
    return f"{text}{year}"


def heads_of(label: str, thing: str = "", domain: str = "") -> list[str]:
    """The noun phrases that a head can be, the best first: "anthem (title)" is "anthem", and "anthem title" where another head
    is "anthem"."""
    named = re.fullmatch(r"(.+) \((name|title)\)", label)
    return [head_of(label, thing, domain), *([f"{head_of(named[1])} {named[2]}"] if named else [])]


def _first(m: re.Match[str]) -> str:
    return m[0].partition("/")[0]


def _joined(base: str) -> str:
    """ "exports - partners" as one phrase."""
    first, dash, second = base.partition(" - ")
    if not dash:
        return base
    joins = many(first) and " " not in first + second and not adjective(second)
    return f"{singular(first)} {second}" if joins else base


def _with_note(base: str, note: str, thing: str, domain: str) -> str:
    """A phrase with its note worked in; "" where there is no way to."""
    words, own = note.split(), base.split()
    if not words or not own:
        return base
    if note.lower() in ("name", "title", "total"):
        return _joined(base)
    if thing and singular(words[-1].lower()) == thing.replace("_", " ").split()[-1] and len(words) <= 4:
        return note
    if singular(words[-1].lower()) == singular(own[-1].lower()) and " - " not in base and len(words) > 1:
        if len(words) > 2:
            return note
        return " ".join([words[0], *own[:-1], words[-1]])
    if _PREPOSITION.match(note) and " - " not in base and not re.search(r"[\d%,]", note):
        return f"{base} {note}"
    if _MOST.fullmatch(note):
        return note
    last = base.rpartition(" - ")[2]
    if (count := _COUNT.fullmatch(note)) and not many(last):
        return f"{last} {count[1]}"
    if " - " in base:
        return ""
    if _HEADING.fullmatch(base) and _ROLE.fullmatch(note):
        return note
    few = not many(base) and len(own) < 3
    if len(words) == 1 and (few and (many(note) or _DEED.fullmatch(note)) or note in ("adjective", "noun")):
        return f"{base} {note}"
    if own[-1] == "name" and own[:-1] in ([], domain.replace("_", " ").split()):
        base = "name"
    if own[-1] == "name" and words[-1] == "form" and words[:-1]:
        return " ".join([*words[:-1], base])
    if len(words) == 1 and _KIND.fullmatch(note) and not _PREPOSITION.search(base):
        return f"total {note} {base[6:]}" if base.startswith("total ") else f"{note} {base}"
    return ""


def is_odd(label: str) -> bool:
    """Whether a head is no phrase that a person would say: marks, a dash, a single letter, a number that is no
    year."""
    return _ODD.search(label) is not None


def spoken_unit(unit: str) -> str:
    """A unit as it is said: "% of GDP" -> "percent of GDP", "births/1,000 population" -> "births per 1,000 population"; "" for
    one that is too long to be said."""
    text = _OPEN.sub("s", unit)
    text = re.sub(r"^% ", "percent ", re.sub(r"(?<=\w)/(?=\w)", " per ", text))
    text = re.sub(r"^percent (?!of ).*", "percent", text)
    text = " ".join(_UNITS.get(w, w) for w in text.split())
    return text if len(text.split()) <= _LONGEST and not re.search(r"[%$/()]", text) else UNITS.get(unit.lower(), "")
