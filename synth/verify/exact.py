"""Exact match of normalised text, with aliases: for names and other short strings.

Normalised: Unicode NFKC, case folded, apostrophes dropped, other punctuation read as space (signs and separators before a
digit stay: -5 is not 5), a leading article dropped, spaces collapsed. Look-alike letters of other scripts, invisible
characters, a list of guesses and the reference with words around it all differ from the reference, hence are wrong.
The leading-article rule is narrower than SQuAD's (Rajpurkar et al. 2016), which drops every article: "Vitamin A" is not "Vitamin".
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

from synth.types import Problem, Score, Unscorable
from synth.verify import RIGHT, UNPARSABLE, WRONG

MAX_CHARS = 1000
EXAMPLE = {"prompt": "Which city is the capital of the Netherlands?", "answer": "Amsterdam 1", "args": {"aliases": ["Mokum"]}}
_ARTICLES = {"a", "an", "the"}


def normalise(text: str) -> str:
    """The form in which two answers are compared. Empty where `text` is only punctuation and space."""
    text = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold()).replace("\N{MINUS SIGN}", "-")
    out = []
    for here, after in zip(text, (text + " ")[1:], strict=True):
        if here in "'\N{RIGHT SINGLE QUOTATION MARK}\N{MODIFIER LETTER APOSTROPHE}":
            continue
        before_digit = here in "-+.,:/" and after.isdigit()
        out.append(" " if unicodedata.category(here).startswith("P") and here != "%" and not before_digit else here)
    words = "".join(out).split()
    return " ".join(words[1:] if len(words) > 1 and words[0] in _ARTICLES else words)


def exact(problem: Problem, answer: str, *, aliases: Sequence[str] = ()) -> Score:
    """1 where the normalised answer equals the normalised reference or one of `aliases`, else 0."""
    if not normalise(problem.answer):
        return Unscorable(reason=f"bad_reference: {problem.answer!r} is empty once normalised")
    if len(answer) > MAX_CHARS or not (given := normalise(answer)):
        return UNPARSABLE
    return RIGHT if given in {normalise(problem.answer), *map(normalise, aliases)} else WRONG
