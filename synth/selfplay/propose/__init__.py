"""Proposers of self-play, one file each: a program or a model.

Every proposal is certified before it is attempted. A proposer keeps persistent state in `view.state`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

if TYPE_CHECKING:
    from synth.selfplay.loop import View


class ProposerPiece(Protocol):
    """Proposes problems for self-play; a program certifies each before it is attempted.

    Args:
        view: the wanted cells, the ladders, problems that were solved or failed, weak skills, and a state that
            lasts
        rng: the only source of randomness
        n: how many proposals are wanted

    Returns:
        n specs as JSON text (synth/selfplay/spec.py), one for each wanted cell

    Check gives:
        families: the families of the ladder
        level: of the wanted cells (1)
        n: proposals of a round
        rounds: how many (1)
        failed: {family: how many problems of it were failed} (none)
        weak: names of weak skills (none)

    Check expects:
        shares: {family: its share of the proposals}
        certified: how many proposals hold
        state: the piece's state afterwards
    """

    def __call__(self, view: View, rng: np.random.Generator, n: int) -> list[str]: ...
