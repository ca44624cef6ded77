"""What a short Python program prints.

Certificate: the drawn program run as a tree against the text read line by line with its indents. Difficulty axes:
lines, rounds of the loops, branches.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import Random
from typing import Any

from synth.families._sample import Refused, item
from synth.families._wordings import Wordings
from synth.types import Problem, Quarantined, Split

LADDER = (
    {"lines": 3, "rounds": 1, "inner": 1, "branch": False},
    {"lines": 2, "rounds": 4, "inner": 1, "branch": False},
    {"lines": 2, "rounds": 6, "inner": 1, "branch": True},
    {"lines": 3, "rounds": 5, "inner": 4, "branch": True},
)
CERTIFICATE = ("run as a tree", "the text read line by line")
WORDINGS = Wordings(
    "Here is a Python program.\n{program}\nWhat does it print?",
    "Run this Python code in your head:\n{program}\nWhat does it print in the end?",
    "Predict the output of the program\n{program}\nin Python.",
    "Python:\n{program}\nWhich number appears on the screen?",
    "A student starts this Python script:\n{program}\nWhat is its output?",
    answer="Answer with one integer.",
    program=r"x = \d+\ny = \d+\n.+\nprint\(x [-+] y\)",
)
Line = tuple[str, str, str]  # variable, operator, what with
Spec = tuple[int, int, int, int, list[Line], tuple[int, list[Line]] | None, str]


def program_outputs(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: an integer. `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="program_outputs",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, lines: int, rounds: int, inner: int, branch: bool) -> tuple[str, Spec]:
    def line(names: str) -> Line:
        operator = rng.choice("+++--*" if inner == 1 else "+++--")
        other = str(rng.randint(2, 3)) if operator == "*" else rng.choice([*names, str(rng.randint(1, 9))])
        return (rng.choice("xy"), operator, other)

    names = "xy" + "i" * (rounds > 1) + "j" * (inner > 1)
    while True:
        body = [line(names) for _ in range(lines)]
        extra = (rng.randint(5, 60), [line(names)]) if branch else None
        spec = (rng.randint(1, 20), rng.randint(1, 20), rounds, inner, body, extra, rng.choice("+-"))
        if abs(run(spec)) < 100_000:
            return f"{spec}", spec


def run(spec: Spec) -> int:
    x, y, rounds, inner, body, extra, last = spec
    values = {"x": x, "y": y, "i": 0, "j": 0}

    def do(lines: Sequence[Line]) -> None:
        for name, operator, other in lines:
            k = values[other] if other in values else int(other)
            values[name] = (
                values[name] + k if operator == "+" else values[name] - k if operator == "-" else values[name] * k
            )

    for values["i"] in range(rounds):
        for values["j"] in range(inner):
            do(body)
            if extra and values["x"] > extra[0]:
                do(extra[1])
    return values["x"] + values["y"] if last == "+" else values["x"] - values["y"]


def pose(spec: Spec) -> dict[str, Any]:
    x, y, rounds, inner, body, extra, last = spec
    out, indent = [f"x = {x}", f"y = {y}"], ""
    for name, n in (("i", rounds), ("j", inner)):
        if n > 1:
            out.append(f"{indent}for {name} in range({n}):")
            indent += "    "
    out += [f"{indent}{a} = {a} {operator} {b}" for a, operator, b in body]
    if extra:
        out.append(f"{indent}if x > {extra[0]}:")
        out += [f"{indent}    {a} = {a} {operator} {b}" for a, operator, b in extra[1]]
    return {
        "prompt": WORDINGS.write(program="\n".join([*out, f"print(x {last} y)"])),
        "answer": str(run(spec)),
        "verifier": "number",
        "args": {"kind": "integer"},
    }


def solve(question: str) -> str:
    values: dict[str, int] = {}
    printed: list[int] = []

    def value(text: str) -> int:
        left, *more = text.split()
        a = values[left] if left in values else int(left)
        if not more:
            return a
        b = values[more[1]] if more[1] in values else int(more[1])
        return a + b if more[0] == "+" else a - b if more[0] == "-" else a * b

    def block(lines: list[str]) -> None:
        at = 0
        while at < len(lines):
            head = lines[at]
            at += 1
            below = []
            while at < len(lines) and lines[at].startswith("    "):
                below.append(lines[at][4:])
                at += 1
            if match := re.fullmatch(r"for ([ij]) in range\((\d+)\):", head):
                for k in range(int(match[2])):
                    values[match[1]] = k
                    block(below)
            elif match := re.fullmatch(r"if x > (\d+):", head):
                if values["x"] > int(match[1]):
                    block(below)
            elif match := re.fullmatch(r"print\((.+)\)", head):
                printed.append(value(match[1]))
            elif match := re.fullmatch(r"([xy]) = (.+)", head):
                values[match[1]] = value(match[2])
            else:
                raise Refused(f"roundtrip: {head!r} is no line of such a program")

    block(WORDINGS.read(question)["program"].split("\n"))
    return str(printed[0])
