"""The most likely token at each step: the baseline of the other decoders.

Described for sequence models by Graves 2012, "Sequence Transduction with Recurrent Neural Networks" (arXiv 1211.3711).

    y_t = argmax_y p(y | x, y_<t)

Costs the prompt and the answer once. Deterministic; the seed is not read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from training.decode import Account, Ask, Decoded, Draw, Engine


def greedy(engine: Engine, asks: Sequence[Ask], fitted: Any) -> list[Decoded]:
    draws = []
    for ask in asks:
        account = Account(limit=ask.forward_tokens)
        draws.append(Draw(account=account, prompt=ask.prompt, seed=ask.seed, max_tokens=engine.room(ask, account)))
    segments = engine.sample(draws, temperature=0.0)
    return [Decoded(segment=s, account=d.account) for d, s in zip(draws, segments, strict=True)]
