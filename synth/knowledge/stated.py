"""Whether a sentence states a fact, decided by its words alone: a second route for facts that a model read.

A fact is refused where something in the sentence speaks against it: a name that is not there or only half there, no word
of the relation, a negation, a hedge, another number, unit or date, another event in between, or swapped roles. What is not
refused may still be wrong: the check knows words and their order, and no grammar.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from synth.knowledge.kinds import NATIONS
from synth.knowledge.names import fold
from synth.knowledge.words import UNITS, singular
from synth.quantities import MONTHS, Quantity, find_date, quantity

WHY = {  # reason -> what is wrong
    "subject_not_in_sentence": "the sentence does not name the subject",
    "object_not_in_sentence": "the sentence does not have the object",
    "relation_not_in_sentence": "no word of the sentence stands for the relation",
    "cut_name": "a name goes on beyond what was copied",
    "negated": "the sentence says that something is not so",
    "hedged": "the sentence does not say it for certain",
    "other_quantity": "the sentence has another number or unit",
    "other_date": "the sentence has another date",
    "other_kind": "the relation asks for another kind of object: a date, a number or a name",
    "other_statement": "the sentence says the object of another event or of another person",
    "swapped": "the sentence says it the other way round",
}
_LIGHT = frozenset(
    "a an the of in by to at on for from with as into is was were are be been has have had its his her their and or who "
    "which that name names after place date year day month time number first last main".split()
)
PREPOSITIONS = frozenset("of in by to at on for from with into near under after".split())
_AUXILIARY = frozenset("is was were are be been being".split())
# Words that may stand for each other; each line is one kind of event or property.
_GROUPS = tuple(
    frozenset(line.split())
    for line in (
        "born birth birthplace birthdate",
        "died death dies dead",
        "married marries marry spouse wife husband marriage wed wedded widow widower consort",
        "parent parents father mother son sons daughter daughters child children",
        "sibling siblings brother brothers sister sisters half-brother half-sister twin",
        "directed director direction directs directing directorial",
        "written writer writers wrote writes author authored authors novel novella memoir",
        "produced producer produces production",
        "composed composer composes",
        "founded founder founders founding foundation established establishment formed",
        "located situated location lies lie",
        "works worked work employer employed employee job",
        "member members membership joined",
        "studied studies education educated attended graduated graduate alma mater school university college",
        "starring stars star starred featuring features featured actor actors actress cast",
        "released release",
        "published publisher publishes publication",
        "built construction constructed builder erected",
        "owned owner owners owns",
        "headquartered headquarters based base",
        "taught teacher teaches",
        "led leader leads headed heads",
        "succeeded successor succeeds",
        "preceded predecessor",
        "height tall high elevation altitude",
        "length long",
        "width wide",
        "depth deep",
        "area size covers covered",
        "population inhabitants residents",
        "weight weighs weighed",
        "cost costs price",
        "buried burial grave",
        "award awarded awards prize",
        "won wins winner",
        "flows empties mouth",
        "discovered discoverer discovery discovers",
        "invented inventor invention",
        "designed designer architect design",
        "painted painter",
        "sung sang sings singer",
        "performed performer performs",
        "recorded recording",
        "resides residence resided lives lived home",
        "opened opening opens",
        "bought buyer buys acquired acquisition",
        "sold seller sells",
        "made maker makes manufactured manufacturer",
        "translated translator translation",
        "edited editor edits",
        "borders border neighbour neighbours neighbor bordering",
        "appointed appointment",
        "elected election",
        "crosses crossed spans",
        "spoken speaks language",
    )
)
_PARENTS = frozenset(("parent", "father", "mother"))
_CHILDREN = frozenset(("child", "son", "daughter"))
_EITHER_WAY = frozenset("married spouse wife husband marriage sibling brother sister twin border neighbour".split())
_AGENTS = frozenset(
    "director writer author producer composer founder builder owner teacher leader discoverer inventor designer "
    "architect painter singer performer publisher maker manufacturer translator editor buyer seller winner "
    "creator successor predecessor".split()
)
_MEASURES = frozenset(
    "height elevation altitude length width depth area population weight cost price speed budget".split()
)
_NAMED = frozenset(("parent", "place", "birthplace", "location", "city", "country", "author", "spouse", "employer"))
_PAST = frozenset("written wrote born built made won led taught sung sang sold bought wed spoken became held".split())
_NEGATION = re.compile(
    r"(?i)\b(?:not|never|no longer|neither|nor|none|den(?:y|ied|ies)|refus\w+|declin\w+ to|fail\w* to|reject\w+|cannot"
    r"|unlike|instead of|rather than|except|no)\b(?!\.)|n['\u2019]t\b"
)
_HEDGE = re.compile(
    r"\b(?:[Mm]ight|may|could|would have|if|whether)\b|(?i:\b(?:reported(?:ly)?|alleged(?:ly)?|supposed(?:ly)?|purported(?:ly)?"
    r"|possibl[ey]|perhaps|probabl[ey]|presumed|presumably|apparently|likely|unlikely|rumou?r\w*|believed?|thought|claim(?:s|ed)?|said to"
    r"|assumed|disputed|unknown|uncertain|unclear|according to|expected|planned|intended|proposed|suspected|attributed|legend"
    r"|tradition(?:ally)?)\b)"
)
_ABOUT = re.compile(
    r"(?i)(?:\b(?:about|around|circa|approximately|roughly|nearly|almost|over|than|up to|before|after|until|since|between|or|either)"
    r"|\bca?\.)\s*(?:the\s+)?$"
)
_OR = re.compile(r"\s*,?\s*(?:or|/)\b")
_TOKEN = re.compile(r"[^\W_]+|&")
_NUMBER = re.compile(
    r"[-+\N{MINUS SIGN}]?[$\N{EURO SIGN}\N{POUND SIGN}\N{YEN SIGN}]?\d[\d,]*(?:\.\d+)?"
    r"(?:\s?(?:hundred|thousand|million|billion|trillion)\b)?"
)
_UNIT_WORDS = frozenset(UNITS) | {w for words in UNITS.values() for w in words.lower().split()}
_UNIT_WORDS -= {"in", "an", "us"}
_NO_NOUN = frozenset(
    "when where while but during after before until since along between above below per it he she they".split()
)
_UNIT_WORDS |= {singular(w) for w in _UNIT_WORDS} | {
    "sq",
    "cubic",
    "meters",
    "kilometers",
    "metre",
    "meter",
    "kilometer",
}
_EVENT = re.compile(r"[^\W\d_]+(?:-[^\W\d_]+)*")
_IS = re.compile(r"\s*(?:\([^()]*\)\s*)?(?:,[^,]*,)?\s*(?:is|was|are|were|became|remains)\b")
_LIFE = re.compile(
    r"(?:,?\s*[JS]r\.?)?,?\s*\((?P<a>[^()\u2013\u2014]{8,90}?)\s*(?:[\u2013\u2014]|\s-|-\s)\s*(?P<b>[^()]{8,60})\)"
)
_RELATIVE = re.compile(r"\b(?:who|whose|whom|which)\b")
_APPOSITION = re.compile(r"[\w)\"\u201d'\u2019](?P<comma>,\s+)(?:(?!was\b|is\b|were\b|are\b)[a-z-]+\s+){0,4}$")
_BEFORE_A_NAME = (
    frozenset(MONTHS) | {w.lower() for w in NATIONS} | {"in", "on", "at", "by", "the", "of", "and", "with", "for"}
)
_BEFORE_A_NAME |= {
    "from",
    "when",
    "after",
    "during",
    "its",
    "his",
    "her",
    "a",
    "an",
    "as",
    "while",
    "although",
    "to",
    "mr",
}
_TITLES = frozenset(
    "sir dame dr prof lord lady saint st king queen prince princess general major captain mr mrs ms".split()
)
_AFTER_A_NAME = frozenset(("He", "She", "It", "They", "In", "The"))
_SUFFIXES = ("ments", "ment", "ings", "ing", "ions", "ion", "ers", "ors", "er", "or", "ed", "es", "s", "e")


class Span(NamedTuple):
    """The characters [start, end) of a sentence."""

    start: int
    end: int


@dataclass(frozen=True)
class Claim:
    """A fact as it was read off a sentence: the relation in words, the object as it was copied. subject: where the
    sentence names the subject, also by a pronoun."""

    subject: Span
    relation: str
    object: str


def places(name: str, sentence: str) -> list[Span]:
    """Where a sentence has a name, in any spelling that `fold` takes for one."""
    wanted = [_token(m[0]) for m in _TOKEN.finditer(name)]
    wanted = wanted[1:] if wanted[:1] == ["the"] else wanted
    tokens = [(_token(m[0]), m.start(), m.end()) for m in _TOKEN.finditer(sentence)]
    words = [t[0] for t in tokens]
    out = []
    for i in range(len(words) - len(wanted) + 1 if wanted else 0):
        if words[i : i + len(wanted)] == wanted:
            span = Span(tokens[i][1], tokens[i + len(wanted) - 1][2])
            if not _inside_a_number(sentence, span):
                out.append(span)
    return out


def _token(word: str) -> str:
    return "and" if word == "&" else fold(word)


def is_cut(sentence: str, span: Span, *, titled: bool = False) -> bool:
    """Whether a name goes on beyond a span: "Lothair" of "Lothair II", "Raffill" of "Stewart Raffill", "Hugh" of "Hugh of
    Tours". titled: "Felix Schuster" of "Sir Felix Schuster" is whole."""
    text = sentence[span.start : span.end]
    if not text[:1].isupper():
        return False
    after = sentence[span.end :]
    longer = re.match(r"(?:['\u2019]s)?[ -](?:(?:of|de|von|van|du|la|di|da)\s+(?:the\s+)?)?([A-Z][\w'\u2019]*)", after)
    if longer and not re.match(r"['\u2019]s", after) and longer[1] not in _AFTER_A_NAME:
        return True
    before = re.search(r"([\w.'\u2019-]+)[ -]$", sentence[: span.start])
    if before is None or not before[1][:1].isupper() or (titled and before[1].lower().strip(".") in _TITLES):
        return False
    begins = before.start() == 0 and len(before[1]) > 1  # the first word of a sentence may be any word
    return before[1].lower().strip(".") not in _BEFORE_A_NAME and not (begins and before[1].lower() in _LIGHT)


