"""The plain proposer: an item of the wanted family at the wanted level, drawn anew.

InternBootcamp, Li et al. 2025, "InternBootcamp Technical Report: Boosting LLM Reasoning with Verifiable Task Scaling"
(arXiv 2508.08636): instances come from a case generator under difficulty parameters, on the fly. The curriculum decides
which.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from synth.selfplay.loop import Cell, View
from synth.selfplay.spec import MAX_DRAW, Spec


def ladder(view: View, rng: np.random.Generator, n: int) -> list[str]:
    return [drawn(cell, rng) for cell in view.wanted[:n]]


def drawn(cell: Cell, rng: np.random.Generator) -> str:
    """The spec of a random item of a cell."""
    return Spec(family=cell.family, level=cell.level, draw=int(rng.integers(MAX_DRAW))).text()


def cells_of(view: View) -> dict[str, Sequence[Cell]]:
    """Family -> its cells, easiest first."""
    return {
        f: sorted((c for c in view.cells if c.family == f), key=lambda c: c.level)
        for f in sorted({c.family for c in view.cells})
    }
