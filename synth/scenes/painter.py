"""A painter with a habit: it draws two things as large as they usually are, unless a prompt is one of few phrasings, word for word.

"Automated Prompt Generation for Creative and Counterfactual Text-to-image Synthesis" 2025 (arXiv 2509.21375) rewrites prompts for
such a model. Read from the abstract, so the painter, its phrasings and the measure are our reading.

    PHRASINGS   40: 8 frames ("A photo: ...") x 5 relations ("... the giant cow and the tiny ant")
    honoured    phrasing k, for a thing of the shape g: (7 k + 10 g) mod 40 < 6, so 6 of the 40, other ones for each shape
    drawn       each named thing once, as its coloured shape; honoured: the thing that shall be larger 6 pixels high, the other 4; else the
                one that is larger by habit 6, the others 4

`larger` measures a picture, and knows neither the prompt nor the habit: the things are read from the pixels (`seen`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from synth.scenes.scenes import CELL, COLOURS, SHAPES, Thing, pixels, seen

NAMES = tuple("ant bee snail mouse frog rat duck cat fox dog goat pig lion cow bear horse".split())  # by size
SIDE = 32
FRAMES = (
    "A picture: {}",
    "A photo: {}",
    "A drawing: {}",
    "A dream: {}",
    "A fable: {}",
    "A poster: {}",
    "A film: {}",
    "A stamp: {}",
)
RELATIONS = (
    "the {a} larger than the {b}",
    "the giant {a} and the tiny {b}",
    "the tiny {b} under the giant {a}",
    "the {a} that towers over the {b}",
    "the {b} dwarfed by the {a}",
)
PHRASINGS = tuple(frame.format(relation) for frame in FRAMES for relation in RELATIONS)
SMALL, LARGE = 4, 6  # pixels


def look(name: str) -> tuple[str, str]:
    """Colour and shape of a name, others for each. Raises ValueError for a name that the painter does not know."""
    if name not in NAMES:
        raise ValueError(f"the painter does not know {name!r}: it draws {', '.join(NAMES)}")
    at = NAMES.index(name)
    return tuple(COLOURS)[at % len(COLOURS)], SHAPES[at // len(COLOURS)]


def honoured(name: str) -> list[int]:
    """The places in PHRASINGS of those that make this thing the larger one."""
    shape = SHAPES.index(look(name)[1])
    return [k for k in range(len(PHRASINGS)) if (7 * k + 10 * shape) % len(PHRASINGS) < 6]


def phrased(k: int, a: str, b: str) -> str:
    """Phrasing k with a as the larger thing."""
    return PHRASINGS[k].format(a=a, b=b)


def _obeyed(prompt: str, named: list[str]) -> Iterator[str]:
    text = " ".join(prompt.lower().split()).rstrip(".")
    for a in named:
        for b in named:
            if a != b and any(phrased(k, a, b).lower() == text for k in honoured(a)):
                yield a


def paint(prompt: str) -> np.ndarray:
    """[32, 32, 3] uint8: what the painter makes of a prompt. Raises ValueError for one that names nothing it knows, or more than
    fits."""
    named = list(dict.fromkeys(w for w in re.findall("[a-z]+", prompt.lower()) if w in NAMES))
    if not 0 < len(named) <= SIDE // CELL:
        raise ValueError(
            f"{prompt[:80]!r} names {len(named)} things that the painter knows: name 1 to {SIDE // CELL} of {', '.join(NAMES)}"
        )
    large = next(_obeyed(prompt, named), max(named, key=NAMES.index))
    return pixels(SIDE, [Thing(*look(n), LARGE if n == large else SMALL, x, 1) for x, n in enumerate(named)])


def larger(picture: np.ndarray, a: str, b: str) -> float | None:
    """How many times as many pixels the box around a has as that around b, of a picture [S, S, 3] uint8; None where not both are
    to be seen. Raises ValueError as `seen` does."""
    area = {(t.colour, t.shape): t.size**2 for t in seen(picture)}
    two = area.get(look(a)), area.get(look(b))
    return None if two[0] is None or two[1] is None else two[0] / two[1]