def fault(claim: Claim, sentence: str) -> str:
    """The reason (a key of WHY) for which the sentence does not state the claim; "" where nothing speaks against it."""
    said = object_in(claim.object, sentence, claim.relation)
    if isinstance(said, str):
        return said
    if not _is_of_kind(claim.object, claim.relation):
        return "other_kind"
    said = [span for span in said if span.end <= claim.subject.start or claim.subject.end <= span.start]
    if not said:
        return "object_not_in_sentence"
    if _in_lifespan(claim, sentence):
        return ""
    cues = _cues(claim.relation, sentence, [claim.subject])
    pairs = [(cue, span) for cue in cues for span in said if cue.end <= span.start or span.end <= cue.start]
    if not pairs:
        return "relation_not_in_sentence"
    faults = [_fault_at(claim, sentence, cue, span) for cue, span in sorted(pairs, key=lambda p: _gap(*p))]
    return "" if "" in faults and "swapped" not in faults else "swapped" if "" in faults else faults[0]


def _in_lifespan(claim: Claim, sentence: str) -> bool:
    """Whether a date of birth or death is that of the brackets behind the subject: "(14 July 1789 - 3 May 1850)"."""
    life = _LIFE.match(sentence, claim.subject.end)
    sides = {"birth": "a", "born": "a", "death": "b", "died": "b"}
    side = next((sides[w] for w in claim.relation.split() if w in sides), "")
    day = find_date(claim.object)
    told = find_date(life[side]) if life and side and day else None
    return (
        told is not None
        and day is not None
        and told[0] == day[0]
        and not re.search(r"\b(?:or|ca?|circa|about)\b", life[side] if life else "")
    )


