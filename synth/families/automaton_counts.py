"""Count the words of a length that a finite automaton accepts.

Certificate: a table over states on the values against every word of the length, run through the text's automaton.
Difficulty axes: states, length.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import product
from random import Random
from typing import Any

from synth.families._sample import item
from synth.families._wordings import Wordings
from synth.types import Problem, Quarantined, Split

LADDER = (
    {"states": 2, "length": 4},
    {"states": 3, "length": 5},
    {"states": 4, "length": 7},
    {"states": 5, "length": 9},
)
CERTIFICATE = ("a table over states", "every word run through the text's automaton")
WORDINGS = Wordings(
    "A finite automaton starts in A and has the moves {moves}. A word is accepted if it ends in {final}. How many words of {n} letters a and b are accepted?",
    "Moves of an automaton with the start state A: {moves}. Accepting: {final}. Count the accepted words of length {n} over a and b.",
    "A machine begins in state A and reads a word of a and b letter by letter, moving {moves}. Of all words with {n} letters, what number brings it to {final}?",
    "Consider the automaton with the transitions {moves}, start A, accepting {final}. Find the number of words of length {n} over the letters a and b that it accepts.",
    "From state A, letters lead on as follows: {moves}. How many strings of exactly {n} letters, each a or b, end in {final}?",
    answer="(Aa-B: in state A the letter a leads to B.) Answer with one integer.",
    moves=r"[A-F][ab]-[A-F](?:, [A-F][ab]-[A-F])*",
    final=r"[A-F](?: or [A-F])*",
)
Spec = tuple[dict[str, str], list[str], int]


def automaton_counts(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: an integer. `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="automaton_counts",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, states: int, length: int) -> tuple[str, Spec]:
    while True:
        names, n = "ABCDEF"[:states], rng.randint(length - 1, length + 1)
        moves = {f"{s}{c}": rng.choice(names) for s in names for c in "ab"}
        final = sorted(rng.sample(names, rng.randint(1, max(1, states - 2))))
        if 1 < accepted(moves, final, n) < 2**n:
            return f"{sorted(moves.items())} {final} {n}", (moves, final, n)


def accepted(moves: dict[str, str], final: Sequence[str], n: int) -> int:
    ways = {"A": 1}
    for _ in range(n):
        after: dict[str, int] = {}
        for state, count in ways.items():
            for c in "ab":
                after[moves[state + c]] = after.get(moves[state + c], 0) + count
        ways = after
    return sum(ways.get(state, 0) for state in final)


def pose(spec: Spec) -> dict[str, Any]:
    moves, final, n = spec
    told = ", ".join(f"{key}-{to}" for key, to in moves.items())
    return {
        "prompt": WORDINGS.write(moves=told, final=" or ".join(final), n=n),
        "answer": str(accepted(moves, final, n)),
        "verifier": "number",
        "args": {"kind": "integer"},
    }


def solve(question: str) -> str:
    fields = WORDINGS.read(question)
    moves = dict(re.findall(r"([A-F][ab])-([A-F])", fields["moves"]))
    count = 0
    for word in product("ab", repeat=int(fields["n"])):
        state = "A"
        for c in word:
            state = moves[state + c]
        count += state in fields["final"].split(" or ")
    return str(count)
