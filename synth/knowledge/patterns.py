"""A few patterns of English sentences that state a fact about their page. Deterministic, and each in linear
time.

They read only the first sentences, and among these the first one and those that begin with the page's name or a
pronoun, because a page describes its subject there. Recall is low by design: patterns are chosen for precision
(tests/synth/knowledge/test_document_sources.py has a hand-made set).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from synth.knowledge.kinds import NATIONS, joined
from synth.knowledge.words import article, is_person
from synth.quantities import MONTHS, find_date

LEAD = 3000  # characters from the beginning that are read
_SMALL = r"(?:of|the|de|la|le|du|des|von|van|der|den|da|di|del|al|bin|ibn)"
NAME = (
    r"[A-Z\u00c0-\u00de][\w.'\u2019-]*"
    rf"(?:[ ](?:{_SMALL}[ ]){{0,2}}(?:[dDlL]['\u2019])?[A-Z\u00c0-\u00de0-9][\w.'\u2019-]*){{0,5}}"
)
_END_OF_NAME = (
    r"(?=\s*[.,;:()\"\u201d]|\s*$"
    r"|\s+(?:in|on|and|at|for|with|as|from|to|who|which|that|by|of|his|her|its|starring|based|during|after|when|where|until|aged|under)\b)"
)
_YEAR = r"(?P<y>1\d{3}|20\d{2})\b"
_CLAUSE = (
    r"(?=\s*[.,;:()]|\s*$|\s+(?:of|in|from|who|which|that|by|at|on|and|or|located|situated|founded|born|with|for|between|to|written"
    r"|directed|produced|based|adapted|starring|featuring|about|as|near|whose)\b)"
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
        (
            "performed_by",
            "performer",
            "name",
            r"\b(?:song|single|album|track|ballad|EP|performed|recorded|sung)(?: \w+)? by (?:the )?"
            rf"(?:[\w-]+ ){{0,4}}?(?P<y>{NAME}){_END_OF_NAME}",
        ),
        (
            "author",
            "author",
            "name",
            rf"^.{{0,80}}? (?:is|was) an? [^.,]{{0,40}}?(?:novel|book|memoir|novella) by (?:[\w-]+ ){{0,3}}?(?P<y>{NAME}){_END_OF_NAME}",
        ),
        (
            "place",
            "place",
            "name",
            r"\b(?:village|town|city|municipality|commune|hamlet|suburb|river|lake|mountain|island|county|castle|church|"
            rf"school|university|museum|college|station)(?: and [a-z]+)? (?:in|on) (?:the )?(?P<y>{NAME}){_END_OF_NAME}",
        ),
        (
            "headquarters",
            "headquarters",
            "name",
            rf"\b(?:headquartered|based) in (?:the )?(?P<y>{NAME}){_END_OF_NAME}",
        ),
        ("music_by", "composer", "name", rf"\bmusic (?:is |was )?(?:composed )?by (?P<y>{NAME}){_END_OF_NAME}"),
        (
            "screenplay_by",
            "screenwriter",
            "name",
            rf"\bscreenplay (?:is |was )?(?:written )?by (?P<y>{NAME}){_END_OF_NAME}",
        ),
        (
            "school",
            "school",
            "name",
            rf"\b(?:educated at|studied at|attended|graduated from|graduate of) (?:the )?(?P<y>{NAME}){_END_OF_NAME}",
        ),
        ("sibling", "sibling", "name", rf"\b(?:brother|sister) of (?:[a-z]+ ){{0,2}}?(?P<y>{NAME}){_END_OF_NAME}"),
        ("parent", "parent", "name", rf"\b(?:son|daughter|child) of (?:\w+ ){{0,2}}?(?P<y>{NAME}){_END_OF_NAME}"),
        (
            "spouse",
            "spouse",
            "name",
            rf"\b(?:married(?: to)?|wife of|husband of) (?:\w+ ){{0,2}}?(?P<y>{NAME}){_END_OF_NAME}",
        ),
    )
)
_STARRING = re.compile(
    rf"\b(?:starring|stars|featuring) (?P<y>{NAME}(?:(?:, and |, | and ){NAME}){{0,9}})(?=\s*[.,;()]|\s*$|\s+(?:in|as|with|who)\b)"
)
_SECOND = re.compile(
    r"(?:\s+and (?:of )?|,\s+and (?:of )?(?=h(?:is|er) ))(?:(?:his|her) (?:first |second |third )?(?:wife |husband ))?"
    rf"(?P<y>{NAME}){_END_OF_NAME}"
)
_UNSURE = re.compile(
    r"\b(?:possibly|perhaps|probably|apparently|reportedly|allegedly|supposedly|presumably|may|might)\b"
)
_COPULA = re.compile(r"\b(?:was|is|were|are|as|became)\b")
_OTHERS = re.compile(r"\b(?:whom|whose|which)\b")
_LAST = re.compile(r"\b(?:was|is) .*, and (?:the |an? )?(?:\w+ ){0,2}$")
_ANOTHER_VERB = re.compile(r"\b(?:married|who|whose|which|whom)\b")
_NAME_WHO = re.compile(r"[A-Z][\w.'\u2019-]*[,)]?\s+who\b[^,;]*$")
_KIN_WHO = re.compile(r"\b(?:daughter|son|sister|brother|niece|nephew)\b.*\bwho\s+$")
_KIN = re.compile(r"\b(?:daughter|son|sister|brother|father|mother|niece|nephew)\b")
_BORN = re.compile(r"\bborn\b(?![^();]* to )[^();]*,\s+(?:as )?(?:the|an?)\b[\w -]*$")
_SOURCE = re.compile(
    r"\b(?:based (?:up)?on|adapted from|adaptation of|version of|from (?:the|an?) (?:\w+ )?(?:novel|book|play|story|song))\b"
)
_SAID_OF_ANOTHER = re.compile(r"[,)\"\u201d]\s*(?:which|that|who) (?:was|were|is|are)\s*$")
_ANOTHER_WORK = re.compile(
    r"\b(?:which|that) (?:had|has|was|were)\b[^;]*\b(?:into|as)\b[^;]*$"
)  # "which was made into a film"
_COMPANY = re.compile(
    r"\b(?:Brothers|Bros|Pictures|Films?|Studios?|Productions?|Entertainment|Company|Corporation|Inc|Ltd|Media|Records)\.?$"
)
_TITLE = re.compile(
    r",\s+(?P<t>(?:\d+(?:st|nd|rd|th) )?(?:King|Queen|Prince|Princess|Duke|Duchess|Count|Countess|Earl|Marquess|Margrave|Landgrave"
    rf"|Baron|Baroness|Viscount|Lord|Lady|Elector|Archduke|Grand Duke|Crown Prince) (?:of )?{NAME}|(?P<e>Holy Roman Emp(?:eror|ress))){_END_OF_NAME}"
)
_OTHER_PLACE = re.compile(r"\s+and [A-Z\u00c0-\u00de][\w'\u2019-]*(?=\s*[.,;()]|\s*$|\s+(?:and|by|in|who)\b)")
_SHARED = re.compile(r"\s+and [A-Z][\w'-]* [A-Z]")  # "Nick and Charles Kenny"
_KIN_OF = ("parent", "sibling", "spouse")
_GIVEN_ALONE = re.compile(r"^[\w'-]+(?: [IVX]+)?$")  # many are called William, and many are called William II
_GIVEN = re.compile(r"[A-Z][\w-]*(?: [A-Z][\w-]*)?(?: [IVX]+)?")
_IN_NAMES = frozenset("of the and or de la du von van der den y".split())
_PIECES = ("song", "single", "album", "track", "ballad", "EP")
_SCHOOLS = "Institute|School|College|Academy"
_CUT = tuple(  # (end of a name, what follows it) where the name is cut
    (re.compile(end), re.compile(rest))
    for end, rest in (
        (r"(?:^|\s)[A-Z]$", r"\.?\s+[A-Z]|\.?\s*[\"\u201c]"),  # "D" of "D. Rao"
        # "the Institute of Theatre and Cinematographic Art", "the Munich Academy for Television"
        (rf"\b(?:{_SCHOOLS}|Faculty|Department|Conservatory) of [A-Z][\w-]*$", r"\s+and [A-Z]"),
        (rf"\b(?:{_SCHOOLS}|University|Conservatory)$", r"\s+for [A-Z]"),
        (r"^[^ ]+$", r"\s*\((?:n\u00e9e )?[A-Z][\w-]*\)"),  # "Louise (Monin)"
        ("", r"(?:, [A-Z]\w*)*,?\s*&"),  # "Blood, Sweat & Tears"
    )
)
_HE_OR_SHE = re.compile(r"\b(?:[Hh]e|[Ss]he)\b")
LABELS = {"starring": "actor", "nationality": "nationality", "genre": "genre", "occupation": "occupation"} | {
    relation: label for relation, label, _, _ in _PATTERNS
}
KINDS = {"starring": "name"} | {relation: kind for relation, _, kind, _ in _PATTERNS}
OF_PEOPLE = frozenset(("born", "died", "born_in", "died_in", "parent", "spouse", "sibling", "school"))
OF_WORKS = frozenset(
    ("directed_by", "written_by", "produced_by", "composed_by", "music_by", "screenplay_by", "performed_by", "author")
) | {"starring"}
OF_THINGS = OF_WORKS | {"headquarters", "place", "located_in", "founded_year", "released_year", "part_of", "flows_into"}
RANGES = dict.fromkeys(OF_WORKS | {"parent", "spouse", "sibling", "founded_by"}, "person") | dict.fromkeys(
    ("born_in", "died_in", "located_in", "place", "headquarters", "flows_into"), "place"
)
RANGES |= {"performed_by": "artist", "school": "school"}
# The wording of relations for which "the {label} of {x}" is not idiomatic: passage, forward, inverse.
TEMPLATES = {
    "link": (
        "The page of {x} links to {y}.",
        "{an} {range} to which the page of {x} links",
        "{a} {domain} whose page links to {y}",
    ),
    "mention": (
        "The page of {x} mentions {y}.",
        "{an} {range} whom the page of {x} mentions",
        "{a} {domain} whose page mentions {y}",
    ),
    "directed_by": ("{x} was directed by {y}.", "the person who directed {x}", "{a} {domain} that was directed by {y}"),
    "written_by": ("{x} was written by {y}.", "the writer of {x}", "{a} {domain} that was written by {y}"),
    "produced_by": ("{x} was produced by {y}.", "the person who produced {x}", "{a} {domain} that was produced by {y}"),
    "composed_by": ("{x} was composed by {y}.", "the person who composed {x}", "{a} {domain} that was composed by {y}"),
    "music_by": ("The music of {x} is by {y}.", "the composer of the music of {x}", "{a} {domain} with music by {y}"),
    "screenplay_by": (
        "The screenplay of {x} is by {y}.",
        "the screenwriter of {x}",
        "{a} {domain} with a screenplay by {y}",
    ),
    "performed_by": (
        "{x} was performed by {y}.",
        "the artist who performed {x}",
        "{a} {domain} that was performed by {y}",
    ),
    "author": ("{x} was written by {y}.", "the author of {x}", "{a} {domain} that was written by {y}"),
    "founded_by": ("{x} was founded by {y}.", "the founder of {x}", "{a} {domain} that was founded by {y}"),
    "starring": ("{x} stars {y}.", "{an} {range} who plays in {x}", "{a} {domain} that stars {y}"),
    "born_in": ("{x} was born in {y}.", "the place of birth of {x}", "{a} {domain} who was born in {y}"),
    "died_in": ("{x} died in {y}.", "the place of death of {x}", "{a} {domain} who died in {y}"),
    "located_in": ("{x} is located in {y}.", "the location of {x}", "{a} {domain} located in {y}"),
    "place": ("{x} is in {y}.", "the place of {x}", "{a} {domain} in {y}"),
    "headquarters": ("{x} is based in {y}.", "the headquarters of {x}", "{a} {domain} based in {y}"),
    "flows_into": ("{x} flows into {y}.", "the place that {x} flows into", "{a} {domain} that flows into {y}"),
    "part_of": ("{x} is part of {y}.", "the whole that {x} is part of", "{a} {domain} that is part of {y}"),
    "school": ("{x} studied at {y}.", "the school of {x}", "{a} {domain} who studied at {y}"),
    "parent": ("{x} is a child of {y}.", "a parent of {x}", "{a} {domain} who is a child of {y}"),
    "sibling": ("{x} is a sibling of {y}.", "a sibling of {x}", "{a} {domain} who is a sibling of {y}"),
    "spouse": ("{x} is married to {y}.", "the spouse of {x}", "{a} {domain} who is married to {y}"),
    "genre": ("{x} belongs to the genre {y}.", "the genre of {x}", "{a} {domain} in the genre {y}"),
    "nationality": ("{x} is {y}.", "the nationality of {x}", "{a} {domain} that is {y}"),
    "occupation": ("The occupation of {x} is {y}.", "the occupation of {x}", "{a} {domain} whose occupation is {y}"),
}


def template_words(key: str, domain: str, range: str) -> dict[str, str]:
    """passage, forward and inverse of a relation of TEMPLATES between two types."""
    that, whom = ("who" if is_person(domain) else "that"), ("whom" if is_person(range) else "that")
    passage, forward, inverse = TEMPLATES[key]
    forward = forward.replace("{an} {range}", article(range.replace("_", " "), range)).replace(" whom ", f" {whom} ")
    inverse = inverse.replace("{a}", article("", domain).strip()).replace(" that ", f" {that} ")
    return {"passage": passage, "forward": forward, "inverse": inverse}


_FIRST_ONLY = {"kind"}  # a later "he was a ..." is often about one period of somebody's life
_SEVERAL = {"starring", "parent"}
MANY = OF_WORKS | {"parent", "spouse", "sibling", "school", "founded_by"}  # of which one thing may have several
_LIFE = re.compile(r"\(\s*(?:born )?(?P<a>[\w ,.]{8,24}?)\s*[\u2013\u2014-]\s*(?P<b>[\w ,.]{8,24}?)\s*\)")
_NO_LIFE = re.compile(r"^(?!.*(?:\b\d{3,4}\b|\bBC\b|\?)).*\d")  # "(Ordinance 89-287 of 9 November 1989)"
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
    """The spans [start, end) of the sentences of the lead, none longer than 600 characters (longer text is not a
    sentence)."""
    at = 0
    lead = text[:LEAD]
    for gap in [*_END.finditer(lead), None]:
        end = gap.start() if gap else len(lead)
        if 0 < end - at <= 600:
            yield at, end
        at = gap.end() if gap else end


def read_sentences(text: str, title: str, aliases: tuple[str, ...] = ()) -> Iterator[tuple[int, int, bool]]:
    """(start, end, whether it is about the page) of the sentences of the lead but its heading: about the page is the first one,
    and one that begins with the page's name or with its pronoun."""
    words = tuple(title.split()[:1]) + tuple(a.split()[0] for a in aliases if a.split())
    other = _other_pronoun(text[:LEAD])
    first = True
    for start, end in sentences(text):
        sentence = text[start:end]
        if sentence.strip() == title:  # a heading is not a sentence
            continue
        pronoun = _PRONOUN.match(sentence)
        about = first or sentence.startswith(words) or (pronoun is not None and pronoun[0] != other)
        yield start, end, about
        first = False


