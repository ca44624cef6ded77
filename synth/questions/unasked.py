"""Relations that questions leave out unless somebody names them: their head is no phrase, or their values are not what a
person would say.

    odd_head    "age structure (0-14 years)", "demonyms f"
    codes       short capitals or digits under a head that is no word: "cca3"; two or three small letters, which read as
                words: "it"
    contacts    telephone numbers, mails, web addresses, postal addresses, coordinates
    signs       texts without a letter: flags, signs of money; dates among other texts
    amounts     texts that begin with a number and its unit, where a number alone was not found: "1,441 km 225 km electrified"
    script      texts in another script than the names
    prose       sentences and lists, where a question needs a short answer

The facts stay in the base, where search finds them. `--only` names a relation all the same.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np

from synth.knowledge.heads import is_odd
from synth.knowledge.kb import Relation
from synth.knowledge.postings import Postings
from synth.knowledge.words import UNITS
from synth.quantities import date

SAMPLE = 400  # values of a relation that are looked at
_SOME = 0.2  # the share of the values that decides
_CODE = re.compile(r"[A-Z0-9]{2,4}")
_CONTACT = re.compile(
    r".*(?:\S@\S+\.\w|https?://|\bwww\.).*"  # a mail, a web address
    r"|[+\[(]?\d[\d\s()\[\]./+-]{6,}(?: .*)?"  # a telephone number
    r"|\d{1,3} \d{1,2}(?: \d{1,2})? [NS], ?\d{1,3} \d{1,2}.*"  # coordinates
)
_PLACED = re.compile(
    r"\b(?:address|street|e-?mail|postal code|post ?code|zip(?: code)?|telephone|phone(?: number)?|fax(?: number)?)$"
)
_SAMPLED = re.compile(r"\b(?:samples?|excerpts?|snippets?|specimens?|remarks?|comments?|notes?)$")
_PROSE = re.compile(r"[;]|\w[.!?] \w|, .*, | (?:is|are|was|were|has|have|which|that|who) ")
_WORDS, _PLAIN = 8, 4  # of an answer, at most; of one that is no name


def unasked(postings: Postings) -> dict[str, str]:
    """Relation -> why questions leave it out (a key of the list above)."""
    latin = _share([postings.names[i] for i in _spread(len(postings.names))], _foreign) < _SOME
    out = {}
    for number, r in enumerate(postings.relations):
        ends = np.unique(postings.block(number, False)[0])
        values = [postings.text(int(ends[i])) for i in _spread(len(ends))]
        if values and (why := why_not(r, values, latin=latin)):
            out[r.name] = why
    return out


_AMOUNT = re.compile(
    r"[-+]?[$\N{EURO SIGN}\N{POUND SIGN}]?[\d.,]*\d ?(?:thousand|million|billion|trillion|percent|%|tons?|tonnes|metric|years?|months?|days?|"
    rf"hours?|minutes?|{'|'.join(re.escape(u) for u in UNITS if len(u) > 1)}|{'|'.join(UNITS.values())})(?:\W.*)?",
    re.IGNORECASE,
)
_UNCLEAR = re.compile(
    r"(?:see|same as|includ\w+|other|no|note|approximately|about|formerly|none) .*"  # a remark
    r"|.*(?: (?:and|or|of|the|than|with|by|to|in)|[-,:;(/])"  # its end is missing
    r"|.*(?:[^\W\d_]{4,}/|/[^\W\d_]{4,}).*"  # two answers
    r"|\w{1,3}(?:, \w{1,3})+"  # several codes
    r"|.* [,;].*|.*\w- \w.*"  # traces of a layout
    r"|\d[\d,.]* [^\W\d_].*\d.*|.*\D\d+, .*\D\d+",  # several amounts
    re.IGNORECASE,
)


def unclean(text: str) -> str:
    """What is wrong with a text as an answer, or as a name in a clue: a list, a sentence, an amount with its unit, an address, a
    remark, half a text; "" where nothing is."""
    if _CONTACT.fullmatch(text):
        return "an address"
    if _AMOUNT.fullmatch(text):
        return "an amount with its unit"
    if _is_prose(text):
        return "a list or a sentence"
    if _UNCLEAR.fullmatch(text) or any(text.count(a) != text.count(b) for a, b in ("()", "[]")) or text.count('"') % 2:
        return "a remark, or half an answer"
    return ""


def _spread(n: int) -> Sequence[int]:
    """At most SAMPLE places of n, evenly."""
    return range(n) if n <= SAMPLE else [i * n // SAMPLE for i in range(SAMPLE)]


def why_not(r: Relation, values: Sequence[str], *, latin: bool = True) -> str:
    """Why a relation with these values is left out; "" where it is not. latin: whether names are in Latin letters."""
    if is_odd(r.label):
        return "odd_head"
    if r.range in ("number", "year", "date"):
        return ""
    if _SAMPLED.search(r.label):
        return "prose"
    if latin and _share(values, _foreign) >= _SOME / 2:
        return "script"
    if r.range != "string":
        return ""
    if _PLACED.search(r.label) or _share(values, lambda v: _CONTACT.fullmatch(v) is not None) >= _SOME:
        return "contacts"
    if all(map(_CODE.fullmatch, values)) and re.search(r"[^\W\d_]\d|\d[^\W\d_]", r.label):
        return "codes"
    small = _share(values, lambda v: re.fullmatch(r"\.?[a-z]{2,3}", v) is not None)
    if len(values) > 1 and small >= 1 - _SOME and not {*values} <= {"yes", "no"}:
        return "codes"
    dates = _share(values, lambda v: date(v) is not None)
    if _share(values, lambda v: not any(map(str.isalpha, v))) + (dates if dates < 1 else 0) >= _SOME:
        return "signs"
    if _share(values, lambda v: re.match(r"\d[\d,.]* [^\W\d_]", v) is not None) - dates >= 0.5:
        return "amounts"
    if _share(values, _is_prose) >= _SOME:
        return "prose"
    return ""


def _is_prose(text: str) -> bool:
    words = text.split()
    small = sum(w[:1].islower() for w in words)
    return len(words) > _WORDS or (len(words) > _PLAIN and 2 * small > len(words)) or _PROSE.search(text) is not None


def _share(values: Sequence[str], which: Callable[[str], bool]) -> float:
    return sum(map(which, values)) / max(1, len(values))


@lru_cache(maxsize=4096)
def _script(letter: str) -> bool:
    return unicodedata.name(letter, "LATIN").startswith(("LATIN", "MODIFIER", "FEMININE", "MASCULINE"))


def _foreign(text: str) -> bool:
    """Whether most letters of a text are not Latin."""
    letters = [c for c in text[:60] if c.isalpha()]
    return 2 * sum(not _script(c) for c in letters) > len(letters)
