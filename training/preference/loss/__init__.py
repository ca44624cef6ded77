"""Preference losses, one file each; they share `finite` and `log_ratios`.

Constants of a module: NEEDS names passes (reference; history: the mean of earlier policies; mismatched: answers after
the prompt of another pair; policy: the log-probs before the step), ROWS_PER_UNIT is how many consecutive pairs the loss
must see together (default 1; 0 = all of the step), UNIT says what these pairs are (training/preference/units.py). A
function `prepare(batch, state, *, same knobs)` in the same file runs before each step, with a persistent state of plain
values.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor


class PreferenceLossPiece(Protocol):
    """A loss per pair of answers.

    Args:
        chosen: [P] sum of the log-probs of the answer labelled better, in nats, with gradient (its reward, in a
            reward model)
        rejected: [P] the same for the other answer
        ref_chosen: [P] sum of the log-probs of the better answer under the reference
        ref_rejected: [P] the same for the other answer
        n_chosen: [P] tokens of the better answer
        n_rejected: [P] tokens of the other answer
        **columns: [P] columns of the pairs that the loss names as keyword-only arguments without a default: margin,
            weight, other, baseline, history, reliability

    Returns:
        [P] loss per pair, finite; 0 without gradient where a log-prob is not finite

    Check gives:
        chosen: per pair
        rejected: per pair
        ref_chosen: per pair (0)
        ref_rejected: per pair (0)
        n_chosen: per pair (1)
        n_rejected: per pair (1)
        **columns: the columns that the loss reads

    Check expects:
        values: per pair
        gradient: `{chosen, rejected}`, per pair
    """

    def __call__(
        self,
        chosen: Tensor,
        rejected: Tensor,
        ref_chosen: Tensor,
        ref_rejected: Tensor,
        n_chosen: Tensor,
        n_rejected: Tensor,
        **columns: Tensor,
    ) -> Tensor: ...


def finite(margin: Tensor) -> tuple[Tensor, Tensor]:
    """The margin [P] with non-finite values replaced by 0, and the bool mask [P] of the finite ones: a non-finite pair
    counts 0 and has no gradient."""
    ok = torch.isfinite(margin)
    return torch.where(ok, margin, torch.zeros_like(margin)), ok


def log_ratios(
    chosen: Tensor, rejected: Tensor, ref_chosen: Tensor, ref_rejected: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The log-ratio [P] of the chosen answer, that of the rejected answer [P], and the bool mask [P] of pairs in which
    both are finite (the others are 0)."""
    better, worse = chosen - ref_chosen, rejected - ref_rejected
    ok = torch.isfinite(better) & torch.isfinite(worse)
    none = torch.zeros_like(better)
    return torch.where(ok, better, none), torch.where(ok, worse, none), ok
