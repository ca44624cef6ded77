"""Exact match and token F1 of answers against the reference.

Rajpurkar et al. 2016, "SQuAD: 100,000+ Questions for Machine Comprehension of Text" (arXiv 1606.05250).

    exact_match = 1 where the normal forms are equal        f1 = 2 P R / (P + R) over the words of the normal forms, as
    multisets

Input: per problem its scores, answers and references. The normal form is that of the verifier `exact`. Samples without
an answer count 0. These metrics compare words only; the score is the verdict, which knows aliases, numbers and
equivalent forms.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from synth.verify.exact import normalise
from training.metrics import Metric, interval, scored_samples


def answer_overlap(
    scored: Sequence[Sequence[float]],
    answers: Sequence[Sequence[str]],
    references: Sequence[Sequence[str]],
    *,
    level: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> dict[str, Metric]:
    matches, f1s = [], []
    for _, given, wanted in scored_samples(scored, answers, references):
        pairs = [(normalise(a[:1000]), normalise(r[:1000])) for a, r in zip(given, wanted, strict=True)]
        matches.append(float(np.mean([a == r and bool(a) for a, r in pairs])))
        f1s.append(float(np.mean([f1(a.split(), r.split()) for a, r in pairs])))
    more = {"level": level, "resamples": resamples, "seed": seed, "shares": True}
    return {"exact_match": interval(matches, **more), "f1": interval(f1s, **more)}


def f1(answer: Sequence[str], wanted: Sequence[str]) -> float:
    """Harmonic mean of precision and recall of the words, each counted as often as it occurs; 0 without a word in
    common."""
    common = sum((Counter(answer) & Counter(wanted)).values())
    return 2 * common / (len(answer) + len(wanted)) if common else 0.0
