"""Two players, a table of payoffs: what is best against this choice of the other, or which cell does nobody want to leave?

Economic reasoning whose answers are exact (Recon: "Reasoning Like an Economist", Zhou et al. 2025, arXiv 2506.00577). Certificate: best
responses read off the drawn table, and cells that are best responses to each other, against every cell of the text compared with
every deviation. There is exactly one equilibrium in pure choices, and no best response is a tie. Difficulty axes: choices, size of the
payoffs."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from synth.families._sample import Refused, item
from synth.families._wordings import Wordings, read_kind
from synth.types import Problem, Quarantined, Split

LADDER = ({"choices": 2, "size": 9}, {"choices": 3, "size": 20}, {"choices": 4, "size": 50}, {"choices": 5, "size": 99})
CERTIFICATE = ("best responses of the table", "every deviation from every cell of the text")
KINDS = ("response", "equilibrium")
CHOICES = "buy sell wait cut raise hold build lease trade save share quit".split()
_TABLE = {"rows": "[a-z]+(?: or [a-z]+)+", "columns": "[a-z]+(?: or [a-z]+)+", "cells": "[a-z0-9 ;]+"}
WORDINGS = {
    "response": Wordings(
        "Row chooses {rows}, Column {columns}. Payoffs of Row and Column: {cells}. {who} chooses {choice}. What is best for the other?",
        "What is best for the other if {who} chooses {choice}? Row chooses {rows}, Column {columns}. Payoffs of Row and Column: {cells}.",
        "In a game for two Row chooses {rows}, Column {columns}, and the payoffs of Row and Column are {cells}. {who} chooses {choice}: what should the other do?",
        "Payoffs of Row and Column: {cells}. Row chooses {rows}, Column {columns}. If {who} chooses {choice}, which choice pays the other most?",
        "{who} chooses {choice}, and the other knows it. Row chooses {rows}, Column {columns}, with payoffs of Row and Column: {cells}. Which answer is best?",
        answer="Answer with one choice.",
        who="Row|Column",
        choice="[a-z]+",
        **_TABLE,
    ),
    "equilibrium": Wordings(
        "Row chooses {rows}, Column {columns}. Payoffs of Row and Column: {cells}. Which pair does neither want to leave alone?",
        "Which pair of choices does neither want to leave alone? Row chooses {rows}, Column {columns}. Payoffs of Row and Column: {cells}.",
        "In a game for two Row chooses {rows}, Column {columns}, and the payoffs of Row and Column are {cells}. In which pair is each choice the best against the other?",
        "Payoffs of Row and Column: {cells}. Row chooses {rows}, Column {columns}. Which pair of choices is an equilibrium?",
        "Row chooses {rows}, Column {columns}, with payoffs of Row and Column: {cells}. From which pair does nobody gain by changing his own choice?",
        answer="Answer with both choices, Row's first, and a space between them.",
        **_TABLE,
    ),
}
Spec = tuple[str, tuple[str, ...], tuple[str, ...], tuple[tuple[int, ...], ...], tuple[tuple[int, ...], ...], int, int]


def matrix_games(
    seed: int,
    split: Split,
    index: int,
    *,
    levels: Sequence[int] = (1,),
    kinds: Sequence[str] = ("response", "equilibrium"),
) -> Problem | Quarantined:
    """Problem `index` of a split: a choice, or a pair of them, Row's first. `levels` are the rungs of the ladder to draw from, `kinds`
    what is asked: response, equilibrium."""
    if not kinds or not set(kinds) <= set(KINDS):
        raise ValueError(f"matrix_games: kinds {list(kinds)}: name some of {', '.join(KINDS)}")

    def drawn(rng: Random, *, choices: int, size: int) -> tuple[str, Spec]:
        return draw(rng, choices=choices, size=size, kind=rng.choice(list(kinds)))

    return item(
        seed,
        split,
        index,
        levels,
        family="matrix_games",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=drawn,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, choices: int, size: int, kind: str = "response") -> tuple[str, Spec]:
    while True:
        names = rng.sample(CHOICES, 2 * choices)
        rows, columns = tuple(names[:choices]), tuple(names[choices:])
        a, b = (tuple(tuple(rng.randint(1, size) for _ in columns) for _ in rows) for _ in range(2))
        ties = any(len({a[i][j] for i in range(choices)}) < choices for j in range(choices)) or any(
            len(set(b[i])) < choices for i in range(choices)
        )
        if not ties and len(equilibria(a, b)) == 1:
            side, given = rng.randrange(2), rng.randrange(choices)
            # Both questions about a table lie in one split, whatever is asked.
            return f"{a} {b} {rows} {columns}", (kind, rows, columns, a, b, side, given)


def equilibria(a: Sequence[Sequence[int]], b: Sequence[Sequence[int]]) -> list[tuple[int, int]]:
    """Cells that are best responses to each other."""
    n = len(a)
    best_row = [max(range(n), key=lambda i: a[i][j]) for j in range(n)]
    best_column = [max(range(n), key=lambda j: b[i][j]) for i in range(n)]
    return [(i, best_column[i]) for i in range(n) if best_row[best_column[i]] == i]


def table(spec: Spec) -> dict[str, str]:
    """The choices of both and the payoffs, as a question tells them."""
    _, rows, columns, a, b, *_ = spec
    n = range(len(rows))
    cells = "; ".join(f"{rows[i]} {columns[j]} {a[i][j]} {b[i][j]}" for i in n for j in n)
    return {"rows": " or ".join(rows), "columns": " or ".join(columns), "cells": cells}


def pose(spec: Spec) -> dict[str, Any]:
    kind, rows, columns, a, b, side, given = spec
    n, told = range(len(rows)), table(spec)
    to_column = [f"{columns[j]}: {rows[max(n, key=lambda i: a[i][j])]}" for j in n]
    to_row = [f"{rows[i]}: {columns[max(n, key=lambda j: b[i][j])]}" for i in n]
    if kind == "response":
        working = (to_row if side == 0 else to_column)[given]
        who, choice = ("Row", rows[given]) if side == 0 else ("Column", columns[given])
        return {
            "prompt": WORDINGS[kind].write(who=who, choice=choice, **told),
            "answer": working.split(": ")[1],
            "verifier": "exact",
            "working": f"{working}.",
        }
    ((i, j),) = equilibria(a, b)
    return {
        "prompt": WORDINGS[kind].write(**told),
        "answer": f"{rows[i]} {columns[j]}",
        "verifier": "exact",
        "working": f"{'; '.join([*to_column, *to_row])}.",
    }


def solve(question: str) -> str:
    kind, told = read_kind(WORDINGS, question)
    r, c = told["rows"].split(" or "), told["columns"].split(" or ")
    words = [x.split(" ") for x in told["cells"].split("; ")]
    pays = {(w[0], w[1]): (int(w[2]), int(w[3])) for w in words if len(w) == 4}
    if set(pays) != {(x, y) for x in r for y in c}:
        raise Refused("roundtrip: the payoffs are not those of every pair")
    if kind == "response" and told["choice"] not in (r if told["who"] == "Row" else c):
        raise Refused(f"roundtrip: {told['choice']!r} is no choice of {told['who']}")
    if kind == "response" and told["who"] == "Row":
        fits = [y for y in c if all(pays[told["choice"], y][1] >= pays[told["choice"], z][1] for z in c)]
    elif kind == "response":
        fits = [x for x in r if all(pays[x, told["choice"]][0] >= pays[z, told["choice"]][0] for z in r)]
    else:
        fits = [
            f"{x} {y}"
            for x, y in pays
            if all(pays[x, y][0] >= pays[z, y][0] for z in r) and all(pays[x, y][1] >= pays[x, z][1] for z in c)
        ]
    if len(fits) != 1:
        raise Refused(f"{'not_unique' if fits else 'impossible'}: {', '.join(fits) or 'nothing'} answers the question")
    return fits[0]
