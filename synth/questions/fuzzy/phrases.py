"""What can be said with one relation: at least four ways each, in either direction, as a clause ("that borders Norvia")
or a sentence.

Everything comes from the noun phrases of a `Relation`. A phrase for the subject given the object ("the country whose
capital is {y}") or for the object given the subject ("a country that the river {x} flows through") loses its article
and type, and what remains is a clause of
one of six kinds; each kind has its own paraphrases, and its own way to become a sentence:

    whose L is Y         with Y as its L, that has Y as its L, of which Y is the L       Its L is Y.  It has Y as its L.
    that V Y             which V Y                                                       It V Y.  This country V Y.
    that Y V             which Y V                                                       Y V it.  Y V this country.
    that is PLACE Y      which is PLACE Y                                                It is PLACE Y.
                                                                                         This country is PLACE Y.
    with THING Y         that has THING Y                                                It has THING Y.
                                                                                         This country has THING Y.
    where S Y            in which S Y                                                    There, S Y.
                                                                                         In this country, S Y.

A number or year takes the slot as words ("about 1,300"). An L of many is one of them ("with Y as one of its trading
partners"), and counted where it has no unit ("with about 150 airports"). "the {y}" is said of a name ("pays in the
Danish krone") and left out before a description ("pays in a currency that ..."). Users add clauses of their own per
relation and side.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from synth.knowledge.kb import Relation
from synth.knowledge.words import article, counted, deed_by, is_person, many
from synth.questions.fuzzy.spans import KINDS

SLOT = "\0"
NUMBERS = ("", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_ONLY = re.compile(r"(?:highest|lowest|longest|shortest|largest|smallest|deepest|oldest|newest|tallest|most recent) ")
SIDES = frozenset({"coast", "side", "bank", "shore"})  # on the north one, on the same one
_DEALINGS = {"loan", "review", "sale", "purchase", "auction", "restoration", "inspection", "repair", "survey", "report"}
_ARTICLE = re.compile(r"(?:a|an|the) ")


class Phrase(NamedTuple):
    """Words around one slot, for a clue about a variable of `type`.

    kind      what fills the slot: "same" (a name or description of what shares something with the variable), "name", "description" (or a name that says its type itself: no "the river Rio Grande
              river"), "none" (the words say that there is nothing: no slot), "span", "third" (no slot), "than" (a
              description), "initial"
    flag      of a third or comparison: top, more; of a name: how many words
    relation, forward   of the clue ("", True for names)
    """

    before: str
    after: str
    kind: str
    type: str
    relation: str = ""
    forward: bool = True
    flag: bool | int = False


def indefinite(noun: str) -> str:
    """The noun with its article, which is that of one for "highest court"."""
    return f"the {noun}" if _ONLY.match(noun) else article(noun, noun)


def counts(r: Relation) -> bool:
    """Whether the numbers of a relation count what its label names: airports, and no exports in dollars."""
    return counted(r.label) and re.search(r"\{label\} in (?!\{x\})", r.forward) is None


def spoken(type: str) -> str:
    """A type as it is said: underscores are spaces."""
    return type.replace("_", " ")


def plural(noun: str) -> str:
    """A type in the plural: countries, cities, people."""
    if noun == "person":
        return "people"
    if many(noun):
        return noun
    if re.search(r"[^aeiou]y$", noun):
        return noun[:-1] + "ies"
    return noun + ("es" if re.search(r"(?:s|x|z|ch|sh)$", noun) else "s")


class Words(NamedTuple):
    """Pronouns of a type."""

    that: str
    which: str
    its: str
    it: str
    subject: str
    owner: str
    other_subject: str
    other_owner: str

    @staticmethod
    def of(type: str) -> Words:
        name = spoken(type)
        if is_person(type):
            return Words(
                "who",
                "that",
                "their",
                "this " + name,
                f"This {name}",
                f"This {name}'s",
                f"The {name}",
                f"The {name}'s",
            )
        return Words("that", "which", "its", "it", "It", "Its", f"This {name}", f"This {name}'s")


class _Said(NamedTuple):
    """Texts with a SLOT."""

    clauses: list[str]
    sentences: list[str]


def phrases(r: Relation, forward: bool, extra: Sequence[str] = ()) -> Iterator[tuple[bool, Phrase]]:
    """(whether it is a sentence, phrase) of all that can be said of a variable that is the subject (`forward`) or the
    object of a relation."""
    type_, other = (r.domain, r.range) if forward else (r.range, r.domain)
    w = Words.of(type_)
    base = _clause(r.ask_back(SLOT) if forward else r.ask(SLOT), spoken(type_), w, r.functional)
    owned = re.fullmatch(rf"whose (.+) is {SLOT}", base)
    value = r.range in KINDS and forward
    noun = f"the {spoken(type_)}" if r.functional else indefinite(spoken(type_))
    deed = deed_by(spoken(type_)) or ("is the subject of" if other in _DEALINGS and not is_person(type_) else "")
    around = _of(base, noun, w, deed) if base == f"of {SLOT}" else None
    around = around or (None if value else _around_term(base, owned, r.functional, w))
    base_phrases = around or _around_value(r, owned is not None, base, w)
    more = [_variants(c.replace("{y}", SLOT), w) for c in extra]
    for texts in (base_phrases, *more):
        for sentence, some in ((False, texts.clauses), (True, texts.sentences)):
            for text in some:
                bare = re.sub(rf"\b[Tt]he (?:{re.escape(spoken(other))} )?{SLOT}", SLOT, text)
                if not value and re.search(rf"\b(?:is|are) {SLOT}$", text) and owned is None:
                    bare = _equal(r, sentence, w)  # "is American", but "has the nationality of ..."
                for kind, words in (("span", text),) if value else (("name", text), ("description", bare)):
                    before, _, after = words.partition(SLOT)
                    yield sentence, Phrase(before, after, kind, type_, r.name, forward)
                if not value and owned is None:
                    none = bare.replace(SLOT, f"no {spoken(other)}")
                    yield (
                        sentence,
                        Phrase(none[:1].upper() + none[1:] if sentence else none, "", "none", type_, r.name, forward),
                    )
    if forward and not value and not r.literal and r.domain != r.range:
        shared = _shared(r, base, w)
        for sentence, some in ((False, shared.clauses), (True, shared.sentences)):
            for text in some:
                yield sentence, Phrase(text, "", "same", type_, r.name, forward)
    if forward and not value and r.label in SIDES:
        yield from _beside(r, w, type_)
    if value or owned is not None:
        label = r.label if many(r.label) else indefinite(r.label)
        for text in (f"without {label}", f"{w.that} has no {r.label}", f"{w.which} has no {r.label}"):
            yield False, Phrase(text, "", "none", type_, r.name, forward)
        for text in (f"{w.subject} has no {r.label}", f"{w.other_subject} is without {label}"):
            yield True, Phrase(text, "", "none", type_, r.name, forward)
    if value and r.range == "number":
        yield from _ranked(r, w, type_)


def _beside(r: Relation, w: Words, type_: str) -> Iterator[tuple[bool, Phrase]]:
    """A side by its point of the compass: "on the north coast"."""
    for sentence, some in ((False, (w.that, w.which)), (True, (w.subject, w.other_subject))):
        for start in some:
            yield sentence, Phrase(f"{start} is on the ", f" {r.label}", "name", type_, r.name, True)


def _equal(r: Relation, sentence: bool, w: Words) -> str:
    return f"{w.owner} {r.label} is {SLOT}" if sentence else f"whose {r.label} is {SLOT}"


def _shared(r: Relation, base: str, w: Words) -> _Said:
    """There and back by one relation: what a variable has in common with another of its type."""
    label, several = r.label, many(r.label)
    if not r.functional:
        one = f"shares one of {w.its} {label} with " if several else f"has {indefinite(label)} in common with "
        return _Said([f"{w.that} {one}", f"{w.which} {one}"], [f"{w.subject} {one}", f"{w.other_subject} {one}"])
    there = re.fullmatch(
        rf"{w.that} ((?:(?:is|was) )?\w+ (?:at|in|from|on)) {SLOT}", base
    )  # "studied at the same school"
    where = there[1] if there else "is on" if label in SIDES else ""
    verb = "belongs to" if base == f"{w.that} is in the {label} {SLOT}" else where or "has"
    same = f"{verb} the same {spoken(r.range) if there else label} as "
    clauses = [f"{w.that} {same}", f"{w.which} {same}"]
    clauses += [f"with the same {label} as ", f"whose {label} is also that of "] if verb == "has" else []
    clauses += [same.removeprefix("is ")] if where == "is in" else []
    return _Said(clauses, [f"{w.subject} {same}", f"{w.other_subject} {same}"])


def names(type_: str) -> Iterator[tuple[bool, Phrase]]:
    """What can be said of the name of a variable."""
    w = Words.of(type_)
    for words in range(len(NUMBERS)):
        of = f"{NUMBERS[words]}-word " if words else ""
        for text in (
            f"whose {of}name begins with ",
            f"whose {of}name starts with ",
            f"with {indefinite(f'{of}name')} that begins with ",
            f"{w.that} has {indefinite(f'{of}name')} that starts with ",
        ):
            yield False, Phrase(text, "", "initial", type_, flag=words)
        for text in (f"{w.owner} {of}name begins with ", f"{w.other_owner} {of}name starts with "):
            yield True, Phrase(text, "", "initial", type_, flag=words)


def _clause(noun: str, type_: str, w: Words, definite: bool) -> str:
    """A noun phrase as a clause."""
    rest = _ARTICLE.sub("", noun, count=1)
    if not rest.startswith(f"{type_} ") or rest.startswith(f"{type_} of "):
        if rest.startswith(
            f"{type_} of {SLOT}"
        ):  # "a nationality of Ann Lo", not "a nationality that is one of Ann Lo"
            return f"of {SLOT}"
        one = "one of the" if many(rest) else indefinite(rest).split()[0]
        return f"{w.that} is {'the' if definite else one} {rest}"
    rest = rest.removeprefix(f"{type_} ")
    if re.match(r"(whose|where|in which|with|who|that|which) ", rest):
        return rest
    return f"{w.that} is {rest}"


def _of(clause: str, noun: str, w: Words, deed: str) -> _Said:
    """The paraphrases of "of Y": "It is the capital of Y", or by a deed: "This author wrote Y", "It is the subject of Y"."""
    does = deed or f"is {noun} of"
    subjects = (w.subject, w.other_subject) if deed else (w.subject,)
    return _Said(
        [clause, f"{w.that} {does} {SLOT}", f"{w.which} {does} {SLOT}"], [f"{x} {does} {SLOT}" for x in subjects]
    )


def _variants(clause: str, w: Words) -> _Said:
    """The paraphrases of one clause that is no "whose L is Y"; "next door to Y" is "that is next door to Y"."""
    if not re.match(r"(with|where|in which|whose|who|that|which) ", clause):
        clause = f"{w.that} is {clause}"
    first, _, rest = clause.partition(" ")
    if first == "with":
        return _Said([clause, f"{w.that} has {rest}"], [f"{w.subject} has {rest}", f"{w.other_subject} has {rest}"])
    if first == "where" or clause.startswith("in which "):
        rest = rest.removeprefix("which ")
        return _Said(
            [f"where {rest}", f"in which {rest}"],
            [f"There, {rest}", f"In {w.it if w.it != 'it' else w.other_subject.lower()}, {rest}"],
        )
    if first == "whose":
        return _Said([clause], [f"{w.owner} {rest}", f"{w.other_owner} {rest}"])
    both = [f"{w.that} {rest}", f"{w.which} {rest}"]
    if re.match(rf"{SLOT}|(the|a|an) ", rest):  # the slot or another noun acts upon the variable
        upper = rest[:1].upper() + rest[1:]
        return _Said(both, [f"{upper} {w.it}", f"{upper} {w.other_subject[:1].lower()}{w.other_subject[1:]}"])
    return _Said(both, [f"{w.subject} {rest}", f"{w.other_subject} {rest}"])


def _around_term(base: str, owned: re.Match[str] | None, single: bool, w: Words) -> _Said:
    if owned is None:
        return _variants(base, w)
    label = owned[1]
    several = many(label)
    one, are = f"one of {w.its} {label}" if several else indefinite(label), "are" if several else "is"
    role = f"{w.its} {label}" if single else one
    clauses = [f"with {SLOT} as {role}", f"{w.that} has {SLOT} as {role}"]
    sentences = [f"{w.subject} has {SLOT} as {role}"]
    if single:
        clauses += [f"whose {label} {are} {SLOT}"]
        clauses += [f"of which the {label} {are} {SLOT}"] if w.it == "it" else []
        sentences += [f"{w.owner} {label} {are} {SLOT}", f"{w.other_owner} {label} {are} {SLOT}"]
    else:
        of = f"one of the {label}" if several else indefinite(label)
        clauses += [f"{w.which} has {SLOT} as {one}"]
        clauses += [f"one of whose {label} is {SLOT}"] if several else []
        owner = w.other_subject[:1].lower() + w.other_subject[1:]
        sentences += [f"{of[:1].upper()}{of[1:]} of {owner} is {SLOT}", f"{w.other_subject} has {SLOT} as {one}"]
    return _Said(clauses, sentences)


def _around_value(r: Relation, owned: bool, base: str, w: Words) -> _Said:
    """A value in words: "in the 1990s" follows a verb, "about 1,300" a noun too."""
    label, are = measure(r)
    clauses = [f"whose {label} {are} {SLOT}"] + ([f"of which the {label} {are} {SLOT}"] if w.it == "it" else [])
    sentences = [f"{w.owner} {label} {are} {SLOT}", f"{w.other_owner} {label} {are} {SLOT}"]
    if r.range != "number":
        return _Said([*clauses, f"whose {label} falls {SLOT}"], [*sentences, f"{w.owner} {label} falls {SLOT}"])
    if owned:
        of = (
            f"{SLOT} {r.label.removeprefix('total ')}"
            if counts(r)
            else f"{label if many(r.label) else indefinite(label)} of {SLOT}"
        )
        return _Said([*clauses, f"with {of}", f"{w.that} has {of}"], [*sentences, f"{w.subject} has {of}"])
    return _variants(base, w)


def measure(r: Relation) -> tuple[str, str]:
    """(what a number is the value of, its verb): airports are counted, and their number is; exports (%) are."""
    if counts(r):
        return f"total number of {r.label[6:]}" if r.label.startswith("total ") else f"number of {r.label}", "is"
    return r.label, "are" if many(r.label) else "is"


def _ranked(r: Relation, w: Words, type_: str) -> Iterator[tuple[bool, Phrase]]:
    label, are = measure(r)
    for top in (True, False):
        third, more = (
            f"{'top' if top else 'bottom'} third of all {plural(spoken(type_))}",
            "greater" if top else "smaller",
        )
        for text in (
            f"{w.that} ranks in the {third} by {label}",
            f"{w.which} is in the {third} by {label}",
            f"whose {label} {are} in the {third}",
        ):
            yield False, Phrase(text, "", "third", type_, r.name, True, top)
        for text in (f"{w.subject} ranks in the {third} by {label}", f"{w.owner} {label} {are} in the {third}"):
            yield True, Phrase(text, "", "third", type_, r.name, True, top)
        that = "those" if are == "are" else "that"
        owned = (
            f"{'more' if top else 'fewer'} {r.label.removeprefix('total ')}"
            if counts(r)
            else f"{more if many(r.label) else indefinite(more)} {r.label}"
        )
        for text in (
            f"whose {label} {are} {more} than {that} of ",
            f"{w.that} has {owned} than ",
            f"with {owned} than ",
        ):
            yield False, Phrase(text, "", "than", type_, r.name, True, top)
        for text in (f"{w.owner} {label} {are} {more} than {that} of ", f"{w.subject} has {owned} than "):
            yield True, Phrase(text, "", "than", type_, r.name, True, top)


def symmetric(r: Relation) -> bool:
    """Whether both directions read the same: then a clue is kept in one of them."""
    w = Words.of(r.domain)
    a, b = (_clause(noun, spoken(r.domain), w, False) for noun in (r.ask_back(SLOT), r.ask(SLOT)))
    return r.domain == r.range and a == b


def check(extra: Mapping[str, Mapping[str, Sequence[str]]], relations: Mapping[str, Relation]) -> None:
    """Raises ValueError for a phrase of the user's about an unknown relation or side, or without its one slot."""
    for name, sides in extra.items():
        if name not in relations:
            raise ValueError(
                f"phrases are given for the relation {name!r}, which the knowledge base does not have: fix the name"
            )
        for side, texts in sides.items():
            wrong = next((t for t in texts if t.count("{y}") != 1), None)
            if side not in ("subject", "object") or wrong is not None:
                fault = (
                    f"{wrong!r} has not exactly one {{y}}"
                    if side in ("subject", "object")
                    else f"{side!r} is neither subject nor object"
                )
                raise ValueError(f"phrases of {name!r}: {fault}: write e.g. {{subject: ['that borders {{y}}']}}")
