"""A few patterns of English sentences that state a fact about the page they stand on. Deterministic, and each in linear
time.

They read the first sentences only, and of these the first and those that begin with the page's name or a pronoun: what
a page says of itself stands there. Recall is low and meant to be: a pattern earns its place by precision
(tests/synth/knowledge/test_document_sources.py has a hand-made set).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from synth.quantities import MONTHS, find_date

LEAD = 3000  # characters from the beginning that are read
_SMALL = r"(?:of|the|de|la|le|du|des|von|van|der|den|da|di|del|al|bin|ibn)"
NAME = (
    r"[A-Z\u00c0-\u00de][\w.'\u2019-]*"
    rf"(?:[ ](?:{_SMALL}[ ]){{0,2}}(?:[dDlL]['\u2019])?[A-Z\u00c0-\u00de0-9][\w.'\u2019-]*){{0,5}}"
)
_END_OF_NAME = (
    r"(?=\s*[.,;:()\"\u201d]|\s*$"
    r"|\s+(?:in|on|and|at|for|with|as|from|to|who|which|that|by|of|his|her|its|starring|based|during|after|when|where|until|aged)\b)"
)
_YEAR = r"(?P<y>1\d{3}|20\d{2})\b"
_CLAUSE = (
    r"(?=\s*[.,;:()]|\s*$|\s+(?:of|in|from|who|which|that|by|at|on|and|or|located|situated|founded|born|with|for|between|to|written"
    r"|directed|as|near|whose)\b)"
)

# relation, words for it, pattern; `y` is the object. A name is an entity, a year or a date is a literal, the rest is
# text.
_PATTERNS = tuple(
    (relation, label, kind, re.compile(pattern))
    for relation, label, kind, pattern in (
        ("kind", "kind", "text", rf"\b(?:is|was|are|were) (?:an?|the) (?P<y>[\w'\u2019 -]{{3,60}}?){_CLAUSE}"),
        (
            "born_in",
            "place of birth",
            "name",
            rf"\bborn (?:on [\w ,]{{4,24}}? )?(?:in|at|near) (?P<y>{NAME}){_END_OF_NAME}",
        ),
        (
            "died_in",
            "place of death",
            "name",
            rf"\bdied (?:on [\w ,]{{4,24}}? )?(?:in|at|near) (?P<y>{NAME}){_END_OF_NAME}",
        ),
        ("born", "date of birth", "date", r"\bborn (?:on )?(?P<y>[\w ,.]{8,24})"),
        ("died", "date of death", "date", r"\bdied (?:on )?(?P<y>[\w ,.]{8,24})"),
        (
            "located_in",
            "location",
            "name",
            rf"\b(?:located|situated) (?:in|on|near) (?:the )?(?P<y>{NAME}){_END_OF_NAME}",
        ),
        (
            "capital_of",
            "country of which it is the capital",
            "name",
            rf"\b(?:is|was) (?:the|a)(?: \w+){{0,3}}? capital (?:city |and largest city )?of (?:the )?(?P<y>{NAME}){_END_OF_NAME}",
        ),
        (
            "part_of",
            "whole that it is part of",
            "name",
            rf"\b(?:is|was) (?:a )?part of (?:the )?(?P<y>{NAME}){_END_OF_NAME}",
        ),
        ("flows_into", "place that it flows into", "name", rf"\bflows into (?:the )?(?P<y>{NAME}){_END_OF_NAME}"),
        ("founded_year", "year of foundation", "year", rf"\b(?:founded|established|formed) in (?:\w+ )?{_YEAR}"),
        ("released_year", "year of release", "year", rf"\b(?:released|published) (?:in|on) (?:[\w, ]{{1,14}})?{_YEAR}"),
        ("founded_by", "founder", "name", rf"\b(?:founded|established) by (?:the )?(?P<y>{NAME}){_END_OF_NAME}"),
        ("directed_by", "director", "name", rf"\bdirected (?:and \w+ )?by (?P<y>{NAME}){_END_OF_NAME}"),
        ("written_by", "writer", "name", rf"\bwritten (?:and \w+ )?by (?P<y>{NAME}){_END_OF_NAME}"),
        ("produced_by", "producer", "name", rf"\bproduced (?:and \w+ )?by (?P<y>{NAME}){_END_OF_NAME}"),
        ("composed_by", "composer", "name", rf"\bcomposed by (?P<y>{NAME}){_END_OF_NAME}"),
        ("parent", "parent", "name", rf"\b(?:son|daughter|child) of (?:\w+ ){{0,2}}?(?P<y>{NAME}){_END_OF_NAME}"),
        (
            "spouse",
            "spouse",
            "name",
            rf"\b(?:married(?: to)?|wife of|husband of) (?:\w+ ){{0,2}}?(?P<y>{NAME}){_END_OF_NAME}",
        ),
    )
)
LABELS = {relation: label for relation, label, _, _ in _PATTERNS}
_FIRST_ONLY = {"kind"}  # a later "he was a ..." is as often about a year of somebody's life
_LIFE = re.compile(r"\(\s*(?:born )?(?P<a>[\w ,.]{8,24}?)\s*[\u2013\u2014-]\s*(?P<b>[\w ,.]{8,24}?)\s*\)")
_ALSO = re.compile(
    rf"\b(?:also (?:known|called)|better known|formerly known|abbreviated) (?:as )?(?:the )?(?P<y>{NAME}){_END_OF_NAME}"
)
_END = re.compile(r"(?<=[a-z0-9)\"\u201d'][.!?])\s+(?=[A-Z\"\u201c])|\n+")
_PRONOUN = re.compile(r"(?:He|She|It|They)\b")


@dataclass(frozen=True)
class Found:
    """One statement of a sentence: `value` as the sentence has it (a date in ISO form), and the span [start, end) of
    the sentence."""

    relation: str
    value: str
    kind: str  # name, text, date, year
    start: int
    end: int


def sentences(text: str) -> Iterator[tuple[int, int]]:
    """[start, end) of the sentences of the lead, none longer than 600 characters: what is longer is no sentence."""
    at = 0
    lead = text[:LEAD]
    for gap in [*_END.finditer(lead), None]:
        end = gap.start() if gap else len(lead)
        if 0 < end - at <= 600:
            yield at, end
        at = gap.end() if gap else end


def statements(text: str, title: str, aliases: tuple[str, ...] = ()) -> Iterator[Found]:
    """What the first sentences of a page say about it, in order; of one relation the first mention only."""
    seen: set[str] = set()
    words = tuple(title.split()[:1]) + tuple(a.split()[0] for a in aliases if a.split())
    read = ((a, b) for a, b in sentences(text) if text[a:b].strip() != title)  # a heading is no sentence
    for i, (start, end) in enumerate(read):
        sentence = text[start:end]
        if i and not sentence.startswith(words) and not _PRONOUN.match(sentence):
            continue
        for relation, value, kind in _of(sentence, first=i == 0):
            if relation not in seen and value:
                seen.add(relation)
                yield Found(relation, value, kind, start, end)


def _of(sentence: str, *, first: bool) -> Iterator[tuple[str, str, str]]:
    life = _LIFE.search(sentence[:400]) if first else None
    if life:
        for side, relation in (("a", "born"), ("b", "died")):
            parsed = find_date(life[side])
            if parsed:
                yield relation, parsed[0], "date"
    for relation, _, kind, pattern in _PATTERNS:
        if relation in _FIRST_ONLY and not first:
            continue
        m = pattern.search(sentence)
        if m is None:
            continue
        value = m["y"].strip(" .,'\u2019")
        if kind == "date":
            date = find_date(value)
            value = date[0] if date and date[1] <= 4 else ""
        elif kind == "name" and value.partition(" ")[0].lower() in MONTHS:  # "born in April 1950"
            continue
        yield relation, value, kind


def also_known_as(text: str) -> list[str]:
    """Other names that the first sentence gives."""
    first = next(sentences(text), None)
    return [m["y"].strip(" .,") for m in _ALSO.finditer(text[slice(*first)])] if first else []
