"""Letters stand for digits in a sum; which number is the result?

Certificate: all readings found column by column on the values, of which hints leave one, against a search over
letters by weight from the text. Difficulty axes: digits.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import Random
from typing import Any

from synth.families._sample import Refused, item
from synth.families._wordings import Wordings
from synth.types import Problem, Quarantined, Split

LADDER = ({"digits": 2}, {"digits": 3}, {"digits": 4}, {"digits": 5})
CERTIFICATE = ("readings found column by column", "a search over letters by weight")
WORDINGS = Wordings(
    "Each letter stands for one digit, different letters for different digits, and no number begins with 0: {a} + {b} = {c}. {hints}. Which number is {c}?",
    "In the sum {a} + {b} = {c} equal letters are equal digits, different letters different digits, and no first digit is 0. {hints}. Find the number {c}.",
    "Decode {a} + {b} = {c}, where every letter is a digit of its own and leading digits are not 0. {hints}. What is the value of {c}?",
    "A cryptarithm: {a} + {b} = {c}. Different letters are different digits, and none of the three numbers starts with 0. {hints}. Which number does {c} stand for?",
    "The digits of a correct addition were replaced by letters, each digit by its own letter: {a} + {b} = {c}. No number has a leading zero. {hints}. What was {c}?",
    answer="Answer with one integer.",
    a="[A-J]+",
    b="[A-J]+",
    c="[A-J]+",
    hints=r"(?:[A-J] = \d(?:, [A-J] = \d)*|No digit is given away)",
)
Spec = tuple[str, str, str, dict[str, int]]


def cryptarithms(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: an integer. `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="cryptarithms",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, digits: int) -> tuple[str, Spec]:
    while True:
        a, b = (rng.randint(10 ** (digits - 1), 10**digits - 1) for _ in range(2))
        letters = rng.sample("ABCDEFGHIJ", 10)
        words = ["".join(letters[int(d)] for d in str(n)) for n in (a, b, a + b)]
        truth = {letters[int(d)]: int(d) for d in f"{a}{b}{a + b}"}
        hints: dict[str, int] = {}
        fitting = readings(words, hints)
        while len({_value(words[2], r) for r in fitting}) > 1:  # the letter that leaves the fewest readings
            left = sorted(set(truth) - set(hints), key=lambda x: (x in words[2], x))
            name = min(left, key=lambda x: (x in words[2], sum(r[x] == truth[x] for r in fitting)))
            hints[name] = truth[name]
            fitting = [r for r in fitting if r[name] == truth[name]]
        if len(set(words[2]) - set(hints)) > 1:
            return f"{a} {b} {sorted(hints.values())}", (words[0], words[1], words[2], hints)


def _value(word: str, reading: dict[str, int]) -> int:
    return int("".join(str(reading[c]) for c in word))


def readings(words: Sequence[str], given: dict[str, int]) -> list[dict[str, int]]:
    """Every reading of the sum, from the last column to the first."""
    first, out = {word[0] for word in words}, []

    def column(k: int, carry: int, known: dict[str, int]) -> None:
        if k > len(words[2]):
            if carry == 0:
                out.append(known)
            return
        tops = [word[-k] for word in words[:2] if k <= len(word)]
        below = words[2][-k]

        def letter(i: int, total: int, known: dict[str, int]) -> None:
            if i == len(tops):
                digit = total % 10
                if known.get(below, digit) == digit and (below in known or digit not in known.values()):
                    if digit or below not in first:
                        column(k + 1, total // 10, {**known, below: digit})
                return
            if tops[i] in known:
                letter(i + 1, total + known[tops[i]], known)
                return
            for digit in range(int(tops[i] in first), 10):
                if digit not in known.values():
                    letter(i + 1, total + digit, {**known, tops[i]: digit})

        letter(0, carry, known)

    column(1, 0, dict(given))
    return out


def pose(spec: Spec) -> dict[str, Any]:
    a, b, c, hints = spec
    (value,) = {_value(c, r) for r in readings((a, b, c), hints)}
    told = ", ".join(f"{x} = {d}" for x, d in hints.items()) or "No digit is given away"
    return {
        "prompt": WORDINGS.write(a=a, b=b, c=c, hints=told),
        "answer": str(value),
        "verifier": "number",
        "args": {"kind": "integer"},
    }


def solve(question: str) -> str:
    fields = WORDINGS.read(question)
    weights: dict[str, int] = {}
    for name, sign in (("a", 1), ("b", 1), ("c", -1)):
        for power, letter in enumerate(reversed(fields[name])):
            weights[letter] = weights.get(letter, 0) + sign * 10**power
    given = {x: int(d) for x, d in re.findall(r"([A-J]) = (\d)", fields["hints"])}
    first = {fields[name][0] for name in "abc"}
    letters = sorted(weights, key=lambda x: -abs(weights[x]))
    room = [9 * sum(abs(weights[x]) for x in letters[i:]) for i in range(len(letters) + 1)]
    values = set()

    def assign(i: int, total: int, known: dict[str, int]) -> None:
        if abs(total) > room[i]:
            return
        if i == len(letters):
            values.add("".join(str(known[x]) for x in fields["c"]))
            return
        x = letters[i]
        for digit in (given[x],) if x in given else range(int(x in first), 10):
            if digit not in known.values():
                assign(i + 1, total + digit * weights[x], {**known, x: digit})

    assign(0, 0, {})
    if len(values) != 1:
        raise Refused(f"{'not_unique' if values else 'impossible'}: {len(values)} numbers fit")
    return values.pop()
