"""Who wins an election, by points, by run-off or in every duel.

Certificate: tallies of the drawn ballots against duels and ballots shortened over the text. Difficulty axes:
candidates, groups of voters.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import Random
from typing import Any

from synth.families._sample import Refused, item
from synth.families._wordings import NAMES, Wordings
from synth.types import Problem, Quarantined, Split

LADDER = (
    {"candidates": 3, "groups": 3},
    {"candidates": 3, "groups": 4},
    {"candidates": 4, "groups": 5},
    {"candidates": 5, "groups": 7},
)
CERTIFICATE = ("tallies of the ballots", "duels and shortened ballots of the text")
RULES = {
    "points": "A ballot gives each name one point for every name behind it, and most points win",
    "run-off": "Again and again the name that is first on the fewest ballots is struck from all, until one is left",
    "duels": "The winner is whoever is ahead of each other name on more than half of the ballots",
}
WORDINGS = Wordings(
    "Ballots: {ballots}. {rule}. Who wins?",
    "A club votes as follows: {ballots}. {rule}. Who is elected?",
    "The voters rank the names, best first: {ballots}. {rule}. Name the winner.",
    "{rule}. The ballots, best name first, are {ballots}. Who comes out on top?",
    "An election is decided in this way. {rule}. These are the votes: {ballots}. Whose election is it?",
    answer="Answer with one name.",
    ballots=r"\d+ [A-Za-z]+: [A-Z][a-z]+(?: > [A-Z][a-z]+)+(?:; \d+ [A-Za-z]+: [A-Z][a-z]+(?: > [A-Z][a-z]+)+)*",
    rule="|".join(RULES.values()),
)
Spec = tuple[str, Sequence[tuple[int, tuple[str, ...]]], str]


def elections(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: a name. `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="elections",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, candidates: int, groups: int) -> tuple[str, Spec]:
    while True:
        names, kind = sorted(rng.sample(NAMES, candidates)), rng.choice(tuple(RULES))
        ballots = [(rng.randint(1, 9), tuple(rng.sample(names, candidates))) for _ in range(groups)]
        if winner := elected(kind, names, ballots):
            return f"{kind} {sorted(ballots)}", (kind, ballots, winner)


def elected(kind: str, names: Sequence[str], ballots: Sequence[tuple[int, tuple[str, ...]]]) -> str:
    """The winner; "" where there is a tie on the way, or nobody wins."""
    if kind == "points":
        points = {a: sum(n * (len(names) - 1 - order.index(a)) for n, order in ballots) for a in names}
        best = [a for a in names if points[a] == max(points.values())]
        return best[0] if len(best) == 1 else ""
    if kind == "duels":
        voters = sum(n for n, _ in ballots)
        ahead = lambda a, b: sum(n for n, order in ballots if order.index(a) < order.index(b))  # noqa: E731
        return next((a for a in names if all(2 * ahead(a, b) > voters for b in names if b != a)), "")
    left = list(names)
    while len(left) > 1:
        firsts = dict.fromkeys(left, 0)
        for n, order in ballots:
            firsts[next(a for a in order if a in left)] += n
        fewest = [a for a in left if firsts[a] == min(firsts.values())]
        if len(fewest) > 1:
            return ""
        left.remove(fewest[0])
    return left[0]


def pose(spec: Spec) -> dict[str, Any]:
    kind, ballots, winner = spec
    told = "; ".join(f"{n} {'voter' if n == 1 else 'voters'}: {' > '.join(order)}" for n, order in ballots)
    return {"prompt": WORDINGS.write(ballots=told, rule=RULES[kind]), "answer": winner, "verifier": "exact"}


def solve(question: str) -> str:
    fields = WORDINGS.read(question)
    kind = next(k for k, text in RULES.items() if text == fields["rule"])
    votes = [(int(n), order.split(" > ")) for n, order in re.findall(r"(\d+) voters?: ([\w >]+)", fields["ballots"])]
    while kind == "run-off" and len(votes[0][1]) > 1:
        firsts = {a: sum(n for n, order in votes if order[0] == a) for a in votes[0][1]}
        last = sorted(firsts, key=lambda a: firsts[a])
        if firsts[last[0]] == firsts[last[1]]:
            raise Refused("not_unique: two names share the last place")
        votes = [(n, [a for a in order if a != last[0]]) for n, order in votes]
    won: dict[str, int] = dict.fromkeys(votes[0][1], 0)  # ballots won in duels, or duels won
    for a in won:
        for b in won:
            ahead = sum(n if order.index(a) < order.index(b) else -n for n, order in votes) if a != b else 0
            won[a] += ahead if kind == "points" else ahead > 0
    best = sorted(won, key=lambda a: won[a])[::-1]
    if len(best) > 1 and won[best[0]] == won[best[1]]:
        raise Refused("not_unique: two names share the first place")
    if kind == "duels" and won[best[0]] < len(best) - 1:
        raise Refused("impossible: nobody wins every duel")
    return best[0]
