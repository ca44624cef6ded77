"""An expression in variables, by its value: equal to the reference as a rational function.

Own recursive-descent parser over integers, variables, + - * / ^ and parentheses, evaluated while it is read, modulo
three 61-bit primes at points hashed from the reference: two different rational functions of degree d agree at all of
them with a probability below (d / 2^60)^3 (Schwartz 1980, Zippel 1979). Linear time, nothing is expanded and nothing is
run; an integer power is at most 99."""

from __future__ import annotations

import re
from dataclasses import dataclass

from synth.types import Problem, Score, Unscorable, seed_for
from synth.verify import RIGHT, UNPARSABLE, WRONG

MAX_CHARS, MAX_DEPTH, MAX_POWER = 300, 20, 99
PRIMES = (2305843009213693951, 2305843009213693921, 2305843009213693907)  # the three largest below 2^61
FORM = "math"
EXAMPLE = {"prompt": "Expand (x + 1)(x - 2).", "answer": "x^2 - x - 2"}
_TOKEN = re.compile(r"\s*(?:([0-9]{1,15}(?:\.[0-9]{1,9})?)|([a-z])|(\*\*|[-+*/^()]))", re.ASCII)


@dataclass
class _Reader:
    """A position in the tokens and the point at which they are evaluated."""

    tokens: list[str]
    prime: int
    key: str
    at: int = 0
    depth: int = 0

    def peek(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def take(self) -> str:
        self.at += 1
        return self.tokens[self.at - 1] if self.at <= len(self.tokens) else ""

    def sum(self) -> int:
        value = self.product()
        while self.peek() in ("+", "-"):
            value = value + self.product() if self.take() == "+" else value - self.product()
        return value % self.prime

    def product(self) -> int:
        value = self.signed()
        while (token := self.peek()) in ("*", "/", "(") or token.isalpha():  # 2x and 2(x + 1) are products
            if token in ("*", "/"):
                self.take()
            other = self.signed() if token in ("*", "/") else self.power()
            if token == "/" and other % self.prime == 0:
                raise ValueError("a division by zero")
            value = value * (pow(other, -1, self.prime) if token == "/" else other) % self.prime
        return value

    def signed(self) -> int:
        sign = 1
        while self.peek() in ("+", "-"):
            sign = -sign if self.take() == "-" else sign
        return sign * self.power()

    def power(self) -> int:
        base = self.atom()
        if self.peek() in ("^", "**"):
            self.take()
            exponent = self.take()
            if not exponent.isdigit() or int(exponent) > MAX_POWER:
                raise ValueError(f"the power {exponent!r} is no integer up to {MAX_POWER}")
            base = pow(base, int(exponent), self.prime)
        return base

    def atom(self) -> int:
        token = self.take()
        if token == "(":
            self.depth += 1
            if self.depth > MAX_DEPTH:
                raise ValueError(f"parentheses are nested deeper than {MAX_DEPTH}")
            value = self.sum()
            if self.take() != ")":
                raise ValueError("a parenthesis is not closed")
            self.depth -= 1
            return value
        if token[:1].isdigit():
            whole, _, decimals = token.partition(".")
            return int(whole + decimals) * pow(10 ** len(decimals), -1, self.prime) % self.prime
        if token.isalpha():
            return seed_for("formula", self.key, token, self.prime) % self.prime
        raise ValueError(f"{token!r} is no number, variable or parenthesis")


def values(text: str, key: str) -> tuple[int, ...]:
    """The values at the points of `key`. Raises ValueError for anything outside the grammar or its limits."""
    tokens, at, text = [], 0, text.strip()
    if not text or len(text) > MAX_CHARS:
        raise ValueError(f"an expression of {len(text)} characters")
    while at < len(text):
        if not (match := _TOKEN.match(text, at)):
            raise ValueError(f"character {at}: {text[at : at + 10]!r} is no part of an expression")
        tokens.append(next(g for g in match.groups() if g))
        at = match.end()
    out = []
    for prime in PRIMES:
        reader = _Reader(tokens, prime, key)
        out.append(reader.sum())
        if reader.at != len(tokens):
            raise ValueError(f"unexpected {reader.peek()!r}")
    return tuple(out)


def formula(problem: Problem, answer: str) -> Score:
    """1 where `answer` is the reference's function, however it is written: factored, expanded, in another order."""
    try:
        gold = values(problem.answer, problem.answer)
    except ValueError as e:
        return Unscorable(reason=f"bad_reference: {problem.answer!r}: {e}")
    try:
        return RIGHT if values(answer, problem.answer) == gold else WRONG
    except ValueError:
        return UNPARSABLE