def statements(text: str, title: str, aliases: tuple[str, ...] = ()) -> Iterator[Found]:
    """The statements of the first sentences of a page, in order; only the first mention of each relation."""
    seen: set[str] = set()
    lead = text[:LEAD]
    for i, (start, end, about) in enumerate(read_sentences(text, title, aliases)):
        if not about:
            continue
        for relation, value, kind in _of(text[start:end], lead, first=i == 0):
            if value and (relation not in seen or relation in _SEVERAL):
                seen.add(relation)
                yield Found(relation, value, kind, start, end)


def _other_pronoun(lead: str) -> str:
    """ "She" on a page that first says "he", and the other way round: a sentence that begins with it is about somebody
    else."""
    first = _HE_OR_SHE.search(lead)
    return "" if first is None else "She" if first[0].lower() == "he" else "He"


def _of(sentence: str, lead: str, *, first: bool) -> Iterator[tuple[str, str, str]]:
    life = _LIFE.search(sentence[:400]) if first else None
    if life and not _NO_LIFE.search(life["a"]):
        for side, relation in (("a", "born"), ("b", "died")):
            parsed = find_date(life[side])
            if parsed:
                yield relation, parsed[0], "date"
    for relation, _, kind, pattern in _PATTERNS:
        m = pattern.search(sentence) if first or relation not in _FIRST_ONLY else None
        if m is None or not _of_the_subject(relation, m[0], sentence[: m.start()]):
            continue
        value, end = m["y"].strip(" .,'\u2019"), m.end("y")
        if relation == "kind" and value:
            value = joined(value, sentence[end:])
        if kind == "date":
            date = find_date(value)
            value = date[0] if date and date[1] <= 4 else ""
        elif kind == "name":
            if value.partition(" ")[0].lower() in MONTHS:  # "born in April 1950"
                continue
            if _is_cut(value, sentence[end:]):
                continue
            if RANGES.get(relation) in ("person", "artist"):
                value, end = _person(relation, value, sentence, end, lead)
        yield relation, value, kind
        if relation == "parent" and (second := _SECOND.match(sentence, end)) is not None:
            yield relation, _person(relation, second["y"].strip(" .,'\u2019"), sentence, second.end("y"), lead)[0], kind
    cast = _STARRING.search(sentence)
    if cast is not None and not _ANOTHER_WORK.search(sentence[: cast.start()]):
        for name in re.split(r", and |, | and ", cast["y"]):
            yield "starring", name.strip(" .,'\u2019"), "name"