def _is_of_kind(object: str, relation: str) -> bool:
    """Whether an object can be one of a relation: a date where a date is asked for, no number where a name is."""
    words = relation.split()
    counts = object[:1].isdigit() or object[:1] in "$\N{EURO SIGN}\N{POUND SIGN}" or find_date(object) is not None
    if "date" in words:
        return find_date(object) is not None
    if "year" in words or words[-1] in _MEASURES:
        return counts and (find_date(object) is None or "year" in words)
    head = next((w for w in words if w not in _LIGHT), "")
    named = _NAMED | _AGENTS | _PARENTS | _CHILDREN
    return not counts or not (words[0] in named or head in named or words[-1] == "by" or _is_either_way(head))


def _fault_at(claim: Claim, sentence: str, cue: Span, said: Span) -> str:
    of_longer = re.search(r"([A-Z][\w'\u2019-]*) (?:of|de|von|for)(?: the)? $", sentence[: said.start])
    if is_cut(sentence, said) or (of_longer and sentence[said.start].isupper() and of_longer.start(1) != cue.start):
        return "cut_name"
    spans = (claim.subject, cue, said)
    clause = _clause(sentence, min(s.start for s in spans), max(s.end for s in spans), aside=(claim.subject, said))
    if _NEGATION.search(clause):
        return "negated"
    counted = re.search(r"\d", claim.object) is not None
    unsure = _ABOUT.search(sentence[: said.start])
    if _HEDGE.search(clause) or _OR.match(sentence[said.end :]) or (unsure and (counted or unsure[0].strip() == "or")):
        return "hedged"
    if _another_event(claim.relation, sentence, cue, said) or _of_another(claim, sentence, cue, said):
        return "other_statement"
    if _before_its_verb(claim, sentence, cue, said):
        return "other_statement"
    return "swapped" if _swapped(claim, sentence, cue, said) else ""


