"""Facts that a language model reads off plain paragraphs. What it writes is never trusted: a fact is kept only if

1. its sentence says nothing against it, decided without the model (`synth.knowledge.stated`), and
2. the model reads it again: asked anew, with the object left out, it names the object, and with the subject left out the
   subject.

The model is a function from prompts to texts; nothing here opens a connection. Subjects are pages, as with the sentence
patterns: the page of the sentence, or another page that the sentence names.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from synth.knowledge.documents import Document
from synth.knowledge.names import fold
from synth.knowledge.patterns import LABELS, read_sentences
from synth.knowledge.stated import PREPOSITIONS, WHY, Claim, Span, fault, is_cut, is_verb, places
from synth.knowledge.text import tidy
from synth.knowledge.words import relation_name
from synth.quantities import date, quantity, without_note

Ask = Callable[[Sequence[str]], list[str]]  # prompts -> the texts of a model, in their order

EXTRACT = """Write down the facts that sentences state, one in a line, in this form:
number of the sentence | subject | relation | object
Copy subject and object from the sentence word for word, with the unit of a number. The relation is a short phrase in lower case.
Leave out what a sentence denies or does not say for certain. Write nothing else.

Sentences of a text about "Ada Kron":
1. Ada Kron was born in Zelton on 3 May 1901.
2. She married Otto Brandt and may have lived in Vael.
Facts:
1 | Ada Kron | place of birth | Zelton
1 | Ada Kron | date of birth | 3 May 1901
2 | She | spouse | Otto Brandt

Sentences of a text about "{title}":
{sentences}
Facts:"""
OBJECT = """Fill the gap with words of the sentence. Reply with these words alone, or with: none

Sentence of a text about "Ada Kron": She married Otto Brandt and moved to Vael.
She | spouse | ____
Answer: Otto Brandt

Sentence of a text about "{title}": {sentence}
{subject} | {relation} | ____
Answer:"""
SUBJECT = """Fill the gap with words of the sentence. Reply with these words alone, or with: none

Sentence of a text about "Ada Kron": She married Otto Brandt and moved to Vael.
____ | spouse | Otto Brandt
Answer: She

