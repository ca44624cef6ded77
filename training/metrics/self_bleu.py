"""Self-BLEU: how far each sample of a problem repeats the others. 1 = all samples are equal.

Zhu et al. 2018, "Texygen: A Benchmarking Platform for Text Generation Models" (arXiv 1802.01886); BLEU: Papineni et al.
2002.

    BLEU of sample i with the others as references = BP * exp(mean over n = 1 ... orders of ln p_n),   BP = min(1, exp(1
    - r / c))

p_n: clipped share of the sample's n-grams that occur in a reference, with 1 added to numerator and denominator from n =
2 on (Lin and Och 2004), so that one missing order does not make it 0; r: length of the reference nearest in length, c:
of the sample. Orders longer than the sample are left out. Input: per problem scores and texts. The cost is quadratic in
the samples: at most `most` of each problem are compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import exp, log

import numpy as np

from training.metrics import Metric, interval, scored_samples
from training.metrics.diversity import _WORD, grams


def self_bleu(
    scored: Sequence[Sequence[float]],
    texts: Sequence[Sequence[str]],
    *,
    orders: int = 4,
    most: int = 8,
    level: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> dict[str, Metric]:
    values = []
    for _, text in scored_samples(scored, texts):
        words = [_WORD.findall(t[:4000]) for t in text[:most]]
        if len(words) > 1:
            values.append(float(np.mean([bleu(w, words[:i] + words[i + 1 :], orders) for i, w in enumerate(words)])))
    return {"self_bleu": interval(values, level=level, resamples=resamples, seed=seed, shares=True)}


def bleu(words: Sequence[str], references: Sequence[Sequence[str]], orders: int) -> float:
    """Smoothed BLEU of one text; 1 for two empty ones, 0 without a word in common."""
    if not words:
        return float(any(not r for r in references))
    logs = []
    for n in range(1, min(orders, len(words)) + 1):
        mine = Counter(grams(words, n))
        most: Counter = Counter()
        for r in references:
            most |= Counter(grams(r, n))
        hits, total = sum((mine & most).values()), sum(mine.values())
        if n == 1 and not hits:
            return 0.0
        logs.append(log(hits / total if n == 1 else (hits + 1) / (total + 1)))
    nearest = min((len(r) for r in references), key=lambda r: (abs(r - len(words)), r))
    return min(1.0, exp(1 - nearest / len(words))) * exp(sum(logs) / len(logs))
