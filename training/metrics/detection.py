"""The quality of tests: the share of wrong programs that they reject, and the share of problems for which they reject
every wrong program.

Ma et al. 2025, "Rethinking Verification for LLM Code Generation: From Generation to Testing" (SAGA, arXiv 2507.06920).

    detection_rate = mean over problems of (mean over its wrong programs of 1[some test fails])
    verifier_accuracy = mean over problems of 1[every wrong program fails some test]

Input: per problem, 1 for each wrong program that the tests reject and 0 for each that they let pass; NaN left out. The
second is at most the first; it matters because a single accepted wrong program would be rewarded. Returns both as
{"mean", "low", "high", "n"}.
"""

from __future__ import annotations

from collections.abc import Sequence

from training.metrics import Metric, interval, scorable


def detection(
    scored: Sequence[Sequence[float]], *, level: float = 0.95, resamples: int = 2000, seed: int = 0
) -> dict[str, Metric]:
    rejected = [x for x in map(scorable, scored) if len(x)]
    settings = {"level": level, "resamples": resamples, "seed": seed, "shares": True}
    return {
        "detection_rate": interval([float(x.mean()) for x in rejected], **settings),
        "verifier_accuracy": interval([float((x >= 1.0).all()) for x in rejected], **settings),
    }
