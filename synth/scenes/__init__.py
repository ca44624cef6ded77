"""Pictures that problems describe: each is drawn from the problem's text, so no pixels are stored.

The question of such a problem has two parts: a description, which says what is drawn, and in the last line what is
asked. The first word of the description names who draws it (`KINDS`). `draw` is a pure function of the problem: the
same text gives the same bytes. A model is shown the pictures and the last line (the environment `look`); the
description is for programs, and for models that read text alone.

A new kind is a file with `draw(description) -> list of pictures [H, W, 3] uint8` and a line in KINDS.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from synth.scenes import clips, maps, scenes, screens
from synth.types import Problem

KINDS: dict[str, Callable[[str], list[np.ndarray]]] = {
    "Scene": scenes.draw,
    "Clip": clips.draw,
    "Screen": screens.draw,
    "Map": maps.draw,
}


def parts(question: str) -> tuple[str, str]:
    """The description and what is asked, the last line. The description is "" where there is none."""
    shown, _, question_line = question.rpartition("\n")
    return shown, question_line


def draw(problem: Problem) -> list[np.ndarray]:
    """The pictures [H, W, 3] uint8 that a problem describes, in order. Raises ValueError where it describes none."""
    shown, _ = parts(problem.question)
    kind = shown.partition(" ")[0]
    if kind not in KINDS:
        raise ValueError(
            f"problem {problem.id} describes no picture: its question begins with {problem.question[:40]!r}, where "
            f"{', '.join(sorted(KINDS))} are drawn (families of synth/scenes make such problems)"
        )
    return KINDS[kind](shown)
