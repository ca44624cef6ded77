"""Reward models: how rewards are read, the training objective, and the folder on disk.

Two kinds. A *word* model is a plain causal LM whose reward is the log-odds of one word after the conversation
(`reward_of`). A model with its own head is transformers' `...ForSequenceClassification`, one row of `score.weight`
per output, read at the last token of a conversation (`head_stats`): a piece of training/preference/reward_head turns
its outputs into a reward.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from transformers import AutoModelForSequenceClassification, PreTrainedTokenizerBase

from training.learner.pack import Stream
from training.model.attention import NAME
from training.model.model import hidden_states, load_model
from training.preference.loss import PreferenceLossPiece
from training.preference.objective import per_pair
from training.types import Batch, Metrics, Terms, TokenStats

Fit = Callable[
    [], tuple[np.ndarray, np.ndarray]
]  # features [N, d] and ratings [N, k] of the training answers, NaN where there is none


class Head(Protocol):
    """A piece of training/preference/reward_head: rewards from the outputs of a model, and losses in addition to the
    pairwise one."""

    def ranked(self, stats: TokenStats, batch: Batch) -> Tensor: ...

    def reward(self, stats: TokenStats, batch: Batch) -> Tensor: ...

    def extra(self, stats: TokenStats, batch: Batch) -> list[Terms]: ...


@dataclass(frozen=True, kw_only=True)
class RewardObjective:
    """A pairwise loss over the scalar rewards of rows 2i (chosen) and 2i + 1 (rejected), and the head's own losses.

    loss   a piece of training/preference/loss that reads only chosen, rejected and columns
    head   turns the model's outputs into one reward [R]; None reads the word's log-odds
    """

    loss: PreferenceLossPiece
    head: Head | None = None

    def __call__(self, stats: TokenStats, batch: Batch) -> list[Terms]:
        r = reward_of(stats, batch) if self.head is None else self.head.ranked(stats, batch)
        none = torch.zeros_like(r[0::2])
        values = self.loss(r[0::2], r[1::2], none, none, none + 1, none + 1, **per_pair(self.loss, batch))
        gap, count = (r[0::2] - r[1::2]).detach(), torch.tensor(float(len(values)))
        metrics: Metrics = {"accuracy": ((gap > 0).float().sum(), count), "margin": (gap.sum(), count)}
        return [
            Terms(values=values, denominator="pairs", metrics=metrics),
            *([] if self.head is None else self.head.extra(stats, batch)),
        ]


def reward_of(stats: TokenStats, batch: Batch) -> Tensor:
    """[R] rewards: the log-odds of the verdict token that ends each row, its only trainable one.

    So a reward model is a plain causal LM: it needs no extra head, and any engine that returns log-probs can serve
    it.
    """
    logp = batch.row_sum(torch.where(batch.trainable, stats.logp, 0.0)).clamp_max(
        -1e-6
    )  # at 0 the odds would be infinite
    return logp - torch.log(-torch.expm1(logp))


def features(model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
    """Hidden states [R, d] at the last token of every row, and [R, d] at the last token of its prompt (before the first
    trainable one)."""
    stream = Stream.of(batch)
    hidden = hidden_states(model, stream.ids, stream.position, stream.rows)
    ends = torch.tensor(batch.lengths, device=hidden.device).cumsum(0) - 1
    starts = ends - torch.tensor(batch.lengths, device=hidden.device) + 1
    first = [int(t.to(torch.int8).argmax()) if bool(t.any()) else len(t) for t in batch.trainable.split(batch.lengths)]
    prompt_ends = starts + torch.tensor(first, device=hidden.device).clamp_min(1) - 1
    return hidden.index_select(0, stream.at(ends)), hidden.index_select(0, stream.at(prompt_ends))


def head_stats(model: nn.Module, batch: Batch, *, temperature: float = 1.0) -> TokenStats:
    """extras["outputs"] [R, k] of a model with a head. The temperature is that of a policy, and is not used."""
    head: Any = model.score
    outputs = head(features(model, batch)[0]).float()
    return TokenStats(logp=torch.zeros(len(batch.ids), device=outputs.device), extras={"outputs": outputs})


def new_reward_model(
    path: str | Path, outputs: int, *, dtype: str, device: str, seed: int, longest: int = 0
) -> tuple[nn.Module, PreTrainedTokenizerBase]:
    """The body of a causal LM (a folder or Hub name) under a head of `outputs` numbers, drawn from the seed; and the
    tokenizer.

    Saved, it loads with `AutoModelForSequenceClassification`; the pad token is the tokenizer's, so that transformers
    finds the last token of a padded row where we read it. Raises ValueError as `load_model` does.
    """
    language, tokenizer = load_model(path, dtype=dtype, longest=longest)
    config: Any = copy.deepcopy(language.config)
    config.num_labels, config.pad_token_id = outputs, tokenizer.pad_token_id
    model = AutoModelForSequenceClassification.from_config(
        config, dtype=getattr(torch, dtype), attn_implementation=NAME
    )
    body: Any = language.base_model
    model.base_model.load_state_dict(body.state_dict())
    weight = torch.empty(model.score.weight.shape).normal_(
        0.0, 0.02, generator=torch.Generator().manual_seed(seed % 2**63)
    )
    model.score.weight.data.copy_(weight)
    return model.eval().to(device), tokenizer
