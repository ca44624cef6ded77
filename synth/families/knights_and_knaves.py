"""Knights always tell the truth and knaves always lie: who is what?

Certificate: the whole truth table over the drawn statements has one model; from the text a search that assigns one
person after another and gives up a branch as soon as a known statement contradicts its speaker finds all models, and
there must be one. Difficulty axes: people, statements each.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import product
from random import Random
from typing import Any

from synth.families._sample import Refused, item
from synth.families._wordings import Wordings
from synth.types import Problem, Quarantined, Split

LADDER = (
    {"people": 2, "statements": 2},
    {"people": 3, "statements": 2},
    {"people": 4, "statements": 1},
    {"people": 6, "statements": 2},
)
CERTIFICATE = ("whole truth table on the values", "branch and contradict over the text, all models counted")
NAMES = ("Ann", "Bob", "Cid", "Dot", "Eli", "Fay", "Gus", "Hal", "Ida", "Jon", "Kim", "Leo", "May", "Ned", "Oda", "Pia")
WORDINGS = Wordings(
    "Knights tell the truth, knaves lie. {said} Who is what?",
    "On an island knights always tell the truth and knaves always lie. {said} Which of the two is each person?",
    "Each of these people is a knight, who never lies, or a knave, who always does. {said} Find out who is what.",
    "A traveller hears: {said} Knights say only what is true, knaves only what is false. Who is a knight and who a knave?",
    "Whatever a knight says is true, and whatever a knave says is false. {said} What is each person, knight or knave?",
    answer="Answer with all names, such as Max: knight, Eva: knave.",
    said=r'[A-Z][a-z]+: "[^"]+"(?: [A-Z][a-z]+: "[^"]+")*',
)
_SAYS = re.compile(r'([A-Z][a-z]+): "([^"]+)"')
KINDS: dict[str, tuple[str, Callable[[bool, bool], bool]]] = {
    "knight": ("{0} is a knight.", lambda a, b: a),
    "knave": ("{0} is a knave.", lambda a, b: not a),
    "same": ("{0} and {1} are the same.", lambda a, b: a == b),
    "differ": ("{0} and {1} differ.", lambda a, b: a != b),
    "both": ("{0} and {1} are both knights.", lambda a, b: a and b),
    "either": ("{0} or {1} is a knight.", lambda a, b: a or b),
    "neither": ("{0} and {1} are both knaves.", lambda a, b: not a and not b),
}
_PATTERNS = [
    (kind, re.compile(re.escape(text).replace(r"\{0\}", "([A-Z][a-z]+)").replace(r"\{1\}", "([A-Z][a-z]+)")))
    for kind, (text, _) in KINDS.items()
]
Statement = tuple[int, str, int, int]  # (speaker, kind, about, about)
Spec = tuple[list[str], list[Statement], tuple[bool, ...]]


def knights_and_knaves(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: the kind of every person. `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="knights_and_knaves",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, people: int, statements: int) -> tuple[str, Spec]:
    names: list[str] = rng.sample(NAMES, people)
    while True:
        claims: list[Statement] = []
        for speaker in range(people):
            for _ in range(rng.randint(1, statements)):
                a, b = rng.sample(range(people), 2)
                kind = rng.choice(tuple(KINDS))
                if kind not in ("knight", "knave") or a != speaker:
                    claims.append((speaker, kind, a, b))
        models = [
            m
            for m in product((True, False), repeat=people)
            if all(KINDS[k][1](m[a], m[b]) == m[s] for s, k, a, b in claims)
        ]
        if len(models) == 1:
            return f"{names} {claims}", (names, claims, models[0])


def pose(spec: Spec) -> dict[str, Any]:
    names, statements, model = spec
    lines = " ".join(f'{names[s]}: "{KINDS[k][0].format(names[a], names[b])}"' for s, k, a, b in statements)
    return {
        "prompt": WORDINGS.write(said=lines),
        "answer": ", ".join(f"{n}: {'knight' if kind else 'knave'}" for n, kind in zip(names, model, strict=True)),
        "verifier": "assignment",
    }


def solve(question: str) -> str:
    statements = []
    for speaker, text in _SAYS.findall(WORDINGS.read(question)["said"]):
        match = next(((kind, m.groups()) for kind, p in _PATTERNS if (m := p.fullmatch(text))), None)
        if match is None:
            raise Refused(f"roundtrip: {text!r} is no statement")
        statements.append((speaker, *match))
    names = sorted({n for speaker, _, about in statements for n in (speaker, *about)})
    models = _search(names, statements, {})
    if len(models) != 1:
        raise Refused(f"{'not_unique' if models else 'impossible'}: {len(models)} models")
    return ", ".join(f"{n}: {'knight' if kind else 'knave'}" for n, kind in models[0].items())


def _search(names: list[str], statements: list, known: dict[str, bool]) -> list[dict[str, bool]]:
    for speaker, kind, about in statements:
        if speaker in known and all(n in known for n in about):
            values = [known[n] for n in about]
            knights = sum(values)
            claim = {"knight": knights == 1, "knave": knights == 0, "same": knights != 1, "differ": knights == 1}.get(
                kind
            )
            if claim is None:
                claim = {"both": knights == 2, "either": knights >= 1, "neither": knights == 0}[kind]
            if claim != known[speaker]:
                return []
    if len(known) == len(names):
        return [known]
    name = names[len(known)]
    return _search(names, statements, {**known, name: True}) + _search(names, statements, {**known, name: False})
