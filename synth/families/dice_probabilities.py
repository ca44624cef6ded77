"""The probability of a sum of several dice.

Certificate: the distribution by convolution against a count of all rolls that the text allows. Difficulty axes:
dice, faces.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import product
from random import Random
from typing import Any

from synth.families._sample import item
from synth.families._wordings import Wordings
from synth.types import Problem, Quarantined, Split

LADDER = ({"dice": 2, "faces": 6}, {"dice": 2, "faces": 12}, {"dice": 3, "faces": 8}, {"dice": 4, "faces": 6})
CERTIFICATE = ("convolution", "a count of all rolls")
WORDINGS = Wordings(
    "{n} fair dice, each with the faces 1 to {faces}, are rolled. What is the probability that the sum is {event}?",
    "You roll {n} fair dice whose faces are numbered from 1 to {faces}. Find the probability that the numbers add up to {event}.",
    "With {n} fair {faces}-sided dice (faces 1 to {faces}), how likely is a total of {event}?",
    "Each of {n} fair dice shows a number from 1 to {faces}. Compute the probability that their total is {event}.",
    "{n} players each roll one fair die with faces 1 to {faces} and add up what they see. What is the probability that the total is {event}?",
    answer="Answer with a fraction such as 5/36.",
    event=r"exactly \d+|at least \d+|at most \d+",
)
Spec = tuple[int, int, str, int]


def dice_probabilities(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: a fraction. `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="dice_probabilities",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, dice: int, faces: int) -> tuple[str, Spec]:
    kind, sides = rng.choice(("exactly", "at least", "at most")), rng.randint(max(4, faces - 4), faces)
    total = rng.randint(dice + 1, dice * sides - 1)
    return f"{dice} {sides} {kind} {total}", (dice, sides, kind, total)


def pose(spec: Spec) -> dict[str, Any]:
    n, faces, kind, total = spec
    shares = {0: 1}
    for _ in range(n):
        shares = _added(shares, faces)
    good = sum(
        c
        for s, c in shares.items()
        if s == total or (s > total and kind == "at least") or (s < total and kind == "at most")
    )
    return {
        "prompt": WORDINGS.write(n=n, faces=faces, event=f"{kind} {total}"),
        "answer": str(Fraction(good, faces**n)),
        "verifier": "number",
        "working": f"{good} of {faces**n} rolls.",
    }


def _added(shares: dict[int, int], faces: int) -> dict[int, int]:
    """How often each sum comes with one die more."""
    out: dict[int, int] = {}
    for s, c in shares.items():
        for face in range(1, faces + 1):
            out[s + face] = out.get(s + face, 0) + c
    return out


def solve(question: str) -> str:
    fields = WORDINGS.read(question)
    kind, _, wanted = fields["event"].rpartition(" ")
    good = every = 0
    for roll in product(range(1, int(fields["faces"]) + 1), repeat=int(fields["n"])):
        every += 1
        above = sum(roll) - int(wanted)
        good += above == 0 if kind == "exactly" else above >= 0 if kind == "at least" else above <= 0
    return str(Fraction(good, every))