def _gap(cue: Span, said: Span) -> tuple[int, int]:
    return max(said.start - cue.end, cue.start - said.end), cue.start


def _clause(sentence: str, start: int, end: int, *, aside: tuple[Span, ...]) -> str:
    """What lies between the semicolons around a part of a sentence, without the names `aside`."""
    for span in aside:  # "Do Not Marry, Girls" denies nothing
        sentence = sentence[: span.start] + "_" * (span.end - span.start) + sentence[span.end :]
    stop = sentence.find(";", end)
    return sentence[sentence.rfind(";", 0, start) + 1 : len(sentence) if stop < 0 else stop]


# ---- the object: a date, a number with its unit, or a name


def object_in(text: str, sentence: str, relation: str) -> list[Span] | str:
    """Where a sentence has the object, or the reason why not."""
    day = find_date(text)
    if day is not None and (day[1], day[2]) == (0, len(text)):
        same = [span for iso, span in _dates(sentence) if iso == day[0]]
        return same or "other_date"
    amount = quantity(text)
    if amount is not None and not re.fullmatch(r"[12]\d{3}", text):
        return list(_amounts(amount, sentence, relation)) or "other_quantity"
    spans = places(text, sentence)
    if re.fullmatch(r"\d{3,4}", text):  # a year: not one of a date, unless years are asked for
        within = [s for s in spans if any(d.start <= s.start and s.end <= d.end for _, d in _dates(sentence))]
        spans = spans if "year" in relation.split() else [s for s in spans if s not in within]
        counted = [s for s in spans if not _unit_after(sentence, s.end, relation)]
        return counted or ("other_date" if within else "other_quantity" if spans else "object_not_in_sentence")
    return spans or "object_not_in_sentence"


def _dates(sentence: str) -> Iterator[tuple[str, Span]]:
    at = 0
    while (found := find_date(sentence[at:])) is not None:
        yield found[0], Span(at + found[1], at + found[2])
        at += found[2]


def _amounts(wanted: Quantity, sentence: str, relation: str) -> Iterator[Span]:
    """Where a sentence has a number with the same unit; a bare number must not be followed by a unit."""
    for m in _NUMBER.finditer(sentence):
        ends = [m.end(), *(m.end() + w.end() for w in list(re.finditer(r"\s?[^\s,;:()]+", sentence[m.end() :]))[:4])]
        for end in ends:
            said = quantity(sentence[m.start() : end].rstrip(" .,"))
            if said is None or said.number != wanted.number or _unit(said.unit) != _unit(wanted.unit):
                continue
            if not _unit_after(sentence, end, relation, nouns=not wanted.unit) and not _inside_a_number(
                sentence, Span(m.start(), m.end())
            ):
                yield Span(m.start(), end)
                break


def _unit(text: str) -> str:
    low = text.lower().strip(". ")
    return UNITS.get(low, low).replace("meter", "metre")


def _unit_after(sentence: str, end: int, relation: str, *, nouns: bool = False) -> bool:
    """Whether a number or a measure goes on with (more of) a unit after `end`: "28,748" of "28,748 sq km". nouns: any noun
    but those of the relation is one: "340,000" of "340,000 copies"."""
    word = re.match(r"[\s-]?([^\W\d_]+[\u00b2\u00b3]?|[%\u00b0])", sentence[end:])
    if (
        word is None
        or word[1].lower() in relation.split()
        or singular(word[1].lower()) in map(singular, relation.split())
    ):
        return False
    low = word[1].lower()
    return low in _UNIT_WORDS or (nouns and low not in _LIGHT | PREPOSITIONS | _NO_NOUN)


def _inside_a_number(sentence: str, span: Span) -> bool:
    """Whether a span is digits of a longer number: "28" of "28,748"."""
    before, after = sentence[: span.start], sentence[span.end :]
    digits = sentence[span.start].isdigit() and re.search(r"\d[.,]?$", before) is not None
    return digits or (sentence[span.end - 1].isdigit() and re.match(r"[.,]?\d", after) is not None)