Sentence of a text about "{title}": {sentence}
____ | {relation} | {object}
Answer:"""
BATCH = 8  # sentences in one request
MOST_LINES = 6  # lines for one sentence; further ones are malformed
LONGEST = 120  # characters of a part of a line
_WORDS = 8  # the most words of a value or a relation
_REASONS = {
    "no_page": "the subject has no page",
    "not_a_name": "the object is prose or a pronoun",
    "object_not_confirmed": "asked again with the object left out, the model does not name it",
    "subject_not_confirmed": "asked again with the subject left out, the model does not name it",
}
_PAIR = re.compile(
    r"[^\W\d_][^:\n]{0,79}?[ \t]?:[ \t].*[^.!?\"\u201d)]$"
)  # a `key: value` line is read without a model
_PRONOUN = re.compile(
    r"(?:he|she|it|they|him|her|them|his|hers|its|their|this|that|these|who|which|one)$", re.IGNORECASE
)
_RELATION = re.compile(r"[^\W\d_][^\W_]*(?:[ '\u2019-]+[^\W_]+)*")
_SMALL = frozenset("of the and de la du von van der den di da del y al ibn bin".split())
_SUBJECT = re.compile(
    r"[\"\u201d]?\s*(?:\(|,|(?:is|was|were|are|born)\b)"
)  # what comes behind the subject of a first sentence
_ARTICLES = ("", "the", "a", "an", "of", "and")
_FIRST = re.compile(r"(?:He|She|It|They)\b")
_FORMS = {  # other words for the relations of the sentence patterns
    **{label: key for key, label in LABELS.items() if label not in ("location", "composer", "artist", "writer")},
    **{
        "birthplace": "born_in",
        "birth place": "born_in",
        "birth date": "born",
        "birthdate": "born",
        "death date": "died",
    },
    **{"birth year": "born", "year of birth": "born", "death year": "died", "year of death": "died"},
    **{"founded in": "founded_year", "established in": "founded_year", "founding year": "founded_year"},
    **{"released in": "released_year", "release year": "released_year", "published in": "released_year"},
    **{"writer": "written_by", "composer": "composed_by", "location": "located_in", "situated in": "located_in"},
    **{"married": "spouse", "married to": "spouse", "wife": "spouse", "husband": "spouse", "wife of": "spouse"},
    **{
        "husband of": "spouse",
        "spouse of": "spouse",
        "son of": "parent",
        "daughter of": "parent",
        "child of": "parent",
    },
    **{"father": "parent", "mother": "parent", "brother": "sibling", "sister": "sibling", "brother of": "sibling"},
    **{"sister of": "sibling", "sibling of": "sibling", "actor": "starring", "stars": "starring", "star": "starring"},
    **{"based in": "headquarters", "headquartered in": "headquarters", "studied at": "school", "educated at": "school"},
    **{"attended": "school", "graduated from": "school", "alma mater": "school"},
}
_ACTIVE = frozenset(
    "works flows stars lives owns plays borders lies contains teaches leads crosses serves speaks".split()
)


class Stopped(ValueError):
    """The model cannot be asked (any more); the message is for the user."""


@dataclass(frozen=True)
class Told:
    """A fact that both routes found. subject: the title of its page; relation: in words; value: as the sentence has it (a
    date in ISO form); start, end: the sentence in the text of `document`."""

    document: Document
    subject: str
    relation: str
    value: str
    start: int
    end: int


class Refused(NamedTuple):
    """A line of the model that is no fact: reason, what is wrong, the line and its sentence."""

    reason: str
    why: str
    document: Document
    start: int
    end: int
    line: str


@dataclass
class Outcome:
    """What a model read. counts: sentences, requests, lines, malformed, repeated, kept; stopped: why it was not asked to the
    end, "" if it was; nothing is kept then."""

    facts: list[Told] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    stopped: str = ""


class _Sentence(NamedTuple):
    document: Document
    start: int
    end: int
    about: bool  # the patterns take it to be about the page
    first: bool

    @property
    def text(self) -> str:
        return tidy(self.document.text[self.start : self.end])


class _Line(NamedTuple):
    sentence: _Sentence
    subject: str
    relation: str
    object: str

    def __str__(self) -> str:
        return f"{self.subject} | {self.relation} | {self.object}"


def read_facts(documents: Iterable[Document], known: Mapping[str, str], types: Mapping[str, str], ask: Ask) -> Outcome:
    """The facts that a model reads off the sentences of some pages and that pass both routes. known: name in lower case ->
    title; types: title -> type. Does not raise if the model cannot be asked: `Outcome.stopped` says why."""
    pages = _Pages(known, types)
    out = Outcome()
    batches = [batch for d in documents for batch in _batches(d)]
    out.counts["sentences"] = sum(map(len, batches))
    try:
        replies = _asked(ask, [extraction(batch[0].document.title, [s.text for s in batch]) for batch in batches], out)
        lines = [line for batch, reply in zip(batches, replies, strict=True) for line in _lines(batch, reply, out)]
        if out.counts["malformed"] and not lines:
            raise Stopped(
                f"the model wrote no line `number | subject | relation | object` in {len(replies):,} answers: name a larger model, or one "
                "that follows instructions"
            )
        likely = [(line, title) for line in lines if (title := pages.checked(line, out))]
        confirmed = _read_again(likely, pages, ask, out)
    except Stopped as error:
        out.stopped, out.refused = str(error), []
        return out
    for line, title in confirmed:
        s = line.sentence
        out.facts.append(Told(s.document, title, line.relation, _value(line.object), s.start, s.end))
    out.counts["kept"] = len(out.facts)
    return out


def extraction(title: str, sentences: Sequence[str]) -> str:
    """The prompt that asks for the facts of numbered sentences."""
    return EXTRACT.format(title=title, sentences="\n".join(f"{i}. {s}" for i, s in enumerate(sentences, 1)))


def relation_keys(relation: str) -> list[str]:
    """The names that a relation in words may have: that of a sentence pattern that means the same, then its own."""
    words = re.sub(r"^(?:(?:is|was|were|are|has|had|been|the|a|an)\s+)+", "", relation.lower().strip())
    own = relation_name(words)
    return list(dict.fromkeys((_FORMS.get(words, own), own)))


def verb_words(label: str, sentence: str) -> dict[str, str]:
    """passage, forward and inverse of a relation that is no noun: "works for", "directed", "buried in" (if the sentence has it
    in the passive), "member of"; {} for a noun."""
    first, last = label.split()[0], label.split()[-1]
    noun = not (is_verb(first) or first in _ACTIVE)
    if noun and (last not in PREPOSITIONS or first == last):
        return {}
    passive = re.search(rf"(?i)\b(?:is|was|were|are|been) (?:\w+ly )?{re.escape(first)}\b", sentence)
    be = "is " if noun else "was " if passive else ""
    return {
        "passage": f"{{x}} {be}{label} {{y}}.",
        "forward": f"what {{x}} {be}{label}",
        "inverse": f"the {{domain}} that {be}{label} {{y}}",
    }


# ---- the lines of a model


def _asked(ask: Ask, prompts: list[str], out: Outcome) -> list[str]:
    out.counts["requests"] += len(prompts)
    return ask(prompts) if prompts else []


def _batches(d: Document) -> Iterator[list[_Sentence]]:
    """The sentences of a page's plain paragraphs, some at a time."""
    some = []
    for i, (start, end, about) in enumerate(read_sentences(d.text, d.title, d.aliases)):
        quiet = any(a <= start < b for a, b in d.quiet)
        if quiet or _PAIR.match(d.text[start:end]) or len(d.text[start:end].split()) < 4:
            continue
        some.append(_Sentence(d, start, end, about, i == 0))
    for at in range(0, len(some), BATCH):
        yield some[at : at + BATCH]


