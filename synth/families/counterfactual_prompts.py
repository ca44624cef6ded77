"""Rewrite a prompt so that a painter with a habit draws the smaller of two things larger: any rewrite whose picture shows it is
right.

"Automated Prompt Generation for Creative and Counterfactual Text-to-image Synthesis" 2025 (arXiv 2509.21375; read from the abstract).
Certificate: a phrasing that the painter's rule honours, against one that a search over pictures finds from the text, every relation in
all frames. Difficulty axis: things; those of the higher levels obey other relations than the first ones."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from synth.families._sample import Refused, item
from synth.families._wordings import Wordings
from synth.scenes.painter import FRAMES, NAMES, RELATIONS, honoured, larger, paint, phrased
from synth.types import Problem, Quarantined, Split

LADDER = (
    {"things": 10},
    {"things": 13},
    {"things": 16},
)
CERTIFICATE = ("a phrasing that the rule honours", "search over pictures from the text")
RATIO = 1.5
WORDINGS = Wordings(
    "Phrase this so that the painter draws it: the {a} is larger than the {b}.",
    "Write a prompt for the painter, in whose picture the {a} is larger than the {b}.",
    "How must the painter be asked, so that the {a} comes out larger than the {b}?",
    "A picture is wanted with the {a} larger than the {b}. What do you tell the painter?",
    "The {a} should be larger than the {b}. Put that into words that the painter obeys.",
    answer="Answer with the prompt alone.",
    a="[a-z]+",
    b="[a-z]+",
)


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
        "prompt": WORDINGS.write(a=a, b=b),
        "answer": phrased(k, a, b),
        "verifier": "painted",
        "args": {"a": a, "b": b, "ratio": RATIO},
    }


def solve(question: str) -> str:
    fields = WORDINGS.read(question)
    a, b = fields["a"], fields["b"]
    for relation in RELATIONS:
        for frame in FRAMES:
            prompt = frame.format(relation.format(a=a, b=b))
            if (larger(paint(prompt), a, b) or 0.0) >= RATIO:
                return prompt
    raise Refused(f"impossible: no phrasing makes the {a} larger than the {b}")