def _person(relation: str, name: str, sentence: str, end: int, lead: str) -> tuple[str, int]:
    """The name of a person or an artist with what belongs to it, "" if it is none, and where it ends in the sentence."""
    name, end = _with_both_places(name, sentence, end)
    name, end = _with_title(name, sentence, end, lead)
    nobody = _COMPANY if relation == "produced_by" else _GIVEN_ALONE if relation in _KIN_OF else None
    if not name or (nobody is not None and nobody.search(name)):
        return "", end
    name = _whole(name, sentence, lead)
    if " " not in name and _SHARED.match(sentence, end):
        return "", end
    return name, end


def _of_the_subject(relation: str, words: str, before: str) -> bool:
    """Whether `words`, which come after the text `before` of a sentence, are said of the sentence's subject: not "he
    married Anna, daughter of Karl", not "the first of many films with the song, which was written by Irving Berlin"."""
    clause = re.split(r"[,;()]", before)[-1]
    if _UNSURE.search(clause) or (_UNSURE.search(before) and _KIN.search(before)):
        return False
    if relation in ("parent", "sibling") or words.startswith(("wife", "husband")):
        if _OTHERS.search(clause) or re.search(r"\bwho\b", clause):
            return False
        if _COPULA.search(clause) or (relation == "parent" and _BORN.search(before)):
            return True
        return _in_apposition(before) or (_LAST.search(before) is not None and not _ANOTHER_VERB.search(before))
    if relation == "spouse":
        return not any(
            pattern.search(text)
            for pattern, text in ((_OTHERS, clause), (_KIN, clause), (_NAME_WHO, before), (_KIN_WHO, before))
        )
    if relation == "performed_by" and words.startswith(_PIECES):
        return _COPULA.search(clause) is not None
    if relation in OF_WORKS:
        return _SAID_OF_ANOTHER.search(before) is None and _SOURCE.search(clause) is None
    return True


