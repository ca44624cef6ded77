"""Count the different orders of some letters, with repeats and a condition.

Certificate: multinomials on the values against words grown letter by letter from the text. Difficulty axes: letters,
kinds of letters.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cache
from math import comb, factorial, prod
from random import Random
from typing import Any

from synth.families._sample import item
from synth.families._wordings import Wordings
from synth.types import Problem, Quarantined, Split

LADDER = (
    {"letters": 6, "kinds": 4, "ruled": False},
    {"letters": 7, "kinds": 4, "ruled": True},
    {"letters": 9, "kinds": 5, "ruled": True},
    {"letters": 11, "kinds": 6, "ruled": True},
)
CERTIFICATE = ("multinomials", "words grown from the text")
WORDINGS = Wordings(
    "How many different words, with or without a meaning, can be made from all the letters {letters}{rule}?",
    "In how many different orders can the letters {letters} be written in a row{rule}?",
    "Count the distinct arrangements of all the letters {letters}{rule}.",
    "The letters {letters} are laid in a row; equal letters cannot be told apart. How many different rows are there{rule}?",
    "Find the number of different strings that use each of the letters {letters} exactly once{rule}.",
    answer="Answer with one integer.",
    letters=r"[A-H](?:, [A-H])+",
    rule=r"(?: if the row has to begin with [A-H]| if no two letters [A-H] may stand side by side)?",
)
Spec = tuple[str, str, str]  # letters, kind of the rule, its letter


def letter_arrangements(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: an integer. `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="letter_arrangements",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, letters: int, kinds: int, ruled: bool) -> tuple[str, Spec]:
    letters, names = rng.randint(letters - 2, letters), rng.sample("ABCDEFGH", rng.randint(kinds - 2, kinds))
    word = "".join(sorted([*names, *(rng.choice(names) for _ in range(letters - len(names)))]))
    rule = rng.choice(("begin", "apart")) if ruled else ""
    fits = [c for c in names if rule != "apart" or 2 <= word.count(c) <= (letters + 1) // 2]
    letter = rng.choice(fits) if fits and rule else ""
    return f"{word} {rule if letter else ''} {letter}", (word, rule if letter else "", letter)


def pose(spec: Spec) -> dict[str, Any]:
    word, rule, letter = spec
    left = Counter(word)
    places = 1
    if rule == "begin":
        left[letter] -= 1
    elif rule == "apart":
        n = left.pop(letter)
        places = comb(left.total() + 1, n)
    told = {
        "": "",
        "begin": f" if the row has to begin with {letter}",
        "apart": f" if no two letters {letter} may stand side by side",
    }[rule]
    return {
        "prompt": WORDINGS.write(letters=", ".join(word), rule=told),
        "answer": str(places * factorial(left.total()) // prod(map(factorial, left.values()))),
        "verifier": "number",
        "args": {"kind": "integer"},
    }


def solve(question: str) -> str:
    fields = WORDINGS.read(question)
    rule, letter = fields["rule"], fields["rule"][-1:] if "begin" in fields["rule"] else ""
    apart = rule.split(" letters ")[1][0] if "side by side" in rule else ""

    @cache
    def grown(left: str, last: str) -> int:
        total = 0 if left else 1
        for c in sorted(set(left)):
            if (last or not letter or c == letter) and not (c == last == apart):
                total += grown(left.replace(c, "", 1), c)
        return total

    return str(grown(fields["letters"].replace(", ", ""), ""))
