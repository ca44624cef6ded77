"""The least number of bits for a text of letters with known counts.

Certificate: the two smallest counts joined again and again on the values against the best tree over sorted counts of
the text. Difficulty axes: letters, size of the counts.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from random import Random
from typing import Any

from synth.families._sample import item
from synth.families._wordings import Wordings, integers
from synth.types import Problem, Quarantined, Split

LADDER = ({"letters": 3, "size": 9}, {"letters": 4, "size": 20}, {"letters": 6, "size": 40}, {"letters": 8, "size": 90})
CERTIFICATE = ("smallest counts joined", "the best tree over sorted counts of the text")
WORDINGS = Wordings(
    "A text has the letters {counts}. Each letter gets a code of bits, no code the beginning of another. How many bits does the whole text take at least?",
    "Letters and how often they occur: {counts}. What is the length in bits of the text under a Huffman code?",
    "Find the least total number of bits of a prefix-free binary code for a file in which the symbols occur this often: {counts}.",
    "A message consists of {counts}. It is written with an optimal binary prefix code. What is its length in bits?",
    "How long, in bits, is a text with these counts of letters after optimal prefix coding: {counts}?",
    answer="The code table is not counted. Answer with one integer.",
    counts=r"[a-z] \d+(?:, [a-z] \d+)+",
)
Spec = list[tuple[str, int]]


def huffman_codes(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: an integer. `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="huffman_codes",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, letters: int, size: int) -> tuple[str, Spec]:
    names = rng.sample("abcdefghijklmnopqrstuvwxyz", rng.randint(letters, letters + 1))
    spec = [(name, rng.randint(1, size)) for name in names]
    return f"{sorted(n for _, n in spec)}", spec


def pose(spec: Spec) -> dict[str, Any]:
    heap, total = [n for _, n in spec], 0
    heapq.heapify(heap)
    while len(heap) > 1:
        joined = heapq.heappop(heap) + heapq.heappop(heap)
        total += joined
        heapq.heappush(heap, joined)
    return {
        "prompt": WORDINGS.write(counts=", ".join(f"{c} {n}" for c, n in spec)),
        "answer": str(total),
        "verifier": "number",
        "args": {"kind": "integer"},
    }


def solve(question: str) -> str:
    counts = sorted(integers(WORDINGS.read(question)["counts"]))
    size = len(counts)
    best = [
        [0] * (size + 1) for _ in range(size + 1)
    ]  # of the counts i to j - 1; sorted, they lose nothing by their order
    for width in range(2, size + 1):
        for i in range(size - width + 1):
            j = i + width
            split = min(best[i][k] + best[k][j] for k in range(i + 1, j))
            best[i][j] = split + sum(counts[i:j])
    return str(best[0][size])
