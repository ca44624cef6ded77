"""A guard before the model and one behind it: an unsafe request is not read, an unsafe answer is not said.

The two serving hooks of RAISE, the safety engine of the "Yi-Lightning Technical Report" 2024 (arXiv 2412.01253), which names them and
gives no formula; the screen is that of synth/verify/_unsafe.py, in the place of trained classifiers.

    input    unsafe(conversation)  -> `says`, for no forward token
    output   unsafe(drawn turn)    -> `says`, at the cost of the draw

What passes is a plain draw, bit by bit. The events of an account say what each guard stopped ("input guard: malware"), and the stage
evaluate counts it (`input_guard`, `output_guard` of the decoder's measures). The input guard
screens the whole conversation, so that what was refused is not reached in two turns. A refusal is not the model's: its log-probs are 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from synth.verify._unsafe import unsafe
from training.decode import Account, Ask, Decoded, Draw, Engine
from training.types import Segment

GUARDS = ("input", "output")


def guarded(
    engine: Engine,
    asks: Sequence[Ask],
    fitted: Any,
    *,
    guards: tuple[str, ...] = GUARDS,
    says: str = "I can't help with that.",
) -> list[Decoded]:
    """Raises ValueError for another guard, and where one has to speak and the model reads ids alone."""
    if unknown := [g for g in guards if g not in GUARDS]:
        raise ValueError(f"guarded has no guard {unknown[0]!r}: it has {' and '.join(GUARDS)}")
    accounts = [Account(limit=a.forward_tokens) for a in asks]
    done: dict[int, Segment] = {}
    draws, places = [], []
    for i, (ask, account) in enumerate(zip(asks, accounts, strict=True)):
        category = unsafe(engine.text(ask.prompt)) if "input" in guards else ""
        if category:
            account.events.append(f"input guard: {category}")
            done[i] = _refusal(engine, ask, says, "input_guard")
        else:
            draws.append(Draw(account=account, prompt=ask.prompt, seed=ask.seed, max_tokens=engine.room(ask, account)))
            places.append(i)
    for i, segment in zip(places, engine.sample(draws) if draws else [], strict=True):
        category = unsafe(engine.text(segment.ids)) if "output" in guards else ""
        if category:
            accounts[i].events.append(f"output guard: {category}")
        done[i] = _refusal(engine, asks[i], says, "output_guard") if category else segment
    return [Decoded(segment=done[i], account=a) for i, a in enumerate(accounts)]


def _refusal(engine: Engine, ask: Ask, says: str, guard: str) -> Segment:
    """What the guard says, as a turn no longer than the ask allows; marked by a 1 at its last token in a column of the guard's name."""
    if engine.ids is None:
        raise ValueError(
            "a guard must speak, and this model reads ids alone: serve one with a tokenizer, or set guards to []"
        )
    ids = np.append(engine.ids(says), engine.sampler.end_id)[: ask.max_tokens].astype(np.int64)
    stop = "end" if len(ids) and ids[-1] == engine.sampler.end_id else "length"
    mark = np.zeros(len(ids), dtype=np.int64)
    mark[-1:] = 1
    return Segment(ids=ids, role="model", logp=np.zeros(len(ids), dtype=np.float32), stop=stop, extras={guard: mark})
