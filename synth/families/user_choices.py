"""Which of two things does a user take, as the user's earlier choices say?

Twelve users with an order of eight things each, no two alike; the text tells some of a user's choices, from which the asked one follows
by a chain. `lineage` holds `user` and `chose`, the choices as [taken, left]; the demonstration thinks under tags (examine, infer, compare,
decide), as TagPR (2025, arXiv 2509.23140) has it. Certificate: the user's order; reachability over the choices of the text. Difficulty
axis: links of the chain."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

from synth.families._sample import Refused, item
from synth.families._wordings import Wordings
from synth.types import Problem, Quarantined, Split, seed_for

LADDER = ({"links": 2}, {"links": 3}, {"links": 5})
CERTIFICATE = ("the user's order", "reachability over the choices that the text tells")
USERS = ("Ana", "Bo", "Cleo", "Dag", "Eva", "Finn", "Gro", "Hal", "Ida", "Jon", "Kim", "Liv")
THINGS = ("mint", "plum", "rice", "salt", "tea", "corn", "fig", "milk")
WORDINGS = Wordings(
    "{user} {told}. Which does {user} take, {a} or {b}?",
    "So far {user} {told}. Offered {a} and {b}, what does {user} take?",
    "Will {user} take {a} or {b}? Before, {user} {told}.",
    "{user} takes what {user} likes more. Once {user} {told}. Which does {user} like more, {a} or {b}?",
    "Of {a} and {b}, which would {user} take, who {told}?",
    answer="Answer with its name alone.",
    user="[A-Z][a-z]+",
    told="took [a-z]+ and left [a-z]+(?:, took [a-z]+ and left [a-z]+)*",
    a="[a-z]+",
    b="[a-z]+",
)
_CHOICE = re.compile(r"took (\w+) and left (\w+)")
Spec = tuple[str, list[tuple[str, str]], tuple[str, str]]


def order(user: str) -> list[str]:
    """The things, best liked first: of the k-th pair of users the second has the first one's order turned round, so that over all
    users no thing is liked more."""
    k = USERS.index(user)
    things: list[str] = list(THINGS)
    Random(seed_for("user_choices", k // 2)).shuffle(things)
    return things[::-1] if k % 2 else things


def user_choices(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: the thing that is taken. `levels` are the rungs of the ladder to draw from."""
    problem = item(
        seed,
        split,
        index,
        levels,
        family="user_choices",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )
    if not isinstance(problem, Problem):
        return problem
    fields = WORDINGS.read(problem.question)
    chose = [list(x) for x in _CHOICE.findall(fields["told"])]
    return replace(problem, lineage={**problem.lineage, "user": fields["user"], "chose": chose})


def draw(rng: Random, *, links: int) -> tuple[str, Spec]:
    user = rng.choice(USERS)
    liked = sorted(rng.sample(order(user), links + 1), key=order(user).index)
    chain = list(zip(liked, liked[1:], strict=False))
    rng.shuffle(chain)
    offered = rng.sample([liked[0], liked[-1]], 2)
    return f"{user} {sorted(chain)} {offered}", (user, chain, (offered[0], offered[1]))


def pose(spec: Spec) -> dict[str, Any]:
    user, chain, (a, b) = spec
    better, worse = sorted((a, b), key=order(user).index)
    ranked = sorted({x for pair in chain for x in pair}, key=order(user).index)
    told = ", ".join(f"took {x} and left {y}" for x, y in chain)
    return {
        "prompt": WORDINGS.write(user=user, told=told, a=a, b=b),
        "answer": better,
        "verifier": "exact",
        "working": f"<examine>{user}</examine><infer>{' over '.join(ranked)}</infer><compare>{better} before {worse}</compare><decide>{better}</decide>",
    }


def solve(question: str) -> str:
    fields = WORDINGS.read(question)
    told, a, b = fields["told"], fields["a"], fields["b"]
    below: dict[str, set[str]] = {}
    for x, y in _CHOICE.findall(told):
        below.setdefault(x, set()).add(y)
    reached = {}
    for start in (a, b):
        seen, todo = set(), [start]
        while todo:
            todo += [y for y in below.get(todo.pop(), ()) if y not in seen and not seen.add(y)]
        reached[start] = seen
    over = [x for x, y in ((a, b), (b, a)) if y in reached[x]]
    if len(over) != 1:
        raise Refused(f"not_unique: the choices do not say which of {a} and {b} is taken")
    return over[0]