# ---- the relation: which word of the sentence stands for it, and who has which role


def _cues(relation: str, sentence: str, aside: list[Span]) -> list[Span]:
    """The words of a sentence that stand for the first word of a relation that has a meaning; () if another word of the
    relation has none there."""
    content = [w for w in re.findall(r"[^\W\d_]+(?:-[^\W\d_]+)*", relation.lower()) if w not in _LIGHT]
    words = [(m[0].lower(), Span(m.start(), m.end())) for m in re.finditer(r"[^\W\d_]+(?:-[^\W\d_]+)*", sentence)]
    words = [(w, s) for w, s in words if not any(a.start <= s.start and s.end <= a.end for a in aside)]
    found = [[s for w, s in words if _alike(w, own)] for own in content]
    return found[0] if found and all(found) else []


def _alike(word: str, other: str) -> bool:
    """Whether two words are forms of one, or listed as standing for each other."""
    if word == other or _stem(word) == _stem(other):
        return True
    return any(word in group and other in group for group in _GROUPS)


def _stem(word: str) -> str:
    word = singular(word)
    for suffix in _SUFFIXES:
        if word.endswith(suffix) and len(word) - len(suffix) >= 3:
            word = word.removesuffix(suffix)
            break
    return word[:-1] if len(word) > 3 and word[-1] == word[-2] else word  # "planned"


def _another_event(relation: str, sentence: str, cue: Span, said: Span) -> bool:
    """Whether an event that is not the relation's lies between its word and the object: "born in London and died in
    Paris". Words joined to it ("directed and produced by") share its object."""
    forward = cue.end <= said.start
    between = sentence[cue.end : said.start] if forward else sentence[said.end : cue.start]
    counts = sentence[said.start].isdigit() or find_date(sentence[said.start : said.end]) is not None
    if counts and (re.search(r"\d", between) or (not forward and re.search(r"\band\b|,", between))):
        return True  # "a speed of 240 km/h and a span of 9 m"
    if forward:
        between = re.sub(r"^(?:\s*(?:,|and|or|,\s*and)\s+(?:co-)?\w+(?=\s+(?:by|and)\b|,|$))+", "", between)
    else:
        between = re.sub(r"(?:\w+\s*(?:,\s*and|,|and|or)\s+)+$", "", between)
    groups = [g for g in _GROUPS if any(w in g for w in re.findall(r"[\w-]+", relation.lower()))]
    events = [w for w in _EVENT.findall(between.lower()) if any(w in g for g in _GROUPS)]
    events = [w for w in events if _acts(w, between.lower())]
    return any(not any(w in g for g in groups) and not _alike(w, relation.split()[0]) for w in events)


def _acts(word: str, text: str) -> bool:
    """Whether a listed word is a verb in a text, or has an "of" or "by" of its own."""
    if is_verb(word) or _is_third_person(word) or word.endswith("ing"):
        return True
    mark = rf"\b(?:that|which|who|and|film|it|he|she) {word}\b|\b{word} (?:of|by)\b"
    return re.search(mark, text) is not None


def _of_another(claim: Claim, sentence: str, cue: Span, said: Span) -> bool:
    """Whether the relation is said of a third person: "She married Otto, who was born in Linz", "born in Linz, the capital of
    Austria"."""
    ends = (claim.subject, said)
    if all(s.end <= cue.start for s in ends) and re.match(r"\s+of\s+(?:[a-z]+\s+){0,4}[A-Z]", sentence[cue.end :]):
        return True  # "born at Eisenach, a son of Adolf"
    nearest = max((s.end for s in ends if s.end <= cue.start), default=0)
    before = sentence[nearest : cue.start]
    relative = _RELATIVE.search(before)
    if relative:
        antecedent = re.search(
            r"([\w'\u2019-]+)\W*(?:(?:with|of|to|by|for|in|on|from|at) )?$", before[: relative.start()]
        )
        if nearest != claim.subject.end:
            return antecedent is not None
        if antecedent and (antecedent[1][:1].isupper() or not _IS.match(before)):
            return True
    apposition = _APPOSITION.search(sentence[: cue.start])
    if apposition is None or not re.match(r"\s*(?:city|town|\w+)?\s*of\b", sentence[cue.end :]):
        return False
    comma = apposition.start("comma")
    head = re.sub(r"\s*\([^()]*\)$", "", sentence[:comma])
    return len(head) not in (claim.subject.end, said.end) and re.search(r"[A-Z][\w'\u2019-]*$", head) is not None


