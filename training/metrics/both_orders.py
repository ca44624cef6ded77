"""A judge in both orders of the two answers: right only where it is right in both.

Position bias and swap consistency: Zheng et al. 2023, "Judging LLM-as-a-Judge with MT-Bench and Chatbot Arena" (arXiv
2306.05685).

    right_in_both   mean of min(score, score of the same case swapped)
    same_in_both    share of cases with equal scores
    order_gap       mean of score - score swapped: above 0 for a judge that favours the order of the first question

Input: per case the scores of its verdicts and `against`, those of the swapped case, sample by sample. A judge that
always says "first" has right_in_both 0 on cases with one better answer, whatever its accuracy in one order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from training.metrics import Metric, interval, scored_samples


def both_orders(
    scored: Sequence[Sequence[float]],
    against: Sequence[Sequence[float]],
    *,
    level: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> dict[str, Metric]:
    cases = []
    for s, t in scored_samples(scored, against):
        known = np.array([(a, b) for a, b in zip(s, t, strict=True) if not math.isnan(b)], dtype=np.float64)
        if len(known):
            cases.append(known)
    more = {"level": level, "resamples": resamples, "seed": seed}
    return {
        "right_in_both": interval([c.min(axis=1).mean() for c in cases], shares=True, **more),
        "same_in_both": interval([(c[:, 0] == c[:, 1]).mean() for c in cases], shares=True, **more),
        "order_gap": interval([(c[:, 0] - c[:, 1]).mean() for c in cases], **more),
    }
