"""Exact match of normalised text, with aliases: for names and other short strings.

Accepted: any case ("são paulo"), any spacing and quotes, another dash, punctuation left out or added ("Guinea Bissau" for
"Guinea-Bissau", "Cote d Ivoire" is none for "Côte d'Ivoire", whose apostrophe may go), a leading a, an or the left out or
added, all accents left out ("Sao Paulo", letters without any accent at all; other accents are another name), "and" for
"&", a raised or lowered digit behind a letter written plainly (H2O). Signs that carry meaning stay: a sign or separator
before a digit (-5 is not 5), # + * - behind a letter (C# is not C, A- is not A), % and the marks of minutes, a raised or
lowered digit behind a digit (5² is not 52). Look-alike letters of other scripts, invisible characters, a list of guesses
and the reference with words around it all differ from the reference, hence are wrong. The leading-article rule is
narrower than SQuAD's (Rajpurkar et al. 2016), which drops every article: "Vitamin A" is not "Vitamin".

A reference of a kind that has several spellings is read as what it is: a date (2000-12-23 is "23 December 2000"), a time of
day (04:07 is "4:07" and "4:07 am"), a whole number (1234 is "1,234"), whole numbers in a row ("4 32 20" is "[4, 32, 20]").
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from synth.quantities import date
from synth.types import Problem, Score, Unscorable
from synth.verify import RIGHT, UNPARSABLE, WRONG

MAX_CHARS = 1000
FORM = "text"
EXAMPLE = {
    "prompt": "Which city is the capital of the Netherlands?",
    "answer": "Amsterdam 1",
    "args": {"aliases": ["Mokum"]},
}
_ARTICLES = {"a", "an", "the"}
_APOSTROPHES = "'\N{RIGHT SINGLE QUOTATION MARK}\N{MODIFIER LETTER APOSTROPHE}"
_DASHES = dict.fromkeys((*range(0x2010, 0x2014), 0x2212), "-") | {0x266F: "#"}
_RAISED = re.compile(r"(?<=\d)[\u00b2\u00b3\u00b9\u2070-\u209c]")
_KEPT = "%\N{PER MILLE SIGN}\N{PRIME}\N{DOUBLE PRIME}"
_DATE, _TIME = (
    re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}"),
    re.compile(r"([0-9]{1,2}):([0-9]{2})(?: ?([ap])\.?m\.?)?", re.I),
)
_WHOLE, _ROW = re.compile(r"-?[1-9][0-9]{3,40}"), re.compile(r"-?[0-9]+(?: -?[0-9]+)+")
_BESIDE = re.compile(r"[&#*'-]|[.,:/][0-9]")  # signs of ASCII whose meaning the letters beside them decide
_SPACED = {i: " " for i in range(128) if unicodedata.category(chr(i)).startswith("P") and chr(i) not in _KEPT}
_GROUPED = re.compile(r"-?[0-9]{1,3}(?:([, ])[0-9]{3})(?:\1[0-9]{3})*")


def normalise(text: str) -> str:
    """The form in which two answers are compared. Empty where `text` is only punctuation and space."""
    if not text.isascii():
        text = _RAISED.sub(
            lambda m: ("^" if unicodedata.decomposition(m[0]).startswith("<super") else "_") + m[0], text
        )
        text = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold()).translate(_DASHES)
    else:
        text = text.lower()
        if not _BESIDE.search(text):
            return _bare(text.translate(_SPACED))
    out = []
    for before, here, after in zip(" " + text, text, (text + " ")[1:], strict=False):
        if here in _APOSTROPHES:
            continue
        if here == "&":
            out.append(" and ")
        elif (
            here in "#*-" and (before.isalpha() or "#" == before == out[-1]) and not after.isalnum()
        ):  # C#, F##, A*, A-
            out.append(here)
        elif unicodedata.category(here).startswith("P") and here not in _KEPT:
            sign = here in "-+.,:/" and after.isdigit() and not (here == "-" and before.isalpha())
            out.append(here if sign else " ")
        else:
            out.append(here)
    return _bare("".join(out))


def _bare(text: str) -> str:
    """Its words without an article before them."""
    words = text.split()
    return " ".join(words[1:] if len(words) > 1 and words[0] in _ARTICLES else words)


def without_accents(text: str) -> str:
    """The text with every letter that has an accent replaced by the one that has none."""
    return "".join(c for c in unicodedata.normalize("NFD", text) if not unicodedata.combining(c))


def exact(problem: Problem, answer: str, *, aliases: Sequence[str] = ()) -> Score:
    """1 where the answer names the reference or one of `aliases` in a spelling of those above, else 0."""
    if not (gold := normalise(problem.answer)):
        return Unscorable(reason=f"bad_reference: {problem.answer!r} is empty once normalised")
    if len(answer) > MAX_CHARS or not (given := normalise(answer)):
        return UNPARSABLE
    wanted = {gold, *map(normalise, aliases)}
    if given in wanted or _same_kind(problem.answer.strip(), answer.strip()):
        return RIGHT
    plain = given.isascii() and not all(map(str.isascii, wanted)) and given in map(without_accents, wanted)
    return RIGHT if plain else WRONG


def _same_kind(gold: str, answer: str) -> bool:
    """Whether a reference that is a date, a time of day, a whole number or a row of them is spelled in another way."""
    if _DATE.fullmatch(gold):
        return date(answer) == gold
    if _WHOLE.fullmatch(gold):
        return bool(_GROUPED.fullmatch(answer)) and re.sub("[, ]", "", answer) == gold
    if _ROW.fullmatch(gold):
        inside = answer[1:-1] if (answer[:1], answer[-1:]) in (("[", "]"), ("(", ")")) else answer
        return re.split(r"\s*[,;]\s*|\s+", inside.strip()) == gold.split()
    if (one := _TIME.fullmatch(gold)) and not one[3] and (other := _TIME.fullmatch(answer)):
        hour = int(other[1])
        if other[3]:
            if not 1 <= hour <= 12:
                return False
            hour = hour % 12 + 12 * (other[3].lower() == "p")
        return (int(one[1]), one[2]) == (hour, other[2])
    return False
