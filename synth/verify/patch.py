"""A search-and-replace edit of a small program, by how near its patch is to the reference's (SWE-RL, Wei et al. 2025,
arXiv 2502.18449).

The answer is two lines, `- old line` and `+ new line`, where the old line must occur in the program once, or the whole
program with one line changed; the spaces within a line do not matter. It is applied, both
patches are written as unified diffs, and the score is `difflib.SequenceMatcher.ratio` of the two texts: 1 for the same
patch, less for another, 0 for what does not apply (`parsed` 0, for which the reward `graded` gives -1).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import SequenceMatcher, unified_diff

from synth.types import Problem, Score, Scored, Unscorable
from synth.verify import RIGHT, UNPARSABLE

MAX_CHARS = 200
FORM = "number"
EXAMPLE = {
    "prompt": "Fix one line: x = x + 3; x = x * 2. It should turn 1 into -4.",
    "answer": "- x = x + 3\n+ x = x - 3",
    "args": {"program": ["x = x + 3", "x = x * 2"]},
}
_LINE = r"x = x [-+*] [0-9]{1,3}"
_EDIT = re.compile(rf"- ({_LINE})\n\+ ({_LINE})")
_SPACES = re.compile(r"[ \t]*(?:\bx[ \t]*=[ \t]*x[ \t]*([-+*])[ \t]*|\bx[ \t]*([-+*])=[ \t]*)([0-9]{1,3})[ \t]*")


def applied(text: str, program: Sequence[str]) -> str | None:
    """The unified diff of an edit; None where it is malformed, does not apply, or changes nothing."""
    text = tidied(text) if len(text) <= MAX_CHARS else ""
    lines = re.split(r"; |\n", text)
    if len(lines) == len(program) and all(re.fullmatch(_LINE, line) for line in lines):
        one = sum(a != b for a, b in zip(lines, program, strict=True)) == 1
        return "\n".join(unified_diff(list(program), lines, lineterm="")) if one else None
    match = _EDIT.fullmatch(text)
    if match is None or list(program).count(match[1]) != 1 or match[1] == match[2]:
        return None
    after = [match[2] if line == match[1] else line for line in program]
    return "\n".join(unified_diff(list(program), after, lineterm=""))


def tidied(text: str) -> str:
    """The text with the spaces of a program's lines as in the program: `x=x+3` and `x += 3` are `x = x + 3`."""
    text = "\n".join(line.strip() for line in text.strip().split("\n") if line.strip())
    text = _SPACES.sub(lambda m: f" x = x {m[1] or m[2]} {m[3]}", text)
    return re.sub(r"(^|\n|; *) x =", r"\1x =", text).replace(";x", "; x").removesuffix(";")


def patch(problem: Problem, answer: str, *, program: Sequence[str] = ()) -> Score:
    """1 for the reference's patch, else the similarity of the two; 0 where the edit does not apply."""
    if (gold := applied(problem.answer, program)) is None:
        return Unscorable(reason=f"bad_reference: {problem.answer!r} does not apply")
    if (given := applied(answer, program)) is None:
        return UNPARSABLE
    return RIGHT if given == gold else Scored(value=SequenceMatcher(None, given, gold).ratio(), parts={"parsed": 1.0})
