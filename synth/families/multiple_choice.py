"""Six statements about numbers, each labelled true or false by computation: which one is true, or which one is false?

Certificate: a statement is built to be true or false from drawn numbers; from the text every statement is judged by
another computation, and exactly one must stand out. The labels are in the worked answer. Difficulty axes: size of the
numbers, kinds of statements mixed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from math import gcd, isqrt
from random import Random
from typing import Any

from synth.families._sample import Refused, item, parsed
from synth.families._wordings import Wordings
from synth.types import Problem, Quarantined, Split

LADDER = (
    {"size": 30, "mixed": False},
    {"size": 99, "mixed": False},
    {"size": 99, "mixed": True},
    {"size": 999, "mixed": True},
)
CERTIFICATE = ("built to be true or false", "judged from the text by trial division, fractions and enumeration")
WORDINGS = Wordings(
    "Which statement is {label}? {options}.",
    "Only one of these is {label}: {options}. Which one?",
    "Find the {label} statement: {options}.",
    "Five of these are not {label}, one is: {options}. Which one?",
    "Mark the statement that is {label}: {options}.",
    answer="Answer with a letter from A to F.",
    label="true|false",
    options=r"A\) [^.]+",
)
_OPTIONS = re.compile(r"A\) (.+) B\) (.+) C\) (.+) D\) (.+) E\) (.+) F\) (.+)")
_STATEMENTS = [
    ("prime", re.compile(r"(\d+) is prime")),
    ("divides", re.compile(r"(\d+) divides (\d+)")),
    ("square", re.compile(r"(\d+) is a square")),
    ("product", re.compile(r"(\d+) \* (\d+) = (\d+)")),
    ("less", re.compile(r"(\d+)/(\d+) < (\d+)/(\d+)")),
    ("coprime", re.compile(r"(\d+) and (\d+) share no divisor above 1")),
]


def multiple_choice(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: a letter from A to F. `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="multiple_choice",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, size: int, mixed: bool) -> tuple[str, tuple[bool, list[tuple[bool, str]]]]:
    kinds = [name for name, _ in _STATEMENTS]
    kind, largest, place = rng.choice(kinds), rng.random() < 0.5, rng.randrange(6)
    options: list[tuple[bool, str]] = []
    while len(options) < 6:
        label = largest if len(options) == place else not largest
        text = statement(rng, rng.choice(kinds) if mixed else kind, size, label)
        if text not in [t for _, t in options]:
            options.append((label, text))
    return f"{largest} {sorted(t for _, t in options)}", (largest, options)


def statement(rng: Random, kind: str, size: int, label: bool) -> str:
    """A statement of a kind that is true or false as asked."""
    while True:
        a, b, c, d = (rng.randint(2, size) for _ in range(4))
        match kind:
            case "prime":
                truth, text = all(a % k for k in range(2, isqrt(a) + 1)), f"{a} is prime"
            case "divides":
                c = a * rng.randint(2, 9) + (0 if label else rng.randint(1, a - 1))
                truth, text = c % a == 0, f"{a} divides {c}"
            case "square":
                c = a * a + (0 if label else rng.choice((-2, -1, 1, 2, 10)))
                truth, text = isqrt(c) ** 2 == c, f"{c} is a square"
            case "product":
                c = a * b + (0 if label else rng.choice((-10, -2, -1, 1, 2, 10)))
                truth, text = c == a * b, f"{a} * {b} = {c}"
            case "less":
                truth, text = a * d < c * b and a * d != c * b, f"{a}/{b} < {c}/{d}"
            case _:
                truth, text = gcd(a, b) == 1, f"{a} and {b} share no divisor above 1"
        if truth == label and "-" not in text:
            return text


def pose(spec: tuple[bool, list[tuple[bool, str]]]) -> dict[str, Any]:
    largest, options = spec
    listed = " ".join(f"{letter}) {text}" for letter, (_, text) in zip("ABCDEF", options, strict=True))
    answer = "ABCDEF"[[label for label, _ in options].index(largest)]
    working = ", ".join(
        f"{letter} {'true' if label else 'false'}" for letter, (label, _) in zip("ABCDEF", options, strict=True)
    )
    return {
        "prompt": WORDINGS.write(label="true" if largest else "false", options=listed),
        "answer": answer,
        "verifier": "choice",
        "working": working,
    }


def judge(text: str) -> bool:
    """Whether a statement is true, by slow and plain means."""
    kind, numbers = next(
        ((k, [int(n) for n in m.groups()]) for k, p in _STATEMENTS if (m := p.fullmatch(text))), ("", [])
    )
    divisors = [{k for k in range(1, n + 1) if n % k == 0} for n in numbers] if kind in ("prime", "coprime") else []
    match kind:
        case "prime":
            return len(divisors[0]) == 2
        case "coprime":
            return divisors[0] & divisors[1] == {1}
        case "divides":
            return Fraction(numbers[1], numbers[0]).denominator == 1
        case "square":
            return any(k * k == numbers[0] for k in range(isqrt(numbers[0]) + 2))
        case "product":
            return sum([numbers[0]] * numbers[1]) == numbers[2]
        case "less":
            return Fraction(numbers[0], numbers[1]) < Fraction(numbers[2], numbers[3])
    raise Refused(f"roundtrip: {text!r} is no statement")


def solve(question: str) -> str:
    read = WORDINGS.read(question)
    texts, wanted = parsed(_OPTIONS, read["options"]).groups(), read["label"] == "true"
    fits = [letter for letter, text in zip("ABCDEF", texts, strict=True) if judge(text) == wanted]
    if len(fits) != 1:
        raise Refused(f"not_unique: {' '.join(fits) or 'no option'} fits")
    return fits[0]
