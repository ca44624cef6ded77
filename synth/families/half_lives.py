"""How much of two substances is left after a time, by their half-lives.

Certificate: powers of a half on the values against halving step by step from the text. Difficulty axes: half-lives that pass.
"""

from __future__ import annotations

from fractions import Fraction
from collections.abc import Sequence
from random import Random
from typing import Any

from synth.families._sample import item
from synth.families._wordings import Wordings
from synth.types import Problem, Quarantined, Split

LADDER = ({"steps": 2}, {"steps": 4}, {"steps": 6}, {"steps": 9})
CERTIFICATE = ("powers of a half", "halving step by step from the text")
WORDINGS = Wordings(
    "A sample holds {a} mg of a substance with a half-life of {s} hours and {b} mg of one with a half-life of {t} hours. How many mg of the two are left together after {h} hours?",
    "{a} mg of one isotope (half-life {s} hours) and {b} mg of another (half-life {t} hours) are stored for {h} hours. What mass in mg of both remains?",
    "Two drugs are given at once: {a} mg of one, of which half is gone every {s} hours, and {b} mg of another, of which half is gone every {t} hours. How many mg are there in all after {h} hours?",
    "Every {s} hours {a} mg of a tracer lose half of what is left; every {t} hours so do {b} mg of a second one. Find the mass in mg that both have left after {h} hours.",
    "Substance one begins with {a} mg and halves every {s} hours, substance two begins with {b} mg and halves every {t} hours. What is their mass in mg together after {h} hours?",
    answer="Answer with a fraction such as 3/8, or an integer.",
)
Spec = tuple[int, int, int, int, int]


def half_lives(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: a fraction. `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="half_lives",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, steps: int) -> tuple[str, Spec]:
    while True:
        s, t = rng.sample(range(2, 13), 2)
        h = s * rng.randint(1, steps)
        if h % t == 0 and h // t <= steps:
            spec = rng.randint(3, 90), s, rng.randint(3, 90), t, h
            return " ".join(map(str, spec)), spec


def pose(spec: Spec) -> dict[str, Any]:
    a, s, b, t, h = spec
    return {
        "prompt": WORDINGS.write(a=a, s=s, b=b, t=t, h=h),
        "answer": str(Fraction(a, 2 ** (h // s)) + Fraction(b, 2 ** (h // t))),
        "verifier": "number",
    }


def solve(question: str) -> str:
    read = {k: int(v) for k, v in WORDINGS.read(question).items()}
    left = Fraction(0)
    for mass, every in (("a", "s"), ("b", "t")):
        rest, hours = Fraction(read[mass]), read["h"]
        while hours >= read[every]:
            rest, hours = rest / 2, hours - read[every]
        left += rest
    return str(left)
