"""The mass of a molecule from the masses of its atoms.

Certificate: masses added up on the drawn groups against a formula of the text written out atom by atom. Difficulty
axes: parts, groups in parentheses.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import Random
from typing import Any

from synth.families._sample import item
from synth.families._wordings import Wordings
from synth.types import Problem, Quarantined, Split

LADDER = ({"parts": 2, "groups": 0}, {"parts": 3, "groups": 1}, {"parts": 3, "groups": 2}, {"parts": 5, "groups": 3})
CERTIFICATE = ("masses of the groups", "a formula written out atom by atom")
MASSES = {
    "H": 1,
    "C": 12,
    "N": 14,
    "O": 16,
    "F": 19,
    "Na": 23,
    "Mg": 24,
    "Al": 27,
    "P": 31,
    "S": 32,
    "K": 39,
    "Ca": 40,
    "Fe": 56,
    "Cu": 64,
    "Zn": 65,
}
WORDINGS = Wordings(
    "Rounded masses of atoms: {masses}. What is the mass of {formula}?",
    "With the rounded atomic masses {masses}, find the mass of one formula unit of {formula}.",
    "Let the atoms have the masses {masses}. What does {formula} weigh, in the same unit?",
    "Compute the molar mass of {formula} in grams per mole from {masses}.",
    "A chemist uses {masses} (grams per mole) and weighs one mole of {formula}. What is its mass in grams?",
    answer="Answer with one integer.",
    masses=r"[A-Z][a-z]? \d+(?:, [A-Z][a-z]? \d+)*",
    formula=r"[A-Za-z\d()]+",
)
Group = tuple[tuple[tuple[str, int], ...], int]
Spec = list[Group]


def molar_masses(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: an integer. `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="molar_masses",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, parts: int, groups: int) -> tuple[str, Spec]:
    spec: list[Group] = [(((e, rng.randint(1, 6)),), 1) for e in rng.sample(sorted(MASSES), parts)]
    for _ in range(groups):
        spec.append(
            (tuple((e, rng.randint(1, 4)) for e in rng.sample(("H", "C", "N", "O", "P", "S"), 2)), rng.randint(2, 6))
        )
    return f"{spec}", spec


def pose(spec: Spec) -> dict[str, Any]:
    count = lambda k: str(k) if k > 1 else ""  # noqa: E731
    text = "".join(
        f"({''.join(e + count(k) for e, k in atoms)}){n}" if n > 1 else "".join(e + count(k) for e, k in atoms)
        for atoms, n in spec
    )
    used = sorted({e for atoms, _ in spec for e, _ in atoms})
    return {
        "prompt": WORDINGS.write(masses=", ".join(f"{e} {MASSES[e]}" for e in used), formula=text),
        "answer": str(sum(n * sum(MASSES[e] * k for e, k in atoms) for atoms, n in spec)),
        "verifier": "number",
        "args": {"kind": "integer"},
    }


def solve(question: str) -> str:
    fields = WORDINGS.read(question)
    mass = {e: int(m) for e, m in re.findall(r"([A-Z][a-z]?) (\d+)", fields["masses"])}
    text = fields["formula"]
    while "(" in text:
        text = re.sub(r"\(([A-Za-z\d]+)\)(\d+)", lambda m: m[1] * 1 if m[2] == "1" else _times(m[1], int(m[2])), text)
    total = 0
    for element, count in re.findall(r"([A-Z][a-z]?)(\d*)", text):
        for _ in range(int(count or 1)):
            total += mass[element]
    return str(total)


def _times(inside: str, n: int) -> str:
    """The atoms of a group, written n times one after the other."""
    return "".join(inside + ("" if inside[-1].isdigit() else "1") for _ in range(n))
