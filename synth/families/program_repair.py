"""One line of a small program is wrong; its issue says what it should compute. Give the edit that fixes it.

After SWE-RL (Wei et al. 2025, arXiv 2502.18449), with programs of three to six lines in place of repositories.
Certificate: the right program is drawn and one line changed; from the text, of all edits of one line those that compute
what the issue says are counted, and there must be one. Difficulty axes: lines, examples.
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
    {"lines": 3, "examples": 3},
    {"lines": 4, "examples": 3},
    {"lines": 5, "examples": 3},
    {"lines": 6, "examples": 4},
)
CERTIFICATE = ("drawn and broken", "all edits of one line, run on the issue's examples")
WORDINGS = Wordings(
    "Fix one line: {program}. It should turn {examples}.",
    "One line of the program {program} is wrong. It is meant to turn {examples}. Repair it.",
    "A user writes that {program} should turn {examples}, and it does not. Which line has to change, and how?",
    "The program {program} has one mistake: it ought to turn {examples}. Which edit of one line mends it?",
    "A test expects that {program} turns {examples}. Change one line so that it does.",
    answer="Numbers in lines are from 1 to 19. Answer with - and the old line, then below it + and the new line.",
    program=r"x = x [-+*] \d+(?:; x = x [-+*] \d+)*",
    examples=r"-?\d+ into -?\d+(?:, -?\d+ into -?\d+)*",
)
_LINE = re.compile(r"x = x ([-+*]) (\d+)")
Line = tuple[str, int]
EDITS: tuple[Line, ...] = tuple((o, k) for o in "+-*" for k in range(1, 20) if (o, k) != ("*", 1))


def program_repair(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: an edit. `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="program_repair",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def run(program: Sequence[Line], x: int) -> int:
    for operator, k in program:
        x = x + k if operator == "+" else x - k if operator == "-" else x * k
    return x


def fixed(broken: Sequence[Line], examples: Sequence[tuple[int, int]]) -> list[tuple[int, Line]]:
    """Every (line, what to put there) that makes the program compute the examples."""
    out = []
    for i in range(len(broken)):
        heads = [(run(broken[:i], x), y) for x, y in examples]
        out += [(i, e) for e in EDITS if e != broken[i] and all(run((e, *broken[i + 1 :]), h) == y for h, y in heads)]
    return out


def draw(rng: Random, *, lines: int, examples: int) -> tuple[str, tuple]:
    while True:
        right = rng.sample(EDITS, lines)
        at = rng.randrange(lines)
        wrong = rng.choice([e for e in EDITS if e not in right])
        broken = [*right[:at], wrong, *right[at + 1 :]]
        told = [(x, run(right, x)) for x in rng.sample(range(-9, 20), examples)]
        if fixed(broken, told) == [(at, right[at])]:
            return f"{broken} {sorted(told)}", (broken, told, at, right[at])


def write(line: Line) -> str:
    return f"x = x {line[0]} {line[1]}"


def edit(old: Line, new: Line) -> str:
    return f"- {write(old)}\n+ {write(new)}"


def pose(spec: tuple) -> dict[str, Any]:
    broken, told, at, line = spec
    return {
        "prompt": WORDINGS.write(
            program="; ".join(map(write, broken)), examples=", ".join(f"{x} into {y}" for x, y in told)
        ),
        "answer": edit(broken[at], line),
        "verifier": "patch",
        "args": {"program": [write(b) for b in broken]},
    }


def solve(question: str) -> str:
    read = WORDINGS.read(question)
    broken = [(o, int(k)) for o, k in _LINE.findall(read["program"])]
    examples = [(int(a), int(b)) for a, b in re.findall(r"(-?\d+) into (-?\d+)", read["examples"])]
    fixes = fixed(broken, examples)
    if len(fixes) != 1:
        raise Refused(f"{'not_unique' if fixes else 'impossible'}: {len(fixes)} edits of one line fit")
    return edit(broken[fixes[0][0]], fixes[0][1])
