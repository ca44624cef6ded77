"""One answer, drawn from the model's distribution at a temperature.

Ackley, Hinton and Sejnowski 1985, "A Learning Algorithm for Boltzmann Machines": the temperature of a softmax.

    y_t ~ softmax(logits_t / temperature)

temperature: None keeps the temperature of the caller's sampling settings. Costs the prompt and the answer once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from training.decode import Account, Ask, Decoded, Draw, Engine


def sample(engine: Engine, asks: Sequence[Ask], fitted: Any, *, temperature: float | None = None) -> list[Decoded]:
    draws = []
    for ask in asks:
        account = Account(limit=ask.forward_tokens)
        draws.append(Draw(account=account, prompt=ask.prompt, seed=ask.seed, max_tokens=engine.room(ask, account)))
    segments = engine.sample(draws, temperature=temperature)
    return [Decoded(segment=s, account=d.account) for d, s in zip(draws, segments, strict=True)]
