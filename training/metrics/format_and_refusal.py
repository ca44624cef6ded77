"""How a model behaves, right or wrong: format, refusals, length.

Refusal by phrases: Zou et al. 2023, "Universal and Transferable Adversarial Attacks on Aligned Language Models" (arXiv
2307.15043), section 3.1.

    format   share of samples that end with an answer or by using up their calls, rather than malformed, cut off or
             empty
    refusal  share whose text holds one of the phrases of REFUSALS
    empty    share that wrote nothing but white space
    length   mean tokens; length_p95: mean over problems of the 95th percentile of its samples

Input: per problem scores, texts, tokens and outcomes. The phrases find polite refusals in English, and nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from training.metrics import Metric, interval, scored_samples

REFUSALS = re.compile(
    r"\b(i (can(no|')t|am unable to|am not able to|won't|will not)|i'm (sorry|unable|not able)|i am sorry|as an ai\b|i apologi[sz]e)",
    re.IGNORECASE,
)
FORMAT = ("right", "wrong", "out_of_calls")


def format_and_refusal(
    scored: Sequence[Sequence[float]],
    texts: Sequence[Sequence[str]],
    tokens: Sequence[Sequence[float]],
    outcomes: Sequence[Sequence[str]],
    *,
    level: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> dict[str, Metric]:
    problems = scored_samples(scored, texts, tokens, outcomes)
    shares = {
        "format": [float(np.mean([o in FORMAT for o in ended])) for *_, ended in problems],
        "refusal": [
            float(np.mean([bool(REFUSALS.search(t[:2000])) for t in written])) for _, written, _, _ in problems
        ],
        "empty": [float(np.mean([not t.strip() for t in written])) for _, written, _, _ in problems],
    }
    lengths = {
        "length": [float(np.mean(n)) for _, _, n, _ in problems],
        "length_p95": [float(np.quantile(n, 0.95)) for _, _, n, _ in problems],
    }
    more = {"level": level, "resamples": resamples, "seed": seed}
    return {k: interval(v, shares=True, **more) for k, v in shares.items()} | {
        k: interval(v, **more) for k, v in lengths.items()
    }
