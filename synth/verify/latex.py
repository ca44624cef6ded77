"""An expression in LaTeX (\\frac{1}{2}, \\sqrt{3}, x^{2}), compared by Math-Verify behind our own limits.

For answers in the form that people and models of mathematics write; `symbolic` reads plain text and needs no package.
Math-Verify (github.com/huggingface/Math-Verify) limits its time by SIGALRM, which works in the main thread alone, and
takes the last expression out of any text; so its time-outs are off here, it runs in a child of the pool that is killed
beyond its limits, and an answer must be one expression and nothing else: no words, lists, signs of equality or dollars,
exponents up to three digits.

Where the package is missing, answers are Unscorable: `pip install 'espalier[math]'`.
"""

from __future__ import annotations

import re

from synth.types import Problem, Score, Unscorable
from synth.verify import RIGHT, UNPARSABLE, WRONG

SECONDS = 10
REQUIRES = "math_verify"
MAX_CHARS, MAX_DEPTH = 200, 15
FORM = "latex"
EXAMPLE = {"prompt": "What is half of one third?", "answer": "\\frac{1}{6}"}
_COMMANDS = "frac dfrac tfrac sqrt pi cdot times left right sin cos tan log ln exp pm infty theta alpha beta".split()
_ALLOWED = re.compile(rf"(?:\\(?:{'|'.join(_COMMANDS)})(?![A-Za-z])|[0-9A-Za-z+\-*/^_.(){{}} ])*")
_WORD, _POWER, _TWO = (
    re.compile(r"(?<![\\A-Za-z])[A-Za-z]{2,}"),
    re.compile(r"\^\s*\{?\s*-?[0-9]{4,}|\^[^+\-*/]*\^|\*\*"),
    re.compile(r"[0-9}] +[0-9\\]"),
)


def readable(text: str) -> bool:
    """Whether a text is one expression of a form that is passed on."""
    depth, deepest = 0, 0
    for c in text[: MAX_CHARS + 1]:
        depth += (c in "({") - (c in ")}")
        deepest = max(deepest, depth)
    plain = len(text) <= MAX_CHARS and deepest <= MAX_DEPTH and depth == 0 and bool(text.strip())
    return plain and bool(_ALLOWED.fullmatch(text)) and not any(p.search(text) for p in (_WORD, _POWER, _TWO))


def latex(problem: Problem, answer: str) -> Score:
    """1 where Math-Verify finds answer and reference equal. Runs in the pool; call it through `synth.verify.verify`."""
    try:
        from math_verify import parse, verify
    except ModuleNotFoundError:
        return Unscorable(reason="missing: `pip install 'espalier[math]'` brings Math-Verify")
    answer = answer.strip()
    if not readable(problem.answer.strip()):
        return Unscorable(reason=f"bad_reference: {problem.answer!r} is no single expression")
    if not readable(answer):
        return UNPARSABLE
    gold, given = (
        parse(f"${text}$", parsing_timeout=None)  # type: ignore[arg-type]  # None is what its documents say for "no limit"
        for text in (problem.answer.strip(), answer)
    )
    if not gold:
        return Unscorable(reason=f"bad_reference: {problem.answer!r} does not parse")
    if not given:
        return UNPARSABLE
    return RIGHT if verify(gold, given, timeout_seconds=None) else WRONG
