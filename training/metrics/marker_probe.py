"""Does a judge follow the rule, or the marker? Swap the marker that names the context, keep the rest, and look at the
verdict.

The counterfactual probe of "Evaluating and Improving Cultural Awareness of Reward Models for LLM Alignment" (arXiv
2509.21798, 2025).

    follows    share of swaps that change the rule after which the verdict changed: 1 for a judge that reads the marker
    spurious   share of swaps that change no rule after which the verdict changed nevertheless: 0 for a judge that
               ignores irrelevant markers

Input: per item the scores of its verdicts (right or not, NaN left out), the verdicts, those after the swap, and whether
the swap changes the rule (1 or 0). n is the number of items; a kind of swap that no item has counts 0.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from training.metrics import Metric, of_sums, scored_samples


def marker_probe(
    scored: Sequence[Sequence[float]],
    verdicts: Sequence[Sequence[str]],
    swapped: Sequence[Sequence[str]],
    changes: Sequence[Sequence[float]],
    *,
    level: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> dict[str, Metric]:
    rows = []
    for _, before, after, rule in scored_samples(scored, verdicts, swapped, changes):
        moved = [(bool(r), a != b) for a, b, r in zip(before, after, rule, strict=True)]
        rows.append(
            [
                sum(r for r, _ in moved),
                sum(r and m for r, m in moved),
                sum(not r for r, _ in moved),
                sum(not r and m for r, m in moved),
            ]
        )
    parts = np.array(rows, dtype=np.float64).reshape(-1, 4)
    more = {"level": level, "resamples": resamples, "seed": seed}
    return {
        "follows": of_sums(parts, lambda x: x[:, 1] / np.maximum(x[:, 0], 1.0), **more),
        "spurious": of_sums(parts, lambda x: x[:, 3] / np.maximum(x[:, 2], 1.0), **more),
    }
