"""Find the function from examples and apply it to a new list.

Certificate: the drawn program on the values; from the text, every program of at most `MOST` steps over the whole
vocabulary that fits all examples is enumerated, and all of them must agree on the new list (else the item is quarantined
as not unique). So the answer does not depend on which of the fitting programs a solver has in mind, as long as it is no
longer than the drawn one may be. Difficulty axes: steps of the program, examples, length of the lists.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import Random
from typing import Any

from synth.families._lists import STEPS, Step, apply, draw_step, phrase
from synth.families._sample import Refused, item
from synth.families._wordings import Wordings
from synth.types import Problem, Quarantined, Split

LADDER = (
    {"steps": 1, "examples": 5, "length": 6},
    {"steps": 2, "examples": 6, "length": 6},
    {"steps": 2, "examples": 6, "length": 8},
)
CERTIFICATE = ("the drawn program", "every program of up to two steps that fits the examples")
MOST = 2
WORDINGS = Wordings(
    "A function of lists has {shown}. What is f({query})?",
    "Find the rule behind {shown} and give f({query}).",
    "A machine turns lists into lists: {shown}. What does it make of {query}?",
    "{shown}. Apply the same function to {query}.",
    "A short program f gave {shown}. Which list will f({query}) be?",
    answer="Answer with the numbers, parted by spaces.",
    shown=r"f\([\d ]+\) = [\d ]+(?:; f\([\d ]+\) = [\d ]+)*",
    query=r"[\d ]+",
)
_EXAMPLE = re.compile(r"f\(([\d ]+)\) = ([\d ]+|none)")
Values = tuple[int, ...]
Spec = tuple[list[Step], list[Values], Values]


def list_induction(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: the list that the function gives. `levels` are the rungs of the ladder to draw
    from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="list_induction",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, steps: int, examples: int, length: int) -> tuple[str, Spec]:
    while True:
        program = [draw_step(rng) for _ in range(steps)]
        lists = [tuple(rng.randint(0, 15) for _ in range(rng.randint(length - 2, length))) for _ in range(examples)]
        lists.append(tuple(rng.sample(range(16), length)))
        outs = [run(program, xs) for xs in lists]
        if all(outs) and len(set(outs)) == len(outs) and sum(a == b for a, b in zip(lists, outs, strict=True)) <= 1:
            return f"{program} {lists}", (program, lists[:-1], lists[-1])


def run(program: Sequence[Step], xs: Values) -> Values:
    for step in program:
        xs = apply(step, xs)
    return xs


def pose(spec: Spec) -> dict[str, Any]:
    program, lists, query = spec
    shown = "; ".join(f"f({_text(xs)}) = {_text(run(program, xs))}" for xs in lists)
    return {
        "prompt": WORDINGS.write(shown=shown, query=_text(query)),
        "answer": _text(run(program, query)),
        "verifier": "ordered_list",
        "working": f"f: {', then '.join(map(phrase, program))}.",
    }


def _text(xs: Values) -> str:
    return " ".join(map(str, xs)) or "none"


def _read(text: str) -> Values:
    return () if text == "none" else tuple(int(x) for x in text.split())


def solve(question: str) -> str:
    read = WORDINGS.read(question)
    query = read["query"]
    pairs = [(_read(a), _read(b)) for a, b in _EXAMPLE.findall(read["shown"])]
    goal = tuple(b for _, b in pairs)
    rows = [
        (*(a for a, _ in pairs), _read(query))
    ]  # the examples and the query under every program, programs with equal results merged
    values = {row[-1] for row in rows if row[:-1] == goal}
    for _ in range(MOST):
        rows = list(dict.fromkeys(row for before in rows for step in STEPS if (row := _step(step, before)) is not None))
        values |= {row[-1] for row in rows if row[:-1] == goal}
    if len(values) != 1:
        raise Refused(f"{'not_unique' if values else 'impossible'}: the programs that fit give {sorted(values)}")
    return _text(values.pop())


def _step(step: Step, row: tuple[Values, ...]) -> tuple[Values, ...] | None:
    """The row after a step; None where an example became empty, from which nothing leads to a shown result (none is
    empty)."""
    out = []
    for xs in row[:-1]:
        if not (ys := apply(step, xs)):
            return None
        out.append(ys)
    return (*out, apply(step, row[-1]))
