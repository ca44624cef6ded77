"""An arithmetic expression that uses given numbers to reach a target (countdown).

Own tokenizer and recursive-descent parser over + - * / and parentheses, exact fractions, a multiset check of the
numbers, limits on length and depth. There is no unary sign, power, name or call in the grammar, and no `eval`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from synth.types import Problem, Score, Unscorable
from synth.verify import RIGHT, UNPARSABLE, WRONG

MAX_CHARS, MAX_DEPTH, MAX_DIGITS = 200, 20, 9
FORM = "math"
EXAMPLE = {"prompt": "Make 16 from 2 3 5.", "answer": "(3 + 5) * 2", "args": {"numbers": [2, 3, 5], "target": 16}}
_TOKEN = re.compile(r"[ ]*(?:(?P<number>0|[1-9][0-9]*)|(?P<symbol>[-+*/()]))")


@dataclass(frozen=True)
class Node:
    """A number (operator "") or an operation on two nodes. `value` is exact; None where something divides by zero."""

    operator: str
    value: Fraction | None
    leaves: tuple[int, ...]


def parse(text: str) -> Node:
    """The tree of an expression. Raises ValueError for anything outside the grammar or its limits."""
    if len(text) > MAX_CHARS:
        raise ValueError(f"an expression of {len(text)} characters is over the limit of {MAX_CHARS}")
    text, tokens, at = text.strip(" "), [], 0
    while at < len(text):
        if not (match := _TOKEN.match(text, at)) or len(match["number"] or "") > MAX_DIGITS:
            raise ValueError(f"character {at}: {text[at : at + 10]!r} is no number, operator or parenthesis")
        tokens.append(match["number"] or match["symbol"])
        at = match.end()
    node, rest = _sum(tokens, 0, 0)
    if rest != len(tokens):
        raise ValueError(f"unexpected {tokens[rest]!r} after a complete expression")
    return node


def _sum(tokens: list[str], at: int, depth: int) -> tuple[Node, int]:
    node, at = _product(tokens, at, depth)
    while at < len(tokens) and tokens[at] in "+-":
        right, after = _product(tokens, at + 1, depth)
        node, at = join(tokens[at], node, right), after
    return node, at


def _product(tokens: list[str], at: int, depth: int) -> tuple[Node, int]:
    node, at = _atom(tokens, at, depth)
    while at < len(tokens) and tokens[at] in "*/":
        right, after = _atom(tokens, at + 1, depth)
        node, at = join(tokens[at], node, right), after
    return node, at


def _atom(tokens: list[str], at: int, depth: int) -> tuple[Node, int]:
    if depth > MAX_DEPTH:
        raise ValueError(f"parentheses are nested deeper than {MAX_DEPTH}")
    if at < len(tokens) and tokens[at] == "(":
        node, at = _sum(tokens, at + 1, depth + 1)
        if at == len(tokens) or tokens[at] != ")":
            raise ValueError("a parenthesis is not closed")
        return node, at + 1
    if at == len(tokens) or not tokens[at].isdigit():
        raise ValueError(f"a number is missing {'at the end' if at == len(tokens) else 'before ' + repr(tokens[at])}")
    return leaf(int(tokens[at])), at + 1


def leaf(number: int) -> Node:
    return Node("", Fraction(number), (number,))


def join(operator: str, left: Node, right: Node) -> Node:
    """The node `left operator right`."""
    a, b = left.value, right.value
    if a is None or b is None or (operator == "/" and b == 0):
        value = None
    else:
        value = a + b if operator == "+" else a - b if operator == "-" else a * b if operator == "*" else a / b
    return Node(operator, value, left.leaves + right.leaves)


def expression(problem: Problem, answer: str, *, numbers: Sequence[int] = (), target: int = 0) -> Score:
    """1 where `answer` is an expression over exactly the multiset `numbers` whose value is `target`. The reference is
    checked alike."""
    if not _reaches(problem.answer, numbers, target):
        return Unscorable(reason=f"bad_reference: {problem.answer!r} does not make {target} from {list(numbers)}")
    try:
        return RIGHT if _reaches(answer, numbers, target, strict=True) else WRONG
    except ValueError:
        return UNPARSABLE


def _reaches(text: str, numbers: Sequence[int], target: int, strict: bool = False) -> bool:
    try:
        node = parse(text)
    except ValueError:
        if strict:
            raise
        return False
    return Counter(node.leaves) == Counter(numbers) and node.value == target
