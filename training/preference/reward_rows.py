"""Preference pairs as rows for a reward model, and its rewards."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from synth.types import PreferencePair
from training.learner.learner import score, token_stats
from training.learner.pack import Row, pack, split
from training.learner.rows import SCORED, two_rows
from training.model.render import Renderer
from training.preference.reward_model import features, reward_of

VERDICT = "good"  # without a head the reward of a conversation is the log-odds of this word after it


class RewardRows:
    """Pairs as rows, and the rewards of rows, with a head (`scorer`) or without; `max_length` and `budget` (of one
    pass) are in tokens."""

    def __init__(self, renderer: Renderer, scorer: Any, max_length: int, device: str, budget: int) -> None:
        self.renderer, self.scorer, self.max_length = renderer, scorer, max_length
        self.device, self.budget = device, budget
        self.read: Callable = token_stats if scorer is None else scorer.read

    def rows(self, pairs: Iterable[PreferencePair], scalars: Mapping[str, Mapping[str, float]]) -> list[Row]:
        """Rows 2i and 2i + 1. Without a head each ends with the verdict's first token, which alone is trainable."""
        return list(self.each(pairs, scalars))

    def each(self, pairs: Iterable[PreferencePair], scalars: Mapping[str, Mapping[str, float]]) -> Iterator[Row]:
        """The rows of `rows`, one after the other."""
        names = list[str]()

        def named() -> Iterator[PreferencePair]:
            for pair in pairs:
                names[:] = [pair.id]
                yield pair

        for two in two_rows(self.renderer, named(), self.max_length - (self.scorer is None)):
            for row in two:
                yield self.dress(replace(row, scalars=scalars[names[0]]) if scalars else row)

    def lengths(self, pairs: Iterable[PreferencePair]) -> np.ndarray:
        """The number of tokens [R] of the answers of `rows`."""
        every = two_rows(self.renderer, pairs, self.max_length - (self.scorer is None))
        return np.fromiter((int(r.trainable.sum()) for two in every for r in two), np.int64)

    def dress(self, row: Row) -> Row:
        """A row as the model reads it."""
        if self.scorer is not None:
            return row
        verdict = self.renderer.encode(VERDICT)[:1]
        ids = np.concatenate([row.ids, verdict])
        return replace(row, ids=ids, trainable=np.arange(len(ids)) == len(row.ids), columns={})

    def fit(
        self, model: nn.Module, rows: Sequence[Row], pairs: Sequence[PreferencePair], marks: Mapping[str, np.ndarray]
    ) -> tuple:
        """Features [N, d] of the rows' last tokens and their ratings [N, k]. All rows are in memory."""
        rows = list(rows)
        with torch.no_grad():
            states = [
                features(model, part)[0].double().cpu().numpy()
                for part in split(pack(rows, device=self.device), self.budget)
            ]
        return np.concatenate(states), np.stack([marks[pairs[r.group].id][i % 2] for i, r in enumerate(rows)])

    def rewards(self, model: nn.Module, rows: Sequence[Row]) -> np.ndarray:
        """[R] rewards of rows, SCORED rows at once."""
        return np.concatenate([self._rewards(model, rows[lo : lo + SCORED]) for lo in range(0, len(rows), SCORED)])

    def _rewards(self, model: nn.Module, rows: Sequence[Row]) -> np.ndarray:
        batch = pack(rows, device=self.device)
        stats = score(model, batch, tokens_per_microbatch=self.budget, read=self.read)
        r: Tensor = reward_of(stats, batch) if self.scorer is None else self.scorer.reward(stats, batch)
        return r.double().cpu().numpy()
