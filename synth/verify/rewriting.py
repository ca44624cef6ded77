"""A proof that two words are equal: a chain of words, each made from the one before by one use of one equation.

`equations` are pairs of words that may stand for each other, either way, anywhere in a word; `first` and `last` are the
words whose equality is to be proved. The chain is written with "=", "->" or "→" between its words; spaces and lines do not count. A gap, "?", is no step: a proof
with one is refused whatever else it holds, as a theorem prover's "sorry" is.

`explain` says what the checker finds wrong first. With `kernel: metamath` the verdict is that of the theorem prover's kernel of this
name, to which the chain goes as a proof; the explanations stay.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from subprocess import TimeoutExpired
from typing import Literal

from synth.types import Problem, Score, Unscorable
from synth.verify import RIGHT, UNPARSABLE, WRONG, _metamath

Kernel = Literal["own", "metamath"]

MAX_CHARS = 2000
FORM = "text"
EXAMPLE = {
    "prompt": "ab = ba; aa = b. Prove that aab = bb.",
    "answer": "aab = bb",
    "args": {"equations": [["ab", "ba"], ["aa", "b"]], "first": "aab", "last": "bb"},
}
GAP = "?"
_BETWEEN = re.compile("=|->|→")
_WORD = re.compile(r"[a-z]+|\?")


def words(text: str) -> list[str] | None:
    """The words of a proof under way, the last of which may be empty; None where there are others than words."""
    *done, last = _BETWEEN.split("".join(text.split())) if len(text) <= MAX_CHARS else ["?!"]
    return [*done, last] if all(_WORD.fullmatch(w) for w in (*done, last or "a")) else None


def chain(text: str) -> list[str] | None:
    """The words of a proof; None where it is none."""
    proof = words(text)
    return proof if proof and len(proof) > 1 and proof[-1] else None


def follow(word: str, equations: Sequence[Sequence[str]]) -> Iterator[str]:
    """All words that one use of one equation makes of a word."""
    for a, b in equations:
        for old, new in ((a, b), (b, a)):
            at = word.find(old)
            while at >= 0:
                yield word[:at] + new + word[at + len(old) :]
                at = word.find(old, at + 1)


def fault(proof: Sequence[str], equations: Sequence[Sequence[str]], first: str, last: str) -> str:
    """What is wrong with a chain, "" for a proof."""
    if GAP in proof:
        return "A gap is left open."
    if proof[0] != first:
        return f"It begins with {proof[0]}, not {first}."
    for k, (a, b) in enumerate(zip(proof, proof[1:], strict=False), 1):
        if b not in follow(a, equations):
            return f"Step {k}: {a} is not {b}."
    return "" if proof[-1] == last else f"It ends with {proof[-1]}, not {last}."


def rewriting(
    problem: Problem,
    answer: str,
    *,
    equations: Sequence[Sequence[str]],
    first: str,
    last: str,
    kernel: Kernel = "own",
) -> Score:
    """1 where `answer` proves that `first` = `last`. The reference is checked alike.

    kernel: what decides, this file or the program metamath; an answer is unscorable where that is not installed.
    """
    gold = chain(problem.answer)
    if gold is None or fault(gold, equations, first, last):
        return Unscorable(reason=f"bad_reference: {problem.answer!r} proves nothing")
    if (proof := chain(answer)) is None:
        return UNPARSABLE
    if kernel == "own":
        return WRONG if fault(proof, equations, first, last) else RIGHT
    if kernel != "metamath":
        return Unscorable(reason=f"bad_kernel: {kernel!r} is neither own nor metamath")
    try:
        return RIGHT if _metamath.holds(_metamath.database(proof, equations, first, last)) else WRONG
    except FileNotFoundError:
        return Unscorable(
            reason="no_metamath: the program metamath is not installed: `apt-get install metamath`, or kernel: own"
        )
    except TimeoutExpired:
        return Unscorable(reason=f"timeout: metamath took more than {_metamath.SECONDS} seconds")


def explain(
    problem: Problem,
    answer: str,
    *,
    equations: Sequence[Sequence[str]],
    first: str,
    last: str,
    kernel: Kernel = "own",
) -> str:
    """What the checker says of an answer that is no proof."""
    proof = chain(answer)
    return "This is no chain of words." if proof is None else fault(proof, equations, first, last)
