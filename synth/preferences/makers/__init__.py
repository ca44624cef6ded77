"""Makers of preference pairs, one file each.

Pair `index` of a problem is a function of the arguments (and of the replies of `generate` to its seeds).
`synth/preferences/flawed.py` is a source of text without a model.
"""

from __future__ import annotations

from typing import Protocol

from synth.types import Generate, PreferencePair, Problem, Quarantined


class PairMakerPiece(Protocol):
    """Makes a preference pair of a problem.

    Args:
        seed: that of the run; all randomness is hashed from it, the problem and the index
        problem: what the pair answers
        index: the number of the pair for this problem
        generate: a source of text; a conversation that ends with the assistant's message is continued

    Returns:
        the pair, whose claims the problem's verifier confirmed, or the reason why there is none

    Check gives:
        problem: prompt, answer, verifier, args
        says: the model's replies, in order
        index: which pair (0)

    Check expects:
        chosen: the better answer
        rejected: the other
        margin: the verified difference of their scores
        columns: the columns of the pair
        reason: why it was quarantined
    """

    def __call__(self, seed: int, problem: Problem, index: int, generate: Generate) -> PreferencePair | Quarantined: ...
