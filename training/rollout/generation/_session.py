"""Conversations whose model reads embeddings that need not be those of tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from synth.types import Sampling
from training.model.model import embedded_states
from training.model.residual import Edit
from training.rollout.torch_sampler import Session, TorchSampler, _Turn
from training.types import Segment


@dataclass
class EmbeddingSampler(TorchSampler):
    """A sampler that uses the model's own layers. session: makes its sessions, from its own arguments."""

    session: Any = None
    writes: ClassVar[str] = "steps"  # each of them is one forward token

    def sync(self) -> None:
        self._known, self.cached, self.turns = True, None, None
        super().sync()

    def open(
        self,
        prompts: Sequence[np.ndarray],
        seeds: Sequence[int],
        edits: Sequence[Edit | None] = (),
        policies: Sequence[str] = (),
    ) -> Session:
        if any(e is not None for e in edits) or policies:
            raise ValueError(
                "a way of generation of its own goes with one policy and an unchanged residual stream: leave out steering, or the generation"
            )
        self.sync()
        return self.session(self, prompts, seeds)


class EmbeddingSession(Session):
    """`next_inputs` draws what follows and says what the model reads for it; `extras` is what is recorded of a turn.
    A row that is over stays in the batch until the last is."""

    holds = False

    @property
    def joins(self) -> bool:
        return False

    def started(self, turn: _Turn) -> None:
        """A turn begins."""

    def next_inputs(self, turn: _Turn, last: Tensor, rows: np.ndarray) -> Tensor:
        """Draws and notes in `turn` what follows the hidden states `last` [B, d] of `rows`; returns the embeddings [B, d]."""
        raise NotImplementedError

    def extras(self, row: int, n: int) -> dict[str, np.ndarray]:
        """Arrays by the n tokens of a row's turn."""
        raise NotImplementedError

    def streams(self, row: int) -> np.random.Generator:
        """A row's own random stream in this turn, beside the one that draws its tokens."""
        return np.random.Generator(np.random.Philox(key=[self.seeds[row], (1 << 32) + int(self.turns[row])]))

    @torch.inference_mode()
    def generate(self, sampling: Sampling, choices: Sequence[Sequence[np.ndarray]] = ()) -> list[Segment]:
        """As `Session.generate`. Raises ValueError for a sampling that cuts the distribution, or offers choices."""
        turn = _Turn(self, sampling, choices)
        if not turn.plain:
            raise ValueError(
                "a way of generation of its own draws from the whole distribution: leave out top_k, top_p, min_p and choices"
            )
        self._front(self.rows)
        n, cache = len(self.rows), self.cache
        cache.window(0, n)
        cache.reserve(cache.depth + min(sampling.max_tokens, 64))
        rows = self.row_in[:n]
        before = cache.held[:n].copy()
        self.started(turn)
        while not turn.over[rows].all():
            given = self.next_inputs(turn, self.last[:n], rows)
            position = cache.begin()
            self.last[:n] = embedded_states(self.sampler.model, given[:, None], position, cache)[:, 0]
            cache.advance()
        cache.held[:n] = before + turn.length[rows]
        cache.window(0, n)
        return [
            replace(s, extras=self.extras(r, len(s.ids))) for r, s in zip(self.rows, self._turned(turn), strict=True)
        ]
