"""Preference losses: log-probs of two answers in, a loss per pair out. One file per loss; `finite` is what they share."""

from __future__ import annotations

import torch
from torch import Tensor


def finite(margin: Tensor) -> tuple[Tensor, Tensor]:
    """[P] margin with 0 in place of what is not finite, and the [P] bool mask of what was: such a pair counts 0 and has no gradient."""
    ok = torch.isfinite(margin)
    return torch.where(ok, margin, torch.zeros_like(margin)), ok
