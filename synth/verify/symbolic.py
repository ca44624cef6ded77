"""A mathematical expression, equal to the reference as a function of its variables: x*(x + 1), x^2 + x and x + x**2 are
one.

Own tokenizer and recursive-descent parser, which build sympy nodes one by one: no text ever reaches sympy, whose own
parsers evaluate Python. Grammar: + - * / ^ (or **), parentheses, numbers, a number or parenthesis before a name or parenthesis (2x, (x + 1)y),
the names of `variables`, pi, and sqrt, sin, cos, tan, exp, log, abs of one argument. Limits on length, depth, digits
and exponents; what sympy then does runs in a child of the pool, which is killed beyond its limits of time and memory,
on any thread.

Equality is decided exactly: unequal where the two differ at one of three rational points, equal where sympy proves the
difference zero. Where it can prove neither, the answer is Unscorable, never wrong.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from synth.types import Problem, Score, Unscorable
from synth.verify import RIGHT, UNPARSABLE, WRONG

SECONDS = 5
FORM = "math"
EXAMPLE = {"prompt": "Expand (x + 1)^2 / 2.", "answer": "x^2/2 + x + 1/2", "args": {"variables": ["x"]}}
MAX_CHARS, MAX_DEPTH, MAX_DIGITS, MAX_EXPONENT = 200, 20, 18, 40
FUNCTIONS = ("sqrt", "sin", "cos", "tan", "exp", "log", "abs")
POINTS = ((3, 7), (11, 5), (-2, 9))  # rational points p/q; the i-th variable is moved by i
_TOKEN = re.compile(r"[ ]*(?:(?P<number>[0-9]+(?:\.[0-9]+)?)|(?P<name>[A-Za-z]+)|(?P<symbol>\*\*|[-+*/^()]))")


def parse(text: str, variables: Sequence[str]) -> Any:
    """The sympy expression of a text. Raises ValueError for anything outside the grammar or its limits."""
    if len(text) > MAX_CHARS:
        raise ValueError(f"an expression of {len(text)} characters is over the limit of {MAX_CHARS}")
    text, tokens, at = text.strip(" "), [], 0
    while at < len(text):
        if not (match := _TOKEN.match(text, at)):
            raise ValueError(f"character {at}: {text[at : at + 10]!r} is no number, name or operator")
        kind = str(match.lastgroup)
        tokens.append((kind, match[kind].replace("**", "^")))
        at = match.end()
    if not tokens:
        raise ValueError("there is no expression")
    reader = _Reader(tokens, frozenset(variables))
    node = reader.sum(0)
    if reader.at != len(tokens):
        raise ValueError(f"unexpected {tokens[reader.at][1]!r} after a complete expression")
    return node


class _Reader:
    """Recursive descent over tokens (kind, text); `at` is the next one."""

    def __init__(self, tokens: Sequence[tuple[str, str]], variables: frozenset[str]) -> None:
        import sympy

        self.sympy, self.tokens, self.variables, self.at = sympy, tokens, variables, 0

    def peek(self) -> str:
        return self.tokens[self.at][1] if self.at < len(self.tokens) else ""

    def take(self) -> tuple[str, str]:
        if self.at == len(self.tokens):
            raise ValueError("the expression ends too soon")
        self.at += 1
        return self.tokens[self.at - 1]

    def sum(self, depth: int) -> Any:
        if depth > MAX_DEPTH:
            raise ValueError(f"nested deeper than {MAX_DEPTH}")
        node = self.product(depth)
        while self.peek() in ("+", "-"):
            sign = self.take()[1]
            right = self.product(depth)
            node = node + right if sign == "+" else node - right
        return node

    def product(self, depth: int) -> Any:
        node = self.signed(depth)
        while self.peek() in ("*", "/"):
            sign = self.take()[1]
            right = self.signed(depth)
            if sign == "/" and right == 0:
                raise ValueError("a division by zero")
            node = node * right if sign == "*" else node / right
        return node

    def signed(self, depth: int) -> Any:
        if self.peek() in ("+", "-"):
            sign = self.take()[1]
            if depth >= MAX_DEPTH:
                raise ValueError(f"nested deeper than {MAX_DEPTH}")
            node = self.signed(depth + 1)
            return -node if sign == "-" else node
        return self.power(depth)

    def power(self, depth: int) -> Any:
        node = self.atom(depth)
        if self.peek() == "^":
            self.take()
            node = self._raised(node, self.exponent(depth))
        last = self.tokens[self.at - 1]
        follows = self.tokens[self.at] if self.at < len(self.tokens) else ("", "")
        if (last[0] == "number" or last[1] == ")") and (
            follows[0] == "name" or follows[1] == "("
        ):  # 2x, 3(x + 1), (x)(y)
            if depth >= MAX_DEPTH:
                raise ValueError(f"nested deeper than {MAX_DEPTH}")
            return node * self.power(depth + 1)
        return node

    def exponent(self, depth: int) -> Any:
        if self.peek() == "-":
            self.take()
            return -self.exponent(depth + 1)
        node = self.atom(depth)
        if self.peek() == "^":
            raise ValueError("a power of a power needs parentheses")
        return node

    def _raised(self, base: Any, exponent: Any) -> Any:
        if exponent.is_number and (not exponent.is_Rational or abs(exponent) > MAX_EXPONENT):
            raise ValueError(f"the exponent {exponent} is no rational number up to {MAX_EXPONENT}")
        if base.is_number and not exponent.is_number and base != self.sympy.E:
            raise ValueError("a number to the power of a variable: write it with exp")
        if base == 0 and not (exponent.is_number and exponent > 0):
            raise ValueError("a power of zero")
        power = base**exponent
        if (
            power.is_Pow and power.exp.is_number and abs(power.exp) > MAX_EXPONENT
        ):  # sympy has multiplied nested exponents
            raise ValueError(f"the exponent {power.exp} is over {MAX_EXPONENT}")
        return power

    def atom(self, depth: int) -> Any:
        kind, text = self.take()
        if kind == "number":
            if len(text) > MAX_DIGITS:
                raise ValueError(f"a number of {len(text)} digits is over the limit of {MAX_DIGITS}")
            return self.sympy.Rational(text)
        if kind == "name" and text in self.variables:
            return self.sympy.Symbol(text, real=True)
        if kind == "name" and text == "pi":
            return self.sympy.pi
        if kind == "name" and (text := "log" if text == "ln" else text) in FUNCTIONS:
            if self.take()[1] != "(":
                raise ValueError(f"{text} needs parentheses")
            inner = self._closed(depth)
            if text == "exp" and inner.is_number and abs(inner) > MAX_EXPONENT:
                raise ValueError(f"exp of {inner} is over the limit of {MAX_EXPONENT}")
            return getattr(self.sympy, "Abs" if text == "abs" else text)(inner)
        if text == "(":
            return self._closed(depth)
        raise ValueError(f"{text!r} is no value here")

    def _closed(self, depth: int) -> Any:
        node = self.sum(depth + 1)
        if self.take()[1] != ")":
            raise ValueError("a parenthesis is not closed")
        return node


def symbolic(problem: Problem, answer: str, *, variables: Sequence[str] = ()) -> Score:
    """1 where answer and reference are the same function of `variables`. Runs in the pool; call it through
    `synth.verify.verify`."""
    try:
        gold = _finite(parse(problem.answer, variables))
    except ValueError as e:
        return Unscorable(reason=f"bad_reference: {e}")
    try:
        given = _finite(parse(answer, variables))
    except ValueError:
        return UNPARSABLE
    equal = _equal(gold, given, variables)
    return (
        Unscorable(reason=f"undecided: whether {answer!r} is {problem.answer!r}")
        if equal is None
        else RIGHT
        if equal
        else WRONG
    )


def _finite(expression: Any) -> Any:
    """The expression. Raises ValueError where it is no finite real value or function."""
    import sympy

    if expression.has(sympy.zoo, sympy.nan, sympy.oo, -sympy.oo, sympy.I):
        raise ValueError("it has no finite real value")
    return expression


def _equal(one: Any, two: Any, variables: Sequence[str]) -> bool | None:
    """Whether two expressions are equal; None where neither was shown."""
    import sympy

    difference = one - two
    if difference == 0:
        return True
    for p, q in POINTS:
        at = {sympy.Symbol(name, real=True): sympy.Rational(p + i, q) for i, name in enumerate(variables)}
        value = difference.subs(at)
        number = sympy.N(value, 30)
        if number.is_number and number.is_comparable and abs(number) > sympy.Rational(1, 10**15):
            return False
    if sympy.expand(sympy.together(difference)) == 0:
        return True
    return difference.equals(0)
