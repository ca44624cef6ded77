"""A list in a given order: items parted by spaces, commas, semicolons or lines, brackets and quotes optional, compared one by
one; "and" may stand before the last, numbers 1. 2. 3. before lines. Where the question asks for a product, its factors may
be parted by * and repeated by ^.

An item is compared as an exact number where both sides are numbers (`07` is 7), else as normalised text.
"""

from __future__ import annotations

import re
from fractions import Fraction

from synth.types import Problem, Score, Scored, Unscorable
from synth.verify import UNPARSABLE
from synth.verify.exact import normalise
from synth.verify.number import parse

MAX_CHARS = 2000
FORM = "number"
_POWER = re.compile(r"([0-9]{1,20})(?: ?\^ ?\(?([1-9][0-9]?)\)?)?")
EXAMPLE = {"prompt": "Sort 7 3 10.", "answer": "3 7 10"}
GIVES = ("in_place",)


def items(text: str) -> tuple[Fraction | str, ...] | None:
    """The items as values; None where `text` is empty, too long, or holds an empty item ("1,,2")."""
    text = text.strip() if len(text) <= MAX_CHARS else ""
    if (text[:1], text[-1:]) in (("[", "]"), ("(", ")")):
        text = text[1:-1].strip()
    parts = re.split("[,;]", text) if "," in text or ";" in text else text.split()
    values = tuple(
        number[0] if (number := parse(part)) else normalise(part)
        for part in (p.strip().strip("\"'\N{LEFT DOUBLE QUOTATION MARK}\N{RIGHT DOUBLE QUOTATION MARK}") for p in parts)
    )
    return values if values and "" not in values else None


def ordered_list(problem: Problem, answer: str) -> Score:
    """1 where the items equal the reference's in number, value and order. `parts["in_place"]`: share of places that
    are."""
    if (gold := items(problem.answer)) is None:
        return Unscorable(reason=f"bad_reference: {problem.answer!r} is no list")
    forms = written(answer, "and")
    if ("*" in answer or "^" in answer) and "product" in problem.question:
        forms.append(_factors(answer))
    readings = [read for form in forms if (read := items(form)) is not None]
    if not readings:
        return UNPARSABLE
    given = gold if gold in readings else readings[0]
    in_place = sum(a == b for a, b in zip(gold, given, strict=False)) / len(gold)
    return Scored(value=float(given == gold), parts={"parsed": 1.0, "in_place": in_place})


def written(text: str, *words: str) -> list[str]:
    """The text, and where it can be read in another way too, the same list parted by commas alone."""
    if len(text) > MAX_CHARS:
        return [text]
    out = [text]
    between = "|".join(words)
    if re.search(rf"\s(?:{between})\s", text):
        out.append(re.sub(rf"\s*,?\s+(?:{between})\s+", ", ", text))
    lines = [line for line in text.split("\n") if line.strip()]
    if len(lines) > 1:
        numbered = [line.strip().removeprefix(f"{i}.").removeprefix(f"{i})") for i, line in enumerate(lines, 1)]
        bulleted = [re.sub(r"^\s*[-*] ", "", line) for line in lines]
        out += [
            ", ".join(map(str.strip, form)) for form in (lines, numbered, bulleted) if not any("," in x for x in form)
        ]
    return out


def _factors(text: str) -> str:
    """ "2^2 * 3" as "2 2 3"; unchanged where it is no product of powers of numbers."""
    out: list[str] = []
    for part in text.strip().split("*"):
        match = _POWER.fullmatch(part.strip())
        if not match or int(match[2] or 1) > 40:
            return text
        out += [match[1]] * int(match[2] or 1)
    return " ".join(out)