def _lines(batch: Sequence[_Sentence], reply: str, out: Outcome) -> Iterator[_Line]:
    """The lines of one answer in their form; the others are counted."""
    seen: set[tuple[str, ...]] = set()
    of: Counter[int] = Counter()
    for raw in reply.splitlines():
        if not raw.strip() or raw.strip().lower().strip(".") == "none":
            continue
        out.counts["lines"] += 1
        parts = [tidy(p).strip('"\u201c\u201d`*') for p in raw.strip().strip("|").split("|")]
        number = (
            re.fullmatch(r"[-*(]?\s*(?:sentence\s*)?(\d{1,3})[.):]?", parts[0].lower()) if len(parts) == 4 else None
        )
        if len(parts) == 3 and len(batch) == 1:
            number, parts = re.match(r"(1)", "1"), ["1", *parts]
        at = int(number[1]) if number else 0
        parts[2:3] = [p.replace("_", " ").strip().lower() for p in parts[2:3]]
        whole = len(parts) == 4 and all(0 < len(p) <= LONGEST for p in parts) and len(parts[2].split()) <= _WORDS
        if not (whole and 1 <= at <= len(batch) and of[at] < MOST_LINES and _RELATION.fullmatch(parts[2])):
            out.counts["malformed"] += 1
            continue
        key = (str(at), *(p.lower() for p in parts[1:]))
        if key in seen:
            out.counts["repeated"] += 1
            continue
        seen.add(key)
        of[at] += 1
        yield _Line(batch[at - 1], parts[1], parts[2], parts[3].rstrip("."))


