"""Linear equations with one integer solution: a x + b = c, then square systems.

Certificate: Gaussian elimination and Cramer's rule (determinants by Leibniz' sum over permutations), both over exact
fractions, must give one and the same solution, and substitution must satisfy every equation. Difficulty axes: unknowns,
size of coefficients, size and sign of the roots.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from itertools import permutations
from math import gcd, prod
from random import Random
from typing import Any

from synth.families._sample import Refused, finish, parsed, rung, sample
from synth.types import Problem, Quarantined, Split

LADDER = (
    {"unknowns": 1, "coefficient": 9, "root": 20, "signed": False},
    {"unknowns": 1, "coefficient": 12, "root": 30, "signed": True},
    {"unknowns": 1, "coefficient": 99, "root": 99, "signed": True},
    {"unknowns": 2, "coefficient": 5, "root": 9, "signed": True},
    {"unknowns": 2, "coefficient": 12, "root": 20, "signed": True},
    {"unknowns": 3, "coefficient": 9, "root": 12, "signed": True},
)
CERTIFICATE = ("elimination", "cramer", "substitution")
_TEXT = re.compile(r"Solve(?: for x:)? ([^.]+)\.")
_TERM = re.compile(r"([-+]?) ?(\d*)([xyz]?)")
Row = tuple[tuple[int, ...], int, int]  # (coefficients a, constant b, right side c): a . x + b = c


def linear_equations(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: solve for x. `levels` are the levels to draw from, 1 the easiest."""

    def draw(rng: Random) -> tuple[str, tuple[int, list[Row]]]:
        level, knobs = rung(LADDER, levels, rng, "linear_equations")
        rows = _draw(rng, **knobs)
        return f"linear_equations:{sorted(map(_normal_form, rows))}", (level, rows)

    root, (level, rows) = sample(seed, "linear_equations", split, index, draw)
    roots, reason = certify(rows)
    x = str(roots[0]) if roots else ""
    return finish(
        reason,
        seed=seed,
        index=index,
        root=root,
        split=split,
        family="linear_equations",
        prompt=f"Solve {'; '.join(map(write, rows))}."
        if len(rows) == 1
        else f"Solve for x: {'; '.join(map(write, rows))}.",
        answer=x,
        verifier="number",
        difficulty={"level": level, "unknowns": len(rows), "coefficient": max(abs(a) for row in rows for a in row[0])},
        solution=f"{_working(rows, x)} <answer>{x}</answer>" if roots else "",
        lineage={"certificate": list(CERTIFICATE)},
    )


def certify(rows: Sequence[Row]) -> tuple[tuple[Fraction, ...], str | None]:
    """(roots, None), or the roots as far as known and "code: evidence" of what is wrong with the system."""
    a, c = [list(map(Fraction, row[0])) for row in rows], [Fraction(row[2] - row[1]) for row in rows]
    eliminated, cramer = _eliminate(a, c), _cramer(a, c)
    if eliminated is None and cramer is None:
        return (), "not_unique: the coefficients are linearly dependent"
    if eliminated is None or eliminated != cramer:
        return (), f"routes_disagree: elimination gives {eliminated}, Cramer's rule {cramer}"
    if any(sum(k * x for k, x in zip(row, eliminated, strict=True)) != right for row, right in zip(a, c, strict=True)):
        return eliminated, f"routes_disagree: {eliminated} does not satisfy every equation"
    return eliminated, None


def _draw(rng: Random, *, unknowns: int, coefficient: int, root: int, signed: bool) -> list[Row]:
    def integer(limit: int) -> int:
        return rng.randint(1, limit) * (rng.choice((1, -1)) if signed else 1)

    roots = [integer(root) for _ in range(unknowns)]
    rows = []
    for _ in range(unknowns):
        a = tuple(integer(coefficient) for _ in roots) if unknowns > 1 else (rng.randint(2, coefficient),)
        b = integer(root) if unknowns == 1 else 0
        rows.append((a, b, sum(k * x for k, x in zip(a, roots, strict=True)) + b))
    return rows


