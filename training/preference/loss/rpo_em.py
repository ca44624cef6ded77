"""Robust preference optimisation by expectation-maximisation: each label is right with a probability that is learned
during training.

Cao et al. 2025, "Robust Preference Optimization: Aligning Language Models with Noisy Preference Feedback" (arXiv 2509.24159).

    p = exp(-l(+)) / (exp(-l(+)) + exp(-l(-))),   l(+) the base loss of the pair as labelled, l(-) of its swap
    E-step  w = eta p / (eta p + (1 - eta) (1 - p))                  eta = reliability of the pair's annotator
    value   = w l(+) + (1 - w) l(-)                                  w without gradient
    M-step  eta <- (1 - momentum) eta + momentum * mean w of the annotator's pairs in the step, kept within [0.5, 0.999]

Shapes: sums of log-probs [P] in, loss per pair [P] out; reliability [P] is eta, which `prepare` keeps up to date per
annotator (column "annotator" of the rows: a number; without the column all rows share one) from the pass "policy". eta
= 1 is the base loss. If p is calibrated, the fixed point is the true rate; a policy that overfits trusts its labels too
much, which `warmup` (steps with the first eta) does not fix. Leaves out a reliability that is learned by gradient.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from training.preference.loss import finite
from training.types import Batch

NEEDS = {"reference", "policy"}


def rpo_em(
    chosen: Tensor,
    rejected: Tensor,
    ref_chosen: Tensor,
    ref_rejected: Tensor,
    n_chosen: Tensor,
    n_rejected: Tensor,
    *,
    reliability: Tensor,
    base: Literal["dpo", "ipo", "simpo", "cpo"] = "dpo",
    beta: float = 0.1,
    gamma: float = 1.0,
    first: float = 0.9,
    momentum: float = 0.1,
    warmup: int = 20,
) -> Tensor:
    right, wrong, ok = _losses(chosen, rejected, ref_chosen, ref_rejected, n_chosen, n_rejected, base, beta, gamma)
    w = _posterior(right, wrong, reliability)
    return torch.where(ok, w * right + (1 - w) * wrong, 0.0)


def prepare(
    batch: Batch,
    state: dict[str, Any],
    *,
    base: Literal["dpo", "ipo", "simpo", "cpo"] = "dpo",
    beta: float = 0.1,
    gamma: float = 1.0,
    first: float = 0.9,
    momentum: float = 0.1,
    warmup: int = 20,
) -> None:
    """The M-step: columns["reliability"] [R] of this step, state["eta"] {annotator: reliability} and state["steps"]."""
    sums, refs = (batch.row_sum(torch.where(batch.trainable, batch.columns[k], 0.0)) for k in ("policy", "reference"))
    n = batch.row_tokens
    right, wrong, ok = _losses(sums[0::2], sums[1::2], refs[0::2], refs[1::2], n[0::2], n[1::2], base, beta, gamma)
    who = batch.columns.get("annotator", torch.zeros_like(sums))[0::2]
    eta: dict[str, float] = state.setdefault("eta", {})
    state["steps"] = state.get("steps", 0) + 1
    column = torch.full_like(right, first)
    for one in sorted(set(who.tolist())):
        mine, name = (who == one) & ok, str(int(one))
        old = eta.get(name, first)
        if state["steps"] > warmup and bool(mine.any()):
            mean = float(_posterior(right, wrong, torch.full_like(right, old))[mine].double().mean())
            old = min(max((1 - momentum) * old + momentum * mean, 0.5), 0.999)
        eta[name] = old
        column[who == one] = old
    batch.add("reliability", column.repeat_interleave(2), "row")


def _losses(
    chosen: Tensor,
    rejected: Tensor,
    ref_chosen: Tensor,
    ref_rejected: Tensor,
    n_chosen: Tensor,
    n_rejected: Tensor,
    base: str,
    beta: float,
    gamma: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """The loss [P] of the label as given, that of its swap [P], and the mask of finite pairs."""
    if base in ("dpo", "ipo"):
        d, ok = finite((chosen - ref_chosen) - (rejected - ref_rejected))
    elif base == "simpo":
        d, ok = finite(chosen / n_chosen.clamp_min(1) - rejected / n_rejected.clamp_min(1))
    elif base == "cpo":
        d, ok = finite(chosen - rejected)
    else:
        raise ValueError(f"base is {base!r}; choose 'dpo', 'ipo', 'simpo' or 'cpo'")
    if base == "ipo":
        return (d - 1 / (2 * beta)).square(), (-d - 1 / (2 * beta)).square(), ok
    shift = gamma if base == "simpo" else 0.0
    return -logsigmoid(beta * d - shift), -logsigmoid(-beta * d - shift), ok


def _posterior(right: Tensor, wrong: Tensor, reliability: Tensor) -> Tensor:
    """The probability [P] that the label is right, without gradient: the odds of eta times those of p."""
    odds = torch.logit(reliability.clamp_max(1 - 1e-6)) + wrong - right
    return torch.where(reliability >= 1, 1.0, odds.sigmoid()).detach()
