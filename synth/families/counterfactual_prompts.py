"""Rewrite a prompt so that a painter with a habit draws the smaller of two things larger: any rewrite whose picture shows it is
right.

"Automated Prompt Generation for Creative and Counterfactual Text-to-image Synthesis" 2025 (arXiv 2509.21375; read from the abstract).
Certificate: a phrasing that the painter's rule honours, against one that a search over pictures finds from the text. Difficulty axis:
things."""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import Random
from typing import Any

from synth.families._sample import Refused, item, parsed
from synth.scenes.painter import NAMES, PHRASINGS, honoured, larger, paint, phrased
from synth.types import Problem, Quarantined, Split

LADDER = (
    {"things": 10},
    {"things": 13},
    {"things": 16},
)
CERTIFICATE = ("a phrasing that the rule honours", "search over pictures from the text")
RATIO = 1.5
_TEXT = re.compile(r"Phrase this so that the painter draws it: the (\w+) is larger than the (\w+)\.")


def counterfactual_prompts(
    seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)
) -> Problem | Quarantined:
    """Problem `index` of a split: the rewritten prompt. `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="counterfactual_prompts",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, things: int) -> tuple[str, tuple[str, str, int]]:
    a, b = sorted(rng.sample(range(things), 2))
    return f"{NAMES[a]} {NAMES[b]}", (NAMES[a], NAMES[b], rng.choice(honoured(NAMES[a])))


def pose(spec: tuple[str, str, int]) -> dict[str, Any]:
    a, b, k = spec
    return {
        "prompt": f"Phrase this so that the painter draws it: the {a} is larger than the {b}.",
        "answer": phrased(k, a, b),
        "verifier": "painted",
        "args": {"a": a, "b": b, "ratio": RATIO},
    }


def solve(question: str) -> str:
    a, b = parsed(_TEXT, question).groups()
    for k in range(len(PHRASINGS)):
        if (larger(paint(phrased(k, a, b)), a, b) or 0.0) >= RATIO:
            return phrased(k, a, b)
    raise Refused(f"impossible: no phrasing makes the {a} larger than the {b}")
