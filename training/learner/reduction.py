"""What all per-token losses share: which tokens count, and how their sum is weighted.

A learner divides once by a global count, so a loss never averages. `weigh` turns "mean over what?" into values to be
summed and the name of the total that divides them.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from training.types import Batch

Aggregate = Literal["tokens", "sequences", "constant"]
# bound of a log-ratio before exp: e^20 is finite in float32, also after squaring and multiplying with an advantage
LIMIT = 20.0


def live(x: Tensor, batch: Batch) -> Tensor:
    """x [T] at trainable tokens where it is finite, else exactly 0 with exactly 0 gradient (multiplying with a mask
    would give NaN)."""
    return torch.where(batch.trainable & torch.isfinite(x), x, torch.zeros_like(x))


def weigh(values: Tensor, batch: Batch, aggregate: Aggregate, max_length: int) -> tuple[Tensor, str]:
    """[T] values and the denominator that make the sum the wanted mean.

    tokens      mean over all trainable tokens of the step: long answers weigh more (DAPO)
    sequences   mean over the tokens of each row, then over rows: a token of a long answer weighs less (GRPO)
    constant    sum over the tokens of each row divided by `max_length`, then mean over rows (Dr. GRPO);
                with max_length 1 it is the plain sum of a sequence, as in REINFORCE
    """
    if aggregate == "tokens":
        return values, "tokens"
    if aggregate == "sequences":
        return values / batch.per_token(batch.row_tokens), "sequences"
    if aggregate == "constant":
        if max_length < 1:
            raise ValueError(
                f"max_length is {max_length}: aggregate 'constant' divides by it; give the tokens a rollout may have"
            )
        return values / max_length, "sequences"
    raise ValueError(f"aggregate is {aggregate!r}; choose 'tokens', 'sequences' or 'constant'")
