"""A theorem counts only where all of its variants are judged right.

Zhang et al. 2025, "DeepTheorem: Advancing LLM Reasoning for Theorem Proving Through Natural Language and Reinforcement
Learning" (arXiv 2505.23754), its outcome metric.

    mean over theorems of 1[every scored variant has score 1]

Input: per theorem the scores of its variants, NaN left out. Guessing true or false at random gives 2^-m with m
variants, where accuracy would give 1/2. Returns {"all_variants": {"mean", "low", "high", "n"}}.
"""

from __future__ import annotations

from collections.abc import Sequence

from training.metrics import Metric, interval, scorable


def all_variants(
    scored: Sequence[Sequence[float]], *, level: float = 0.95, resamples: int = 2000, seed: int = 0
) -> dict[str, Metric]:
    values = [float((x >= 1.0).all()) for x in map(scorable, scored) if len(x)]
    return {"all_variants": interval(values, level=level, resamples=resamples, seed=seed, shares=True)}
