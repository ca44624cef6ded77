"""Distillation on whole distributions: the divergence of the policy from its teachers at each token of the rows.

Agarwal et al. 2023, "On-Policy Distillation of Language Models: Learning from Self-Generated Mistakes" (arXiv
2306.13649); MiniLLM (arXiv 2306.08543) for the reverse KL, DistiLLM (arXiv 2402.03898) for the skewed ones.

    value_t = coef sum_k w_k(family) D(p_t, q_k,t)

Shapes: stats.divergence [T] in, values [T] out; training/lm_head/divergence.py has D by name and its `mix`,
training/rl/teachers.py what a teacher may be (a model, a model with another tokenizer, an endpoint). The gradient is
that of D at the states of the rows: on the policy's own rows that is GKD, which does not differentiate the sampling.
Off-policy rows are distilled in the same way, so the data decide between on- and off-policy.
"""

from __future__ import annotations

from typing import Literal

from training.learner.reduction import Aggregate, live, weigh
from training.types import Batch, Terms, TokenStats

NEEDS = {"teachers"}


def distil(
    stats: TokenStats,
    batch: Batch,
    *,
    coef: float = 1.0,
    divergence: Literal["forward", "reverse", "jensen_shannon", "skewed_forward", "skewed_reverse"] = "reverse",
    mix: float = 0.5,
    aggregate: Aggregate = "tokens",
    max_length: int = 128,
) -> Terms:
    if stats.divergence is None:
        raise ValueError("distil needs teachers, and this objective has none: name one with rl.teacher")
    d = live(stats.divergence(divergence, mix), batch)
    values, denominator = weigh(coef * d, batch, aggregate, max_length)
    return Terms(
        values=values, denominator=denominator, metrics={"divergence": (d.detach().sum(), batch.trainable.sum())}
    )
