"""A value for every name: "A: knight, B: knave" or "p = true; q = false", in any order, parted by commas, semicolons,
lines or "and", in braces and quotes or not; "A is a knight" and "A -> knight" too.

Names and values are compared as normalised text; true/T/yes/1 and false/F/no/0 are one value each. A name given twice
is unparsable.
"""

from __future__ import annotations

import re

from synth.types import Problem, Score, Scored, Unscorable
from synth.verify import UNPARSABLE

MAX_CHARS = 2000
FORM = "text"
EXAMPLE = {"prompt": "Who is what?", "answer": "A: knight, B: knave"}
GIVES = ("agree",)
_PAIR = re.compile(
    r"\s*(?:[-*]\s+)?[\"']?([A-Za-z0-9_]{1,40})[\"']?\s*(?:->|→|[:=]|\bis\b(?:\s+an?\b)?)\s*[\"']?([A-Za-z0-9_]{1,40})[\"']?\s*",
    re.ASCII,
)
_SAME = {"t": "true", "yes": "true", "1": "true", "f": "false", "no": "false", "0": "false"}


def pairs(text: str) -> dict[str, str] | None:
    """name -> value, both in lower case; None where `text` is no list of pairs, is too long or names one twice."""
    out: dict[str, str] = {}
    text = text.strip() if len(text) <= MAX_CHARS else ""
    text = text[1:-1].strip() if (text[:1], text[-1:]) in (("{", "}"), ("(", ")"), ("[", "]")) else text
    for part in re.split(r"\s*[,;\n]\s*(?:and\s+)?|\s+and\s+", text):
        match = _PAIR.fullmatch(part)
        if not match or match[1].lower() in out:
            return None
        out[match[1].lower()] = _SAME.get(match[2].lower(), match[2].lower())
    return out


def assignment(problem: Problem, answer: str) -> Score:
    """1 where every name has the reference's value and no other name is given. `parts["agree"]`: share of names with
    the right value."""
    if (gold := pairs(problem.answer)) is None:
        return Unscorable(reason=f"bad_reference: {problem.answer!r} is no assignment")
    if (given := pairs(answer)) is None:
        return UNPARSABLE
    agree = sum(given.get(name) == value for name, value in gold.items()) / len(gold)
    return Scored(value=float(given == gold), parts={"parsed": 1.0, "agree": agree})
