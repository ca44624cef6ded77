"""Arithmetic expressions, implemented twice: as trees that are drawn, written and evaluated, and as text that a
shunting-yard evaluates.

The two share nothing: the tree is evaluated by recursion, the text by Dijkstra's two stacks. Division is written with
the sign of division between spaces, so that 1/2 is one number. Values are exact fractions.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from random import Random

from synth.families._sample import Refused

Tree = Fraction | tuple  # a number, or (operator, left, right)
RANK = {"+": 1, "-": 1, "*": 2, "÷": 2}
_TOKEN = re.compile(r"\s*(\d+(?:/\d+)?|[-+*÷()])")


def grow(rng: Random, terms: int, operators: str, leaf: Callable[[Random], Fraction]) -> Tree:
    """A random tree with `terms` leaves."""
    if terms == 1:
        return leaf(rng)
    left = rng.randint(1, terms - 1)
    return (rng.choice(operators), grow(rng, left, operators, leaf), grow(rng, terms - left, operators, leaf))


def write(tree: Tree, above: int = 0, right: bool = False) -> str:
    """The text, with the parentheses that its meaning needs: left-associative, and * before +."""
    if not isinstance(tree, tuple):
        return str(tree)
    rank = RANK[tree[0]]
    text = f"{write(tree[1], rank)} {tree[0]} {write(tree[2], rank, True)}"
    return f"({text})" if rank < above or (right and rank == above) else text


def evaluate(tree: Tree, steps: list[str]) -> Fraction:
    """The value by recursion; every operation is appended to `steps`. Raises ZeroDivisionError."""
    if not isinstance(tree, tuple):
        return tree
    a, b = evaluate(tree[1], steps), evaluate(tree[2], steps)
    value = a + b if tree[0] == "+" else a - b if tree[0] == "-" else a * b if tree[0] == "*" else a / b
    steps.append(f"{a} {tree[0]} {f'({b})' if b < 0 else b} = {value}")
    return value


def parse(text: str) -> Tree:
    """The tree of a text, by recursive descent. Raises Refused outside the grammar, and for nesting deeper than 50."""
    tokens = _TOKEN.findall(text)
    if "".join(tokens) != text.replace(" ", ""):
        raise Refused(f"roundtrip: {text!r} is no expression")

    def level(at: int, rank: int, depth: int) -> tuple[Tree, int]:
        if depth > 50:
            raise Refused("roundtrip: nested deeper than 50")
        if rank == 3:
            if at < len(tokens) and tokens[at] == "(":
                tree, at = level(at + 1, 1, depth + 1)
                if at == len(tokens) or tokens[at] != ")":
                    raise Refused(f"roundtrip: a parenthesis of {text!r} is not closed")
                return tree, at + 1
            if at == len(tokens) or not tokens[at][0].isdigit() or tokens[at].endswith("/0"):
                raise Refused(f"roundtrip: a number is missing in {text!r}")
            return Fraction(tokens[at]), at + 1
        tree, at = level(at, rank + 1, depth + 1)
        while at < len(tokens) and RANK.get(tokens[at]) == rank:
            right, after = level(at + 1, rank + 1, depth + 1)
            tree, at = (tokens[at], tree, right), after
        return tree, at

    tree, end = level(0, 1, 0)
    if end != len(tokens):
        raise Refused(f"roundtrip: {tokens[end]!r} is unexpected in {text!r}")
    return tree


def shunting_yard(text: str) -> Fraction:
    """The value of a text. Raises Refused if it does not parse."""
    values: list[Fraction] = []
    waiting: list[str] = []

    def apply() -> None:
        sign, b, a = waiting.pop(), values.pop(), values.pop()
        values.append(a + b if sign == "+" else a - b if sign == "-" else a * b if sign == "*" else a / b)

    try:
        for token in _TOKEN.findall(text):
            if token == "(":
                waiting.append(token)
            elif token == ")":
                while waiting[-1] != "(":
                    apply()
                waiting.pop()
            elif token in RANK:
                while waiting and waiting[-1] != "(" and RANK[waiting[-1]] >= RANK[token]:
                    apply()
                waiting.append(token)
            else:
                values.append(Fraction(token))
        while waiting:
            apply()
        (value,) = values
    except (IndexError, ValueError, ZeroDivisionError, KeyError) as e:
        raise Refused(f"roundtrip: {text!r} has no value") from e
    return value
