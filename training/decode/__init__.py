"""Decoders: ways to draw an answer from a trained model, one file each, with an account of what the answer cost.

`_engine.py` holds the models that a decoder may use, and keeps the accounts; `_draws.py` is shared by decoders that
draw several answers, `_segments.py` by those that write piece by piece; `_turns.py` wraps a decoder as a sampler, so
that code that plays conversations can use it. A decoder that must first learn something has a function
`fit(engine, pairs, *, knobs)` in its file, with its knobs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from training.decode._engine import Account, Ask, Decoded, Draw, Engine, Example
from training.decode._turns import DecodingSampler, ServedDecoder

__all__ = ["Account", "Ask", "DecodePiece", "Decoded", "DecodingSampler", "Draw", "Engine", "Example", "ServedDecoder"]


class DecodePiece(Protocol):
    """Answers prompts with a trained model, at a cost that is counted.

    Args:
        engine: the models that the decoder may use; it keeps the accounts and lets no ask exceed its budget
        asks: prompts, each with its seed, the most tokens of an answer and the most forward tokens that it may cost;
            the result of an ask does not depend on the other asks
        fitted: what the piece's own function `fit` learned from preference pairs; None for a piece without `fit`

    Returns:
        for each ask its answer as a turn, and its account; raises ValueError for a budget too small for any answer, and
        if a model that the piece needs is missing

    Check gives:
        draws: what the model says, draw by draw; each `{says, tokens, reward, goes_on, logp, ref_logp, stream}` with the number of
            tokens of the draw, whether more may follow (false), its log-prob under the model and under the reference, and
            the residual stream at each of its tokens
        prompt: tokens of the prompt
        prompt_stream: in the place of `prompt`, the residual stream of the prompt, one list of numbers per token; pairs have this prompt too
        max_tokens: most tokens of an answer
        forward_tokens: the budget (0, no bound)
        chosen: per preference pair the residual stream of the chosen answer, one list of numbers per token
        rejected: the same for the rejected answer
        ratings: per preference pair, dimension -> the ratings of chosen and rejected
        log: preference pairs as texts, [prompt, chosen, rejected]
        asked: the prompt as a text, of one token
        weights: name -> weight of a block that the piece may change
        stream: a residual stream, one list of numbers per new token, that the piece may change
        call: in the place of all this a function that the piece uses, `file.function` of this folder
        with: its arguments

    Check expects:
        says: the answer
        tokens: forward tokens by model
        fitted: what was learned, by name
        stream: the stream as the piece changed it
        value: what the function of `call` returns
    """

    def __call__(self, engine: Engine, asks: Sequence[Ask], fitted: Any) -> list[Decoded]: ...
