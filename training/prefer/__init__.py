"""Preference losses: log-probs of two answers in, a loss per pair out. One file per loss; `finite` and `log_ratios` are what they share.

    f(chosen, rejected, ref_chosen, ref_rejected, n_chosen, n_rejected, *, columns, knobs) -> values [P]

all [P] sums of log-probs and numbers of tokens. A keyword-only argument without a default is no knob but a column [P] that the objective
passes by name: margin, weight, other, baseline, history, ... Constants of a module: NEEDS names passes (reference; history: the mean of
earlier policies; mismatched: answers after the prompt of another pair; policy: the log-probs before the step), TOGETHER is how many
consecutive pairs it must see at once (1 unless said, 0 = all of the step), UNIT what these are (tasks/units.py). A function `prepare(batch, state, *, same knobs)` beside it runs
before each step, with a state of plain values that lasts.
"""

from __future__ import annotations

import torch
from torch import Tensor


def finite(margin: Tensor) -> tuple[Tensor, Tensor]:
    """[P] margin with 0 in place of what is not finite, and the [P] bool mask of what was: such a pair counts 0 and has no gradient."""
    ok = torch.isfinite(margin)
    return torch.where(ok, margin, torch.zeros_like(margin)), ok


def log_ratios(chosen: Tensor, rejected: Tensor, ref_chosen: Tensor, ref_rejected: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """[P] log-ratio of the chosen answer, [P] of the rejected, and the [P] bool mask of pairs whose two are finite (others have 0)."""
    better, worse = chosen - ref_chosen, rejected - ref_rejected
    ok = torch.isfinite(better) & torch.isfinite(worse)
    none = torch.zeros_like(better)
    return torch.where(ok, better, none), torch.where(ok, worse, none), ok
