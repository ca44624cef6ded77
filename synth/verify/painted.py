"""A prompt for a painter with a habit (synth/scenes/painter.py), scored by the picture: is one thing larger than another in it?

"Automated Prompt Generation for Creative and Counterfactual Text-to-image Synthesis" 2025 (arXiv 2509.21375), read from the
abstract: the pixels of the two things' boxes stand for a detector and its masks.

    value   1 where a has at least `ratio` times the pixels of b, else 0; what the prompt says is not read

parts: `shown` (both are to be seen), `sizes` (the ratio, of which 1 is no difference).
"""

from __future__ import annotations

import numpy as np

from synth.scenes.painter import larger, paint
from synth.types import Problem, Score, Scored, Unscorable
from synth.verify import UNPARSABLE

FORM = "text"
GIVES = ("shown", "sizes")
MAX_CHARS = 300
EXAMPLE = {
    "prompt": "Phrase this so that the painter draws it: the ant is larger than the cow.",
    "answer": "A photo: the giant ant and the tiny cow",
    "args": {"a": "ant", "b": "cow"},
}


def painted(problem: Problem, answer: str, *, a: str, b: str, ratio: float = 1.5) -> Score:
    try:
        gold = larger(paint(problem.answer), a, b)
    except ValueError as e:
        return Unscorable(reason=f"bad_reference: {e}")
    if gold is None or gold < ratio:
        return Unscorable(reason=f"bad_reference: of {problem.answer!r:.80} the painter makes no {a} larger than a {b}")
    if len(answer) > MAX_CHARS:
        return UNPARSABLE
    try:
        sizes = larger(paint(answer), a, b)
    except ValueError:
        return UNPARSABLE
    if sizes is None:
        return Scored(value=0.0, parts={"parsed": 1.0, "shown": 0.0, "sizes": 0.0})
    return Scored(value=float(sizes >= ratio), parts={"parsed": 1.0, "shown": 1.0, "sizes": sizes})


def drawn(answer: str) -> list[np.ndarray]:
    """What the painter makes of an answer. Raises ValueError for one that it paints nothing of."""
    return [] if len(answer) > MAX_CHARS else [paint(answer)]
