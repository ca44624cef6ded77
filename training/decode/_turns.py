"""A decoder used as a sampler: it decodes every turn of a conversation, each with its own budget."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from synth.types import Sampling, seed_for
from training.decode._engine import Account, Ask, Decoded, Engine
from training.model.render import Renderer
from training.types import Segment


@dataclass(kw_only=True)
class DecodingSampler:
    """Has the method `open` of a sampler. It reads the whole conversation again for each turn, and counts those tokens.

    decode          the decoder, with its knobs bound
    forward_tokens  that one turn may cost; 0: no bound
    hear            is called with the account of each turn as soon as it is decoded

    A turn's segment has its forward tokens in `extras["forward_tokens"]` [n], all of them at the last token.
    """

    engine: Engine
    decode: Callable[..., list[Decoded]]
    fitted: Any = None
    forward_tokens: int = 0
    hear: Callable[[Account], None] = field(default=lambda account: None)

    @property
    def model(self) -> Any:
        return self.engine.sampler.model

    @property
    def version(self) -> int:
        return self.engine.sampler.version

    def open(self, prompts: Sequence[np.ndarray], seeds: Sequence[int]) -> _Session:
        return _Session(self, prompts, seeds)


@dataclass(frozen=True, kw_only=True)
class ServedDecoder:
    """The decoder that answers the requests of a server.

    budget       forward tokens that an answer may cost; 0: no bound
    temperature  the decoder's own, whatever a request says; None: that of the request
    around       sampler, renderer, device -> the decoder as a sampler
    """

    name: str
    budget: int = 0
    temperature: float | None = None
    around: Callable[[Any, Renderer, str], Any]


class _Session:
    def __init__(self, sampler: DecodingSampler, prompts: Sequence[np.ndarray], seeds: Sequence[int]) -> None:
        self.sampler, self.seeds = sampler, list(seeds)
        self.accounts: list[Account] = []  # of the last turn, in the order of `rows`
        self.ids = [np.asarray(p, dtype=np.int64) for p in prompts]
        self.rows, self.turns = list(range(len(prompts))), np.zeros(len(prompts), dtype=np.int64)

    def observe(self, rows: Sequence[int], new: Sequence[np.ndarray]) -> None:
        self.rows = list(rows)
        for r, ids in zip(rows, new, strict=True):
            self.ids[r] = np.concatenate([self.ids[r], ids])

    def generate(self, sampling: Sampling) -> list[Segment]:
        sampler = self.sampler
        engine = replace(sampler.engine, sampling=sampling)
        asks = [
            Ask(
                prompt=self.ids[r],
                seed=seed_for(self.seeds[r], "decode", int(self.turns[r])),
                max_tokens=sampling.max_tokens,
                forward_tokens=sampler.forward_tokens,
            )
            for r in self.rows
        ]
        out, self.accounts = [], []
        for r, done in zip(self.rows, sampler.decode(engine, asks, sampler.fitted), strict=True):
            segment = done.segment
            cost = np.zeros(len(segment.ids), dtype=np.int64)
            cost[-1:] = done.account.spent
            self.ids[r] = np.concatenate([self.ids[r], segment.ids])
            sampler.hear(done.account)
            self.accounts.append(done.account)
            out.append(replace(segment, extras={**segment.extras, "forward_tokens": cost}))
        self.turns[self.rows] += 1
        return out
