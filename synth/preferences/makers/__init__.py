"""Makers of preference pairs, one file each.

Pair `index` of a problem follows from the arguments alone (and from what `generate` answers to the seeds that it is
given). `synth/preferences/flawed.py` is a source of text without a model.
"""

from __future__ import annotations

from typing import Protocol

from synth.types import Generate, PreferencePair, Problem, Quarantined


class PairMakerPiece(Protocol):
    """Makes a preference pair of a problem.

    Args:
        seed: of the run; all chance is hashed from it, the problem and the index
        problem: what the pair answers
        index: which pair of this problem
        generate: a source of text; a conversation that ends with the assistant's message is continued

    Returns:
        the pair, whose claims the problem's verifier confirmed, or the reason why there is none

    Check gives:
        problem: prompt, answer, verifier, args
        says: what a model says, in order
        index: which pair (0)

    Check expects:
        chosen: the better answer
        rejected: the other
        margin: the verified difference of their scores
        columns: those of the pair
        reason: why it was quarantined
    """

    def __call__(self, seed: int, problem: Problem, index: int, generate: Generate) -> PreferencePair | Quarantined: ...