def _swapped(claim: Claim, sentence: str, cue: Span, said: Span) -> bool:
    """Whether the sentence gives subject and object each other's roles."""
    words = claim.relation.lower().split()
    head = next((w for w in words if w not in _LIGHT), "")
    word = sentence[cue.start : cue.end].lower()
    after = re.match(r"(?:\s+(?!by\b|of\b)[\w-]+){0,3}?\s+(by|of)\b", sentence[cue.end :])
    link = after[1] if after else ""
    follows = cue.end + after.end() if after else cue.end  # where the name behind "by" or "of" begins
    first = min((s for s in (claim.subject, said) if s.start >= follows), default=None)
    if link == "of" and first is not None and re.search(r",|\band\b", sentence[follows : first.start]):
        first = None  # "son of A and father of B"
    verb = is_verb(word) or (_is_third_person(word) and not after)
    by_agent = _by_agent(words, head)
    if _is_either_way(head):
        return False
    if link == "by" and by_agent and said.end <= cue.start and first != claim.subject:
        return True  # "recorded in A and produced by B"
    if word in _CHILDREN | _PARENTS and link == "of" and first is not None:
        return _kin_swapped(head, words[-1] == "of", word, first == said)
    if link == "by" and first is not None:
        agent = first
    elif link == "of" and first is not None and not verb:
        if quantity(claim.object) is not None:  # "a length of 312 km"
            return False
        if word in _AGENTS:
            agent = said if first == claim.subject else claim.subject
        else:  # "the capital of Norvia"
            return (first == claim.subject) if words[-1] == "of" else (first == said)
    elif verb and not _passive(sentence, cue):
        ahead = [s for s in (claim.subject, said) if s.end <= cue.start]
        if len(ahead) != 1:
            return False
        agent = ahead[0]
    elif verb:  # "was born in", "was awarded": the one who is acted upon comes first
        return said.end <= cue.start and claim.subject.start >= cue.end
    else:  # "a film starring A"
        return word == head and word.endswith("ing") and said.end <= cue.start and cue.end <= claim.subject.start
    if by_agent:
        return agent != said
    if words[-1] in PREPOSITIONS or is_verb(head) or _is_third_person(head):
        return agent != claim.subject and not (link == "by" and words[-1] not in PREPOSITIONS and len(words) > 1)
    return False


def _by_agent(words: list[str], head: str) -> bool:
    """Whether the object of a relation is the one who acts: "director", "directed by"."""
    return head in _AGENTS or words[-1] == "by"


def _before_its_verb(claim: Claim, sentence: str, cue: Span, said: Span) -> bool:
    """Whether the object stands between the subject and a verb, and so belongs to another one: B of "He studied at A, met B and
    worked for C"; not of "a film that B directed"."""
    words, word = claim.relation.lower().split(), sentence[cue.start : cue.end].lower()
    head = next((w for w in words if w not in _LIGHT), "")
    verb = is_verb(word) or _is_third_person(word) or word.endswith("ing") or _alike(head, "starring")
    if not verb or not (claim.subject.end <= said.start and said.end <= cue.start):
        return False
    return not (_by_agent(words, head) and not sentence[said.end : cue.start].strip())


def _is_third_person(word: str) -> bool:
    """Whether a listed word is a verb: "weighs", and not "writers"."""
    nouns = ("headquarters", "inhabitants", "residents")
    return word.endswith("s") and word not in nouns and any(word in g and singular(word) not in g for g in _GROUPS)


def _is_either_way(head: str) -> bool:
    return any(_alike(head, w) for w in _EITHER_WAY)


def is_verb(word: str) -> bool:
    """Whether a word looks like a verb in the past: "directed", "wrote"."""
    return word in _PAST or word.endswith("ed")


def _passive(sentence: str, cue: Span) -> bool:
    """Whether the verb is in the passive, or bare as in "a film directed in 1950"."""
    before = re.findall(r"[\w'\u2019-]+|,", sentence[: cue.start])[-3:]
    return bool(before) and any(w.lower() in _AUXILIARY for w in before[-2:])


def _kin_swapped(head: str, of: bool, word: str, object_behind: bool) -> bool:
    """ "X is a son of Y": Y is the parent. head: the word of the relation, with "of" behind it or not."""
    same = (head in _CHILDREN) == (word in _CHILDREN)
    if head not in _CHILDREN | _PARENTS:
        return False
    return object_behind != ((same and of) or (not same and not of))
