"""The clipped policy loss on the tokens of highest (or lowest) entropy only.

Wang et al. 2025, "Beyond the 80/20 Rule: High-Entropy Minority Tokens Drive Effective Reinforcement Learning for LLM
Reasoning" (arXiv 2506.01939).

    value_t = clip's value where H_t is among the share `rho` highest (or lowest) of the step's trainable tokens, else
    exactly 0

H_t [T] is the entropy of the distribution the token was sampled from. Exactly round(rho * N) tokens are kept, at least
one; among equal entropies the earlier token. `denominator`: the kept tokens or all trainable ones. Shapes as in `clip`.
The choice is made once on the whole step (`prepare`), so splitting it into micro-batches changes nothing; the paper
chooses within each micro-batch.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from training.rl.policy_loss.clip import clip
from training.types import Batch, Terms, TokenStats

NEEDS = {"sampling_entropy"}


def prepare(batch: Batch, *, rho: float = 0.2, which: Literal["top", "bottom"] = "top", **_: object) -> None:
    """Adds columns["kept"] [T] bool and totals["kept_tokens"]. Raises ValueError for a share outside (0, 1]."""
    if not 0 < rho <= 1:
        raise ValueError(f"rho is {rho}: the share of tokens kept must be above 0 and at most 1")
    where = batch.trainable.nonzero().squeeze(1)
    entropy = torch.nan_to_num(batch.columns["sampling_entropy"].index_select(0, where))
    order = torch.argsort(entropy, descending=which == "top", stable=True)
    count = min(len(where), max(1, int(rho * len(where) + 0.5)))
    kept = torch.zeros_like(batch.trainable)
    kept[where[order[:count]]] = True
    batch.add("kept", kept, "token")
    batch.totals["kept_tokens"] = float(max(1, count))


def entropy_clip(
    log_ratio: Tensor,
    advantages: Tensor,
    stats: TokenStats,
    batch: Batch,
    *,
    rho: float = 0.2,
    which: Literal["top", "bottom"] = "top",
    denominator: Literal["kept", "all"] = "kept",
    clip_low: float = 0.2,
    clip_high: float = 0.28,
    dual_clip: float = 0.0,
) -> Terms:
    terms = clip(
        log_ratio,
        advantages,
        stats,
        batch,
        clip_low=clip_low,
        clip_high=clip_high,
        dual_clip=dual_clip,
        aggregate="tokens",
    )
    values = torch.where(batch.columns["kept"], terms.values, 0.0)
    return Terms(values=values, denominator="kept_tokens" if denominator == "kept" else "tokens", metrics=terms.metrics)