def _in_apposition(before: str) -> bool:
    """Whether the text before a phrase names nobody but the page's subject: its name alone ("Louis I, Count of Nevers
    (1272-1322), eldest"), or what it is ("was an English nobleman, the second")."""
    parts = re.sub(r"\([^()]*\)", " ", before).split(",")
    head = ",".join(parts[:-1])
    is_a = re.search(r" (?:was|is) (?:an?|the|of) (.*)", head)
    if is_a is not None:
        return all(not w[0].isupper() or w in NATIONS for w in re.findall(r"[^\W\d_][\w'-]*", is_a[1]))
    words = head.replace(",", " ").split()
    return 2 <= len(parts) <= 3 and bool(words) and all(not w[0].islower() or w in _IN_NAMES for w in words)


def _is_cut(name: str, after: str) -> bool:
    """Whether a name ends amid what it names, by its end and by what follows it."""
    return any(end.search(name) and rest.match(after) for end, rest in _CUT)


def _with_both_places(name: str, sentence: str, end: int) -> tuple[str, int]:
    """ "Andrew of Greece" with "and Denmark", where a third name follows or the sentence had both together before; and
    where the name ends."""
    place = re.search(r" of ([A-Z][\w'-]*)$", name)
    other = re.compile(r"\s+and ([A-Z][\w'-]*)(?![\w'-]| [A-Z])").match(sentence, end) if place else None
    if place is None or other is None:
        return name, end
    both = f"{place[1]} and {other[1]}"
    if both in sentence[: end - len(name)] or re.match(r"\s+and\b", sentence[other.end() :]):
        return f"{name} and {other[1]}", other.end()
    return name, end


