"""Seeds dropped one by one around a ring of pits.

Certificate: whole rounds and rests by division on the values against seed after seed from the text. Difficulty axes:
pits, seeds, turns.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from synth.families._sample import item
from synth.families._wordings import Wordings, integers, listed
from synth.types import Problem, Quarantined, Split

LADDER = (
    {"pits": 4, "seeds": 6, "turns": 1},
    {"pits": 5, "seeds": 9, "turns": 2},
    {"pits": 6, "seeds": 14, "turns": 3},
    {"pits": 8, "seeds": 20, "turns": 5},
)
CERTIFICATE = ("division into rounds", "seed after seed from the text")
WORDINGS = Wordings(
    "Pits 1 to {n} in a ring hold {seeds} seeds. Empty pit {turns}, each time dropping its seeds one by one into the pits that follow. What do the pits hold at the end?",
    "A ring of {n} pits holds {seeds} seeds. Pit {turns} is emptied and its seeds are sown one by one into the next pits. Give the final contents.",
    "Sowing game: {n} pits in a circle with {seeds} seeds. Play pit {turns}: lift its seeds and drop one in each following pit until none is left. What do the pits hold then?",
    "There are {n} bowls in a circle with {seeds} beans. The beans of bowl {turns} are handed on one at a time to the bowls after it. How many does each bowl hold then?",
    "{n} cups in a ring contain {seeds} marbles. Cup {turns} is picked up and its marbles are dealt one by one to the following cups. List the contents of all cups then.",
    answer="After {n} comes 1; the emptied one is not skipped. Answer with the contents from 1 to {n}, parted by spaces.",
    seeds=r"\d+(?:, \d+)* and \d+",
    turns=r"\d+(?:, then \d+)*",
)
Spec = tuple[list[int], list[int]]


def seed_sowing(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: whole numbers. `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="seed_sowing",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, pits: int, seeds: int, turns: int) -> tuple[str, Spec]:
    held = [rng.randint(0, seeds) for _ in range(pits)]
    order = [rng.randrange(pits) for _ in range(turns)]
    held[order[0]] = held[order[0]] or seeds
    return f"{held} {order}", (held, order)


def pose(spec: Spec) -> dict[str, Any]:
    held, order = spec
    now = list(held)
    for pit in order:
        rounds, rest = divmod(now[pit], len(now))
        now[pit] = 0
        now = [n + rounds + ((i - pit - 1) % len(now) < rest) for i, n in enumerate(now)]
    return {
        "prompt": WORDINGS.write(
            n=len(held), seeds=listed([str(n) for n in held]), turns=", then ".join(str(p + 1) for p in order)
        ),
        "answer": " ".join(map(str, now)),
        "verifier": "ordered_list",
    }


def solve(question: str) -> str:
    fields = WORDINGS.read(question)
    held = integers(fields["seeds"])
    for pit in integers(fields["turns"]):
        hand, at = held[pit - 1], pit - 1
        held[pit - 1] = 0
        while hand:
            at = at + 1 if at + 1 < len(held) else 0
            held[at] += 1
            hand -= 1
    return " ".join(map(str, held))