def _normal_form(row: Row) -> tuple[int, ...]:
    """The equation divided by the greatest common divisor of all its numbers, with a positive leading coefficient."""
    flat = (*row[0], row[1], row[2])
    scale = gcd(*flat) * (1 if flat[0] > 0 else -1)
    return tuple(n // scale for n in flat)


def write(row: Row) -> str:
    """`3x - y + 4 = 19`."""
    terms = [(a, name) for a, name in zip(row[0], "xyz", strict=False)] + ([(row[1], "")] if row[1] else [])
    text = ""
    for number, name in terms:
        size = "" if abs(number) == 1 and name else str(abs(number))
        sign = ("-" if number < 0 else "") if not text else (" - " if number < 0 else " + ")
        text += f"{sign}{size}{name}"
    return f"{text} = {row[2]}"


def _working(rows: Sequence[Row], x: str) -> str:
    if len(rows) == 1:
        (a,), b, c = rows[0]
        return f"{a}x = {c - b}, x = {x}"
    a, c = [list(row[0]) for row in rows], [row[2] for row in rows]
    return f"D = {determinant(a)}, Dx = {determinant(_replaced(a, c, 0))}, x = {x}"


def determinant(a: Sequence[Sequence[Fraction | int]]) -> Fraction | int:
    """Leibniz: the sum over permutations of the signed products. n! terms, meant for n <= 4."""
    total: Fraction | int = 0
    for order in permutations(range(len(a))):
        inversions = sum(order[i] > order[j] for i in range(len(a)) for j in range(i + 1, len(a)))
        total += (-1) ** inversions * prod(a[i][j] for i, j in enumerate(order))
    return total


def _replaced(a: Sequence[Sequence], c: Sequence, column: int) -> list[list]:
    return [[right if j == column else k for j, k in enumerate(row)] for row, right in zip(a, c, strict=True)]


def _cramer(a: list[list[Fraction]], c: list[Fraction]) -> tuple[Fraction, ...] | None:
    whole = determinant(a)
    return tuple(Fraction(determinant(_replaced(a, c, j))) / whole for j in range(len(a))) if whole else None


def _eliminate(a: list[list[Fraction]], c: list[Fraction]) -> tuple[Fraction, ...] | None:
    """Gauss-Jordan with the first non-zero pivot; None where the rank is short."""
    m = [[*row, right] for row, right in zip(a, c, strict=True)]
    for i in range(len(m)):
        pivot = next((r for r in range(i, len(m)) if m[r][i]), None)
        if pivot is None:
            return None
        m[i], m[pivot] = m[pivot], m[i]
        m[i] = [k / m[i][i] for k in m[i]]
        for r in range(len(m)):
            if r != i:
                m[r] = [k - m[r][i] * p for k, p in zip(m[r], m[i], strict=True)]
    return tuple(row[-1] for row in m)


def solve(question: str) -> str:
    """x from the text alone, by Cramer's rule. Raises Refused where the system has no single solution."""
    rows = [_read(text) for text in parsed(_TEXT, question)[1].split("; ")]
    names = sorted({name for row in rows for name in row if name not in ("", "=")})
    a = [[Fraction(row.get(name, 0)) for name in names] for row in rows]
    roots = _cramer(a, [Fraction(row["="] - row.get("", 0)) for row in rows]) if len(rows) == len(names) else None
    if roots is None:
        raise Refused("not_unique: the coefficients are linearly dependent")
    return str(roots[0])


def _read(text: str) -> dict[str, int]:
    """name -> coefficient, "" -> constant, "=" -> right side of an equation such as `3x - y + 4 = 19`."""
    left, right = text.split(" = ")
    row = {"=": int(right)}
    for sign, size, name in _TERM.findall(left):
        if size or name:
            row[name] = row.get(name, 0) + int(f"{sign}{size or 1}")
    return row


def posed(question: str) -> dict[str, Any]:
    """Equations that were proposed: normal form, text, and x by elimination and Cramer's rule. Raises Refused for
    another text, for more than three equations or a number above 9999, and where the solution is not unique."""
    text = parsed(_TEXT, question)[1]
    read = [_read(one) for one in text.split("; ") if re.fullmatch(r"[-+ \dxyz]+ = -?\d+", one)]
    names = sorted({name for row in read for name in row if name not in ("", "=")})
    if (
        len(read) != text.count(";") + 1
        or len(read) > 3
        or names != list("xyz"[: len(names)])
        or re.search(r"\d{5}", text)
    ):
        raise Refused("roundtrip: up to three equations in x, y, z with numbers up to 9999")
    rows = [(tuple(row.get(name, 0) for name in names), row.get("", 0), row["="]) for row in read]
    if len(rows) != len(names):
        raise Refused(f"not_unique: {len(rows)} equations in {len(names)} unknowns")
    roots, reason = certify(rows)
    if reason is not None:
        raise Refused(reason)
    return {
        "form": str(sorted(map(_normal_form, rows))),
        "prompt": f"Solve {'; '.join(map(write, rows))}."
        if len(rows) == 1
        else f"Solve for x: {'; '.join(map(write, rows))}.",
        "answer": str(roots[0]),
        "verifier": "number",
    }
