"""Which statements follow from what is said of all, some and no things of a kind.

Certificate: regions of a diagram that the premises empty or fill on the values against a search for counterexamples,
thing by thing, from the text. Difficulty axes: kinds, premises, statements.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import permutations, product
from random import Random
from typing import Any

from synth.families._sample import item
from synth.families._wordings import Wordings
from synth.types import Problem, Quarantined, Split

LADDER = (
    {"kinds": 3, "premises": 2, "statements": 4},
    {"kinds": 3, "premises": 3, "statements": 5},
    {"kinds": 4, "premises": 4, "statements": 6},
    {"kinds": 5, "premises": 6, "statements": 8},
)
CERTIFICATE = ("regions emptied or filled", "a search for counterexamples")
NAMES = ("zorks", "blims", "quods", "trems", "fips", "gorms", "jelks", "wugs", "mards", "plons", "skeds", "vints")
WORDINGS = Wordings(
    "Known: {premises}. Which of these follow? {statements}.",
    "Suppose: {premises}. What must be true? {statements}.",
    "Given that {premises}, which are certain? {statements}.",
    "Premises: {premises}. Conclusions: {statements}. Which hold for sure?",
    "If {premises}, which of these have to hold? {statements}.",
    answer="Kinds may be empty. Answer with the numbers of all that follow, parted by spaces.",
    premises=r"(?:all|some|no) [a-z ]+(?:; (?:all|some|no) [a-z ]+)*",
    statements=r"\(1\) [a-z ]+(?:, \(\d\) [a-z ]+)+",
)
Claim = tuple[str, int, int]
Spec = tuple[Sequence[str], list[Claim], list[Claim], list[int]]
FORMS = {"all": "all {} are {}", "no": "no {} are {}", "some": "some {} are {}", "some not": "some {} are not {}"}


def cells(claim: Claim, kinds: int) -> set[int]:
    """The regions, as sets of kinds, that a claim about all or none empties, or of which one about some fills one."""
    sort, a, b = claim
    inside = sort in ("no", "some")
    return {m for m in range(1, 1 << kinds) if m >> a & 1 and bool(m >> b & 1) == inside}


def follows(claim: Claim, premises: Sequence[Claim], kinds: int) -> bool:
    empty = set().union(*(cells(p, kinds) for p in premises if "some" not in p[0]))
    if "some" not in claim[0]:
        return cells(claim, kinds) <= empty
    return any(cells(p, kinds) - empty <= cells(claim, kinds) for p in premises if "some" in p[0])


def syllogisms(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: numbers of statements. `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="syllogisms",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, kinds: int, premises: int, statements: int) -> tuple[str, Spec]:
    pairs = list(permutations(range(kinds), 2))
    while True:
        names = rng.sample(NAMES, kinds)
        given: list[Claim] = []
        for a, b in rng.sample(pairs, premises):
            some = sum("some" in sort for sort, _, _ in given)
            given.append(
                (rng.choice(("all", "all", "no", "some", "some not") if some < 2 else ("all", "all", "no")), a, b)
            )
        empty = set().union(*(cells(p, kinds) for p in given if "some" not in p[0]))
        every = [(sort, a, b) for sort in FORMS for a, b in pairs if (sort, a, b) not in given]
        right = [c for c in every if follows(c, given, kinds)]
        wrong = [c for c in every if c not in right]
        if not right or any(cells(p, kinds) <= empty for p in given if "some" in p[0]):
            continue
        chosen = rng.sample(right, min(len(right), rng.randint(1, statements - 1)))
        chosen += rng.sample(wrong, statements - len(chosen))
        rng.shuffle(chosen)
        fits = [i for i, c in enumerate(chosen, 1) if c in right]
        return f"{sorted(given)} {sorted(chosen)} {names}", (names, given, chosen, fits)


def pose(spec: Spec) -> dict[str, Any]:
    names, given, chosen, fits = spec
    say = lambda claim: FORMS[claim[0]].format(names[claim[1]], names[claim[2]])  # noqa: E731
    return {
        "prompt": WORDINGS.write(
            premises="; ".join(map(say, given)),
            statements=", ".join(f"({i}) {say(c)}" for i, c in enumerate(chosen, 1)),
        ),
        "answer": " ".join(map(str, fits)),
        "verifier": "item_set",
    }


def solve(question: str) -> str:
    fields = WORDINGS.read(question)
    read = lambda text: re.findall(r"(all|no|some) ([a-z]+) are (not )?([a-z]+)", text)  # noqa: E731
    given, statements = read(fields["premises"]), read(fields["statements"])
    names = sorted({x for _, a, _, b in given + statements for x in (a, b)})
    things = [{x for x, has in zip(names, bits, strict=True) if has} for bits in product((0, 1), repeat=len(names))]

    def breaks(thing: set[str], claim: tuple[str, ...]) -> bool:
        sort, a, _, b = claim
        return sort != "some" and a in thing and (b in thing) == (sort == "no")

    def shows(thing: set[str], claim: tuple[str, ...]) -> bool:
        return claim[1] in thing and (claim[3] in thing) == (not claim[2])

    allowed = [t for t in things if not any(breaks(t, claim) for claim in given)]
    needed = [claim for claim in given if claim[0] == "some"]

    def certain(claim: tuple[str, ...]) -> bool:
        """Whether no world with one thing for each "some" (and one against "all" or "no") denies the claim."""
        if claim[0] != "some":
            return not any(breaks(t, claim) for t in allowed)
        worlds = product(*([t for t in allowed if shows(t, need)] for need in needed))
        return all(any(shows(t, claim) for t in world) for world in worlds)

    return " ".join(str(i) for i, claim in enumerate(statements, 1) if certain(claim))
