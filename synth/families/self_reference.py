"""Which statements are true that speak about one another.

Certificate: all truth values by bits on the values against sets of true statements, by size, over the text.
Difficulty axes: statements.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import combinations
from random import Random
from typing import Any

from synth.families._sample import Refused, item
from synth.families._wordings import Wordings
from synth.types import Problem, Quarantined, Split

LADDER = ({"statements": 4}, {"statements": 5}, {"statements": 6}, {"statements": 7})
CERTIFICATE = ("truth values by bits", "sets of true statements over the text")
WORDINGS = Wordings(
    "Each of these statements is true or false: {statements}. Which are true?",
    "Find the only consistent way to call these statements true or false: {statements}. Which of them are true?",
    "{statements}. Every one is either true or false, without contradiction. Name the true ones.",
    "A sheet of paper says: {statements}. Exactly one choice of truth values fits. Which statements does it make true?",
    "Among the following, which statements are true? {statements}. There is just one way without contradiction.",
    answer="Answer with their numbers, parted by spaces.",
    statements=r"\(1\) [a-z\d ]+(?:, \(\d\) [a-z\d ]+)+",
)
FORMS = (
    "the number of true ones is exactly {}",
    "the number of false ones is at least {}",
    "statement {} is false",
    "statement {} is true",
    "the number of true ones is at most {}",
)
Spec = tuple[list[tuple[int, int]], list[int]]


def holds(claim: tuple[int, int], true: int, n: int) -> bool:
    """Whether a claim is right where the bits of `true` say which statements are."""
    form, k = claim
    count = true.bit_count()
    return (count == k, n - count >= k, not true >> (k - 1) & 1, bool(true >> (k - 1) & 1), count <= k)[form]


def self_reference(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: numbers of statements. `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="self_reference",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, statements: int) -> tuple[str, Spec]:
    n = statements
    while True:
        claims = []
        for i in range(n):
            form = rng.randrange(5)
            claims.append(
                (
                    form,
                    rng.choice([k for k in range(1, n + 1) if k != i + 1]) if form in (2, 3) else rng.randint(1, n - 1),
                )
            )
        fits = [t for t in range(1 << n) if all(holds(c, t, n) == bool(t >> i & 1) for i, c in enumerate(claims))]
        if len(set(claims)) == n and len(fits) == 1 and fits[0]:
            return f"{claims}", (claims, [i + 1 for i in range(n) if fits[0] >> i & 1])


def pose(spec: Spec) -> dict[str, Any]:
    claims, true = spec
    told = ", ".join(f"({i}) {FORMS[form].format(k)}" for i, (form, k) in enumerate(claims, 1))
    return {"prompt": WORDINGS.write(statements=told), "answer": " ".join(map(str, true)), "verifier": "item_set"}


def solve(question: str) -> str:
    told = WORDINGS.read(question)["statements"]
    rows = [
        (i, word, k, value)
        for i, value, word, k in re.findall(
            r"\((\d)\) the number of (true|false) ones is (exactly|at least|at most) (\d)", told
        )
    ]
    rows += [(i, "statement", k, value) for i, k, value in re.findall(r"\((\d)\) statement (\d) is (true|false)", told)]
    solutions = []
    for size in range(len(rows) + 1):
        for true in combinations([int(i) for i, *_ in rows], size):
            right = True
            for i, word, k, value in rows:
                if word == "statement":
                    claimed = (int(k) in true) == (value == "true")
                else:
                    count = size if value == "true" else len(rows) - size
                    claimed = {"exactly": count == int(k), "at least": count >= int(k), "at most": count <= int(k)}[
                        word
                    ]
                right = right and claimed == (int(i) in true)
            if right:
                solutions.append(" ".join(map(str, true)))
    if len(solutions) != 1 or not solutions[0]:
        raise Refused(f"{'not_unique' if len(solutions) > 1 else 'impossible'}: {len(solutions)} ways fit")
    return solutions[0]