class _Pages:
    """The pages that can be subjects, and how sentences name them."""

    def __init__(self, known: Mapping[str, str], types: Mapping[str, str]) -> None:
        self.types = types
        self.titles: dict[str, str] = {}  # folded name -> title, "" for the name of several
        for name, title in known.items():
            key = fold(name)
            self.titles[key] = title if self.titles.get(key, title) == title else ""

    def checked(self, line: _Line, out: Outcome) -> str:
        """The title of a line's subject if its sentence says nothing against it, or "" and the line is refused."""
        sentence = line.sentence.text
        found = self.subject(line.subject, line.sentence)
        object = line.object
        if isinstance(found, str):
            reason = found
        elif _PRONOUN.match(object) or len(object.split()) > _WORDS or fold(object) in _ARTICLES:
            reason = "not_a_name"
        else:
            title, spans = found
            reasons = [fault(Claim(span, line.relation, object), sentence) for span in spans]
            reason = "" if "" in reasons else reasons[0]
            if not reason:
                return title
        _refuse(reason, line, out)
        return ""

    def subject(self, name: str, s: _Sentence) -> tuple[str, list[Span]] | str:
        """(title, where the sentence names it) of a subject as the model copied it, or the reason why there is none. A
        pronoun, and part of the page's name, stand for the page only where the patterns take them so: at the beginning of
        a sentence about the page. The name that begins the first sentence is the page's."""
        sentence, page = s.text, s.document
        own = {fold(n) for n in (page.title, without_note(page.title), *page.aliases) if n}
        key, spans = fold(name), places(name, sentence)
        begins = spans[0].start <= len("The ") if spans else False
        if key in own and spans:
            whole = [span for span in spans if not is_cut(sentence, span, titled=True)]
            return (page.title, whole) if whole else "cut_name"
        if s.about and key in own:
            begin = _FIRST.match(sentence) or re.match(re.escape(page.title.split()[0]) + r"\b", sentence)
            return (page.title, [Span(0, begin.end())]) if begin else "subject_not_in_sentence"
        if s.about and begins and (_FIRST.fullmatch(name) or self._is_kind(name, s)):
            return page.title, spans[:1]
        if s.about and begins and self._is_part(key, s) and not is_cut(sentence, spans[0]):
            return page.title, spans[:1]
        if not spans:
            return "subject_not_in_sentence"
        title = self.titles.get(key)
        if not title and s.first and begins and _SUBJECT.match(sentence, spans[0].end) and _is_name(name):
            return page.title, spans[:1]
        if not title:
            return "no_page"
        whole = [span for span in spans if not is_cut(sentence, span)]
        return (title, whole) if whole else "cut_name"

    def _is_part(self, key: str, s: _Sentence) -> bool:
        """Whether a folded name has only words of the page's title, or in the first sentence one word of it: "Klemens Franz,
        Prince of Bavaria" on the page "Duke Clement Francis of Bavaria"."""
        title = set(fold(s.document.title).split())
        return set(key.split()) <= title or (s.first and any(len(w) > 3 for w in title & set(key.split())))

    def _is_kind(self, name: str, s: _Sentence) -> bool:
        """Whether a name is "The film" in the first sentence of the page of a film."""
        words = fold(name).split()
        return s.first and s.text.startswith(("The ", "This ")) and words == [self.types.get(s.document.title, "")]


def _is_name(text: str) -> bool:
    """Whether all words begin with a capital letter, but small ones such as "of"."""
    return all(not w[0].islower() or w in _SMALL for w in re.findall(r"[^\W_]+", text))


def _refuse(reason: str, line: _Line, out: Outcome) -> None:
    s = line.sentence
    out.refused.append(Refused(reason, (WHY | _REASONS)[reason], s.document, s.start, s.end, str(line)))


# ---- the second reading


def _read_again(likely: Sequence[tuple[_Line, str]], pages: _Pages, ask: Ask, out: Outcome) -> list[tuple[_Line, str]]:
    """The lines whose object, and then whose subject, the model names when it is left out."""
    named = _asked(ask, [_prompt(OBJECT, line) for line, _ in likely], out)
    kept = []
    for (line, title), answer in zip(likely, named, strict=True):
        if any(_same(line.object, text) for text in _answers(answer, 2)):
            kept.append((line, title))
        else:
            _refuse("object_not_confirmed", line, out)
    named = _asked(ask, [_prompt(SUBJECT, line) for line, _ in kept], out)
    confirmed = []
    for (line, title), answer in zip(kept, named, strict=True):
        found = [pages.subject(text, line.sentence) for text in _answers(answer, 0)]
        if any(not isinstance(one, str) and one[0] == title for one in found):
            confirmed.append((line, title))
        else:
            _refuse("subject_not_confirmed", line, out)
    return confirmed


def _prompt(form: str, line: _Line) -> str:
    title, sentence = line.sentence.document.title, line.sentence.text
    return form.format(title=title, sentence=sentence, subject=line.subject, relation=line.relation, object=line.object)


def _answers(text: str, part: int) -> list[str]:
    """The first line of an answer, whole and as a list of names. Of a whole line `subject | relation | object`, which some
    models write, its part of that number."""
    line = next((tidy(x) for x in text.splitlines() if x.strip()), "")
    parts = line.strip("|").split("|")
    line = tidy(parts[part] if len(parts) == 3 else line).strip('"\u201c\u201d`*').rstrip(".").strip()
    line = line if len(line) <= 2 * LONGEST else ""
    return list(dict.fromkeys(x for x in (line, *re.split(r", and |, | and ", line)) if x))


def _same(one: str, other: str) -> bool:
    """Whether two texts are one name, date or quantity."""
    if fold(one) == fold(other):
        return True
    a, b = quantity(one), quantity(other)
    return (date(one) is not None and date(one) == date(other)) or (a is not None and a == b)


def _value(object: str) -> str:
    """An object as a value: without "the" before a name."""
    return re.sub(r"^the (?=[A-Z])", "", object)  # "The Hague" keeps its own
