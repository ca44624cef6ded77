"""The one assignment of truth values that satisfies every clause.

Certificate: the whole truth table over the drawn clauses has one model; from the text, unit propagation and splitting
(Davis, Putnam, Logemann and Loveland 1962) enumerate all models, and there must be one. Difficulty axes: variables,
longest clause.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from random import Random
from typing import Any

from synth.families._sample import Refused, item
from synth.families._wordings import Wordings
from synth.types import Problem, Quarantined, Split

LADDER = (
    {"variables": 3, "longest": 2},
    {"variables": 4, "longest": 3},
    {"variables": 5, "longest": 3},
    {"variables": 7, "longest": 3},
)
CERTIFICATE = ("whole truth table on the values", "Davis-Putnam-Logemann-Loveland over the text, all models counted")
_CLAUSE = "(?:not )?[a-z](?: or (?:not )?[a-z])*"
WORDINGS = Wordings(
    "Which truth values make all of these true? {clauses}.",
    "Give each letter a truth value so that all of these hold: {clauses}.",
    "These statements are all true: {clauses}. Which letters are true and which are false?",
    "Find the only assignment that satisfies {clauses}.",
    "Each letter is a switch, true if it is on and false if it is off. All of this holds: {clauses}. How are the switches set?",
    answer="Answer with all letters, such as p = true, q = false.",
    clauses=f"{_CLAUSE}(?:; {_CLAUSE})*",
)
Clause = tuple[int, ...]  # signed numbers of variables, from 1
Spec = tuple[list[str], list[Clause], tuple[bool, ...]]


def propositional_models(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: a value for every variable. `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="propositional_models",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, variables: int, longest: int) -> tuple[str, Spec]:
    names = sorted(rng.sample("abcdefghjkmnpqrstuvwxyz", variables))
    hidden = tuple(rng.random() < 0.5 for _ in names)
    models = list(product((True, False), repeat=variables))
    clauses: list[Clause] = []
    while len(models) > 1:  # a clause that the hidden model satisfies and that some other model does not
        chosen = rng.sample(range(variables), rng.randint(1 if rng.random() < 0.1 else 2, longest))
        clause = tuple((v + 1) * rng.choice((1, -1)) for v in sorted(chosen))
        if not _holds(clause, hidden):
            continue
        left = [m for m in models if _holds(clause, m)]
        if len(left) < len(models):
            models, clauses = left, [*clauses, clause]
    return f"{names} {sorted(clauses)}", (names, clauses, hidden)


def _holds(clause: Clause, model: Sequence[bool]) -> bool:
    return any(model[abs(v) - 1] == (v > 0) for v in clause)


def pose(spec: Spec) -> dict[str, Any]:
    names, clauses, model = spec
    text = "; ".join(" or ".join(("" if v > 0 else "not ") + names[abs(v) - 1] for v in clause) for clause in clauses)
    return {
        "prompt": WORDINGS.write(clauses=text),
        "answer": ", ".join(f"{n} = {'true' if x else 'false'}" for n, x in zip(names, model, strict=True)),
        "verifier": "assignment",
    }


def solve(question: str) -> str:
    clauses = []
    for text in WORDINGS.read(question)["clauses"].split("; "):
        clauses.append(
            frozenset((part.removeprefix("not "), not part.startswith("not ")) for part in text.split(" or "))
        )
    names = sorted({name for clause in clauses for name, _ in clause})
    models = list(_models(clauses, {}, names))
    if len(models) != 1:
        raise Refused(f"{'not_unique' if models else 'impossible'}: {len(models)} models")
    return ", ".join(f"{n} = {'true' if models[0][n] else 'false'}" for n in names)


def _models(clauses: list[frozenset], known: dict[str, bool], names: list[str]):
    """Every total assignment that extends `known`."""
    known = dict(known)
    while True:
        left = []
        for clause in clauses:
            if any(known.get(name) == value for name, value in clause):
                continue
            open_ = [(name, value) for name, value in clause if name not in known]
            if not open_:
                return
            left.append(open_)
        unit = next((c[0] for c in left if len(c) == 1), None)
        if unit is None:
            break
        known[unit[0]] = unit[1]
    free = next((n for n in names if n not in known), None)
    if free is None:
        yield known
        return
    for value in (True, False):
        yield from _models(clauses, {**known, free: value}, names)
