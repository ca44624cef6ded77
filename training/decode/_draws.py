"""Several answers to each ask, as many as a number and a budget allow."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from synth.types import seed_for
from training.decode._engine import VERDICT, Account, Ask, Draw, Engine
from training.model.residual import untouched
from training.types import Segment


@dataclass(kw_only=True)
class Drawn:
    """The answers to one ask in the order they were drawn, their rewards (None if none were requested), and the
    account."""

    account: Account
    segments: list[Segment] = field(default_factory=list)
    rewards: list[float | None] = field(default_factory=list)


def draws(engine: Engine, asks: Sequence[Ask], k: int, *, rated: bool = False) -> list[Drawn]:
    """Up to k answers to each ask; k = 0: as many as the budget allows.

    Each answer may be as long as the ask says. Budget that short answers leave unused pays for more answers, in rounds,
    until k are drawn or the rest is too small for another. rated: the reward model reads each answer, paid from the
    same budget; if the budget is too small for one rated answer, one answer is drawn without a rating. Raises
    ValueError for a budget too small for any answer, and for k = 0 without a budget.
    """
    if k < 0:
        raise ValueError(f"k is {k}: it is the number of answers, 0 for as many as the budget allows")
    out = [Drawn(account=Account(limit=ask.forward_tokens)) for ask in asks]
    if k == 0 and any(not ask.forward_tokens for ask in asks):
        raise ValueError("k is 0, as many answers as the budget allows, and there is no budget: set k, or a budget")
    if rated and engine.rewards is None:
        engine.rate([])
    open_asks = list(range(len(asks)))
    while open_asks:
        batch: list[tuple[int, Draw, bool]] = []
        for i in open_asks:
            ask, mine = asks[i], out[i]
            n = ask.max_tokens
            each, once = n + (len(ask.prompt) + n + VERDICT if rated else 0), len(ask.prompt)
            if engine.steered is not None:  # each draw reads for itself what is changed of the prompt
                once = untouched(engine.steered(ask.prompt), len(ask.prompt))
                each += len(ask.prompt) - once
            wanted = k - len(mine.segments) if k else math.inf
            m = int(min(wanted, (mine.account.left - once) // each))
            alone = m < 1 and not mine.segments
            if alone:
                n = engine.room(ask, mine.account)
            for j in range(1 if alone else m):
                place = len(mine.segments) + j
                seed = seed_for(ask.seed, "draw", place)
                batch.append((i, Draw(account=mine.account, prompt=ask.prompt, seed=seed, max_tokens=n), not alone))
        segments = engine.sample([d for _, d, _ in batch])
        whole = [np.concatenate([d.prompt, s.ids]) for (_, d, _), s in zip(batch, segments, strict=True)]
        to_rate = [b for b, (_, _, rate) in enumerate(batch) if rate and rated]
        values = engine.rate([(batch[b][1].account, whole[b]) for b in to_rate]) if to_rate else []
        rewards = dict(zip(to_rate, values, strict=True))
        for b, ((i, _, _), segment) in enumerate(zip(batch, segments, strict=True)):
            out[i].segments.append(segment)
            out[i].rewards.append(rewards.get(b))
        drawn = {i for i, _, rate in batch if rate}
        open_asks = [i for i in open_asks if i in drawn and len(out[i].segments) != k]
    return out
