"""Which first move wins at Nim? Heaps, two players, each takes any number from one heap, who takes the last wins; one
move wins.

Bouton 1901, "Nim, a game with a complete mathematical theory". Certificate: the exclusive or of the heaps against a
search of the whole game over the text. Difficulty axes: heaps, their size."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from random import Random
from typing import Any

from synth.families._sample import Refused, item
from synth.families._wordings import Wordings, integers
from synth.types import Problem, Quarantined, Split

LADDER = ({"heaps": 2, "size": 12}, {"heaps": 3, "size": 7}, {"heaps": 3, "size": 11}, {"heaps": 4, "size": 7})
CERTIFICATE = ("the exclusive or of the heaps", "a search of the whole game over the text")
WORDINGS = Wordings(
    "Heaps of {heaps}. Two take turns, any number from one heap, who takes the last wins. Which first move wins?",
    "Which first move wins with heaps of {heaps}? Two take turns, any number from one heap, who takes the last wins.",
    "Two players have heaps of {heaps} before them. In turn each takes any number from one heap; who takes the last wins. How does the first player win?",
    "You begin a game with heaps of {heaps}. Each turn takes any number from one heap, and who takes the last wins. What must you take?",
    "Nim with heaps of {heaps}: two take any number from one heap in turn, who takes the last wins. Find the first move that wins.",
    answer="Answer as N from heap M, with heaps counted from 1.",
    heaps="[0-9]+(?:, [0-9]+)+",
)


def nim_heaps(
    seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,), env: str = "single"
) -> Problem | Quarantined:
    """Problem `index` of a split: a move. `levels` are the levels to draw from; env "game" has it played
    in turns (training/env/game.py)."""
    return item(
        seed,
        split,
        index,
        levels,
        family="nim_heaps",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
        env=env,
    )


def draw(rng: Random, *, heaps: int, size: int) -> tuple[str, list[int]]:
    while True:
        drawn = [rng.randint(1, size) for _ in range(heaps)]
        if len(_winning(drawn)) == 1:
            return " ".join(map(str, drawn)), drawn


def _winning(heaps: Sequence[int]) -> list[tuple[int, int]]:
    """(number of the heap, how many) of the moves after which the exclusive or is 0."""
    total = 0
    for h in heaps:
        total ^= h
    return [(i + 1, h - (h ^ total)) for i, h in enumerate(heaps) if h ^ total < h]


def pose(spec: list[int]) -> dict[str, Any]:
    ((heap, n),) = _winning(spec)
    return {
        "prompt": WORDINGS.write(heaps=", ".join(map(str, spec))),
        "answer": f"{n} from heap {heap}",
        "verifier": "exact",
    }


@lru_cache(maxsize=1 << 16)
def _wins(heaps: tuple[int, ...]) -> bool:
    """Whether who moves wins; heaps in order."""
    rest = [tuple(sorted(heaps[:i] + (k,) * (k > 0) + heaps[i + 1 :])) for i, h in enumerate(heaps) for k in range(h)]
    return any(not _wins(r) for r in rest)


def solve(question: str) -> str:
    heaps = tuple(integers(WORDINGS.read(question)["heaps"]))
    moves = [
        (i, h - k)
        for i, h in enumerate(heaps)
        for k in range(h)
        if not _wins(tuple(sorted(heaps[:i] + (k,) * (k > 0) + heaps[i + 1 :])))
    ]
    if len(moves) != 1:
        raise Refused(f"{'not_unique' if moves else 'impossible'}: {len(moves)} moves win")
    return f"{moves[0][1]} from heap {moves[0][0] + 1}"