def _with_title(name: str, sentence: str, end: int, lead: str) -> tuple[str, int]:
    """A given name with the title behind it, without which nobody knows who is meant ("Albert, 8th Prince of Thurn and
    Taxis"), and where it ends. "" where "and" may begin another place of the title or another person."""
    title = _TITLE.match(sentence, end) if _GIVEN.fullmatch(name) else None
    if title is None:
        return name, end
    end = title.end()
    if (other := _OTHER_PLACE.match(sentence, end)) is not None:  # "and Pyrmont", "and Stephanie"
        both = " ".join(sentence[title.start("t") : other.end()].split()[-3:])
        if lead.count(both) < 2 and not re.match(r",? and\b", sentence[other.end() :]):
            return "", end
        end = other.end()
    return f"{name}, {' '.join(sentence[title.start('t') : end].split())}".rstrip("."), end


def _whole(name: str, sentence: str, lead: str) -> str:
    """A person's full name as the sentence gives it: "written by Raffill" after "directed by Stewart Raffill". "" for
    half a name that only another sentence completes, and for text that begins with a nationality, which is not a
    name."""
    first, _, rest = name.partition(" ")
    if first in NATIONS and first not in ("Roman", "German"):
        return ""
    if rest:
        return name
    for text in (sentence, lead):
        longer = re.search(rf"((?:[A-Z][\w.'-]* ){{1,2}}{re.escape(name)})\b", text)
        if longer and longer[1].split(" ")[0] not in NATIONS:
            return longer[1] if text is sentence else ""
    return name


def also_known_as(text: str) -> list[str]:
    """Other names that the first sentence gives."""
    first = next(sentences(text), None)
    return [m["y"].strip(" .,") for m in _ALSO.finditer(text[slice(*first)])] if first else []
