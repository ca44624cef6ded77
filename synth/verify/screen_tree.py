"""A screen written as a tree of rows and columns (synth/scenes/trees.py), scored by what it renders to.

Yang et al. 2025, "UI-UG: A Unified MLLM for UI Understanding and Generation" (arXiv 2509.24361), read from the abstract: the
tree and the measures are our reading. Validity comes first, then quality.

    value   0 where the text is no tree that renders, else (1 + 9 named^2 (1 + 2 related) / 3) / 10, so that no screen that is
            drawn whatever is asked for earns a quarter
    named   2 * both / (rendered + wanted) of the names of widgets
    related share of `relations`, [name, "left of" or "above", name], that hold; 1 without any

parts: `valid` (it renders), `named`, `related`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from synth.scenes.screens import pixels
from synth.scenes.trees import holds, laid_out
from synth.types import Problem, Score, Scored, Unscorable

FORM = "data"
GIVES = ("valid", "named", "related")
EXAMPLE = {
    "prompt": "Draw a screen with a red button and a blue field; the red button is above the blue field.",
    "answer": '{"col": [{"button": "red"}, {"field": "blue"}]}',
    "args": {"widgets": ["red button", "blue field"], "relations": [["red button", "above", "blue field"]]},
}


def screen_tree(
    problem: Problem, answer: str, *, widgets: Sequence[str] = (), relations: Sequence[Sequence[str]] = ()
) -> Score:
    try:
        gold = laid_out(problem.answer)
    except ValueError as e:
        return Unscorable(reason=f"bad_reference: {e}")
    if {w.name for w in gold.widgets} != set(widgets) or not all(holds(gold, *r) for r in relations):
        return Unscorable(reason=f"bad_reference: {problem.answer!r:.80} is not what is asked for")
    try:
        screen = laid_out(answer)
    except ValueError:
        return Scored(value=0.0, parts={"parsed": 0.0, "valid": 0.0, "named": 0.0, "related": 0.0})
    given, wanted = {w.name for w in screen.widgets}, set(widgets)
    named = 2 * len(given & wanted) / (len(given) + len(wanted))
    related = sum(holds(screen, *r) for r in relations) / len(relations) if relations else 1.0
    parts = {"parsed": 1.0, "valid": 1.0, "named": named, "related": related}
    return Scored(value=(1 + 3 * named**2 * (1 + 2 * related)) / 10, parts=parts)


def drawn(answer: str) -> list[np.ndarray]:
    """The screen that an answer renders to. Raises ValueError for a text that is no tree."""
    return [pixels(laid_out(answer))]
