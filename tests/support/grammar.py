"""Faults of English in what is said by templates, found by rules that share no code with what writes them.

The rules know no names: they look at words in lower case that stand between, before and after them.
"""

from __future__ import annotations

import re

_AN = re.compile(r"[aeio]|u(?!n[iy]|s[eua]|t[ei]|ra)|hour|honest|heir")  # how a noun sounds: "an hour", "a unit"
_A = re.compile(r"one\b|one-|once|eu|ewe|oui")
_ONE = {  # nouns that end in s and are one thing
    *(
        "series",
        "headquarters",
        "species",
        "news",
        "gas",
        "bus",
        "lens",
        "class",
        "genus",
        "status",
        "campus",
        "canvas",
        "virus",
        "chess",
    ),
    *(
        "address",
        "business",
        "process",
        "princess",
        "actress",
        "glass",
        "access",
        "address",
        "bias",
        "census",
        "corpus",
    ),
    *("iris", "basis", "analysis", "crisis", "thesis", "axis", "mathematics", "physics", "atlas", "bonus"),
}
_PEOPLE = "person|artist|author|member|warden|guard|actor|director|writer|architect|customer|employee|teacher"
_NOUN = {"bed", "seed", "speed", "shed", "feed", "need", "breed", "weed", "deed", "red", "reed", "hundred", "seabed"}
_UNIT = r"(?:sq km|km|cm|mm|kg|m|g|t|ft)"

_OF_IT = r"(?:(?!(?:that|which|who|with)\b)\w+ )+"  # words that say nothing of another thing, whose "its" it may be
RULES = {
    "a word twice": re.compile(r"\b(\w+) \1\b", re.IGNORECASE),
    "words twice": re.compile(r"\b(\w+ \w+ \w+) \1\b", re.IGNORECASE),
    "two articles": re.compile(r"\b(?:a|an|the|some|no) (?:a|an|the|some|no)\b", re.IGNORECASE),
    "two prepositions": re.compile(r"\b(?:to|by|with|via|from|at) (?:of|as|is|are|falls|was|than)\b"),
    "a preposition at the end": re.compile(r"\b(?:without an?|has no) [\w ]*\b(?:by|of|from|to)(?=[.,?]|$)"),
    "a value after a unit": re.compile(r"\b(?:number of \w+|in [a-z]+(?: [a-z]+)?) of (?:about|between)"),
    "a unit that is not a word": re.compile(rf"\b[a-z]+ (?:in )?{_UNIT} (?:of|is|than|falls)\b"),
    "a type that is no word": re.compile(r"\b(?:movy|countrie|citie|serie|specie|\w+_\w+)\b"),
    "a thing by its own name": re.compile(r"\bis (?:a|an|the|one) (\w+) (?:which|that|who) is the \1 of\b"),
    "is that, of another kind": re.compile(r"\b(?:place|town|teacher) is that of\b(?! a)"),
    "one of one": re.compile(r"\bone of the [a-z]*[a-rt-z] (?:who|that|which)\b"),
    "made once, and still": re.compile(
        r"\bis (?:built|made|painted|born|written|founded|discovered|recorded) (?:by|in|at)\b"
    ),
    "marks": re.compile(r"  | [,.?]|\{|\}|\0|,,|\.\.(?!\.)"),
    "its of a person": re.compile(rf"\b(?:{_PEOPLE})(?:'s)? (?:which|(?:with|that has) {_OF_IT}as its)\b"),
    "a person in a country": re.compile(
        rf"\b(?:{_PEOPLE}) (?:is one )?(?:(?:who|that) )?is in (?:[A-Z]|the same (?:country|city|town))"
    ),
    "one of which": re.compile(r"\bis one (?:of which|(?:that|which|who) is (?:in|from|on))\b"),
    "a role without an article": re.compile(r"\b(?:with|has) [a-z]+(?: [a-z]+)? as their\b"),
    "a point of the compass as a thing": re.compile(
        r"\b(?:north|east|south|west) as its\b|\bcoast is (?:north|east|south|west)\b"
    ),
    "next of": re.compile(r"\b(?:next|previous) \w+ of (?!no\b)"),
    "the first of an event": re.compile(r"\b(?:first|last) (?!year|date)\w+ (?:year|date)\b"),
    "of none, and more": re.compile(r"(?<!is )\bthe \w+ of no \w+(?:,| and) "),
    "the same place": re.compile(r"\bhas the same (?:coast|valley|room|line)\b|\bthe (?:coast|valley|room) is also\b"),
    "one of several": re.compile(r"\b(?:of which|for whom) one of the\b"),
    "a maker by the name": re.compile(r"\b(author|painter|composer)(?: who| that)? is the \1 of\b"),
    "who of a thing": re.compile(r"\b(?:island|film|painting|loan|hut|station|book|lighthouse|element|unit) who\b"),
}


def faults(text: str) -> list[str]:
    """What is wrong with a text, in words: the rule and what it found."""
    out = [f"{rule}: {m[0]!r}" for rule, pattern in RULES.items() for m in pattern.finditer(text) if m[0] not in _FINE]
    for m in re.finditer(r"\b(an?) ([a-z]+)(?:[ -]|(?=[.,?'])|$)", text):
        sounds = _AN.match(m[2]) is not None and not _A.match(m[2])
        if sounds != (m[1] == "an"):
            out.append(f"article: {m[0]!r}")
    for m in re.finditer(
        r"\ban? (?:[a-z]+ )?([a-z]+)(?= (?:of|as|is|are|that|which|who|whose|with|in|than)\b|[.,?]|$)", text
    ):
        if _plural(m[1]) and not m[0].startswith("one of"):
            out.append(f"one of many: {m[0]!r}")
    for m in re.finditer(
        r"\b(?:(?<!one of )whose|[Ii]ts|[Tt]heir|\w's|which the|whom the) ([a-z]+(?: [a-z]+)*?) (is|are)\b", text
    ):
        head = re.split(r" (?:of|in|per|by)\b", m[1])[0].split()[-1]
        if (m[2] == "are") != _plural(head):
            out.append(f"number: {m[0]!r}")
    for m in re.finditer(
        r"\b(?:an?|the|whose|[Ii]ts|[Tt]heir) (\w+ed|built|lit|born|made) (?:of|is|are|falls|than)\b", text
    ):
        if m[1] not in _NOUN:
            out.append(f"a participle as a noun: {m[0]!r}")
    return out


_FINE = {"that that", "had had", "Mere Mere"}


def _plural(noun: str) -> bool:
    return noun.endswith("s") and noun not in _ONE and not noun.endswith(("ss", "us", "is"))


def question_faults(text: str) -> list[str]:
    """The faults of a whole question: those of its text, and how its sentences begin and end."""
    out = faults(text)
    if not re.match(r"(?:What|Who|Name|Tell me|Give|Can you|I have|I am|Consider|There is)\b", text):
        out.append(f"begins: {text[:20]!r}")
    if text[-1:] not in ".?" or text.count("?") > 1:
        out.append(f"ends: {text[-20:]!r}")
    out += [f"small letter: {m[0]!r}" for m in re.finditer(r"[.?] [a-z]\w*", text)]
    return out
