"""How long a judge stays useful: trained on answers of one model generation and tested on another, on seen and unseen
questions.

"On the Shelf Life of Fine-Tuned LLM Judges: Future Proofing, Backward Compatibility, and Question Generalization"
(arXiv 2509.23542, 2025).

    acc(a, b)                    share of verdicts that are right, of judges trained on generation a, about answers of
                                 generation b
    future_proof                 acc(weak, strong) - acc(weak, weak)
    refresh                      acc(strong, strong) - acc(weak, strong)
    backward_compatible          acc(strong, weak) - acc(weak, weak)
    question_generalisation      acc(unseen questions) - acc(seen questions)

Input: per question the verdicts (1 right; count one only where both orders agree), `judges`: the generation each judge
was trained on, weak or strong; `sources`: the generation of the answers, with the word "unseen" where the question was
not trained on ("strong unseen").
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from training.metrics import Metric, of_sums, scored_samples

CELLS = (("weak", "weak"), ("weak", "strong"), ("strong", "weak"), ("strong", "strong"))


def shelf_life(
    scored: Sequence[Sequence[float]],
    judges: Sequence[Sequence[str]],
    sources: Sequence[Sequence[str]],
    *,
    level: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> dict[str, Metric]:
    rows = []
    for s, trained, source in scored_samples(scored, judges, sources):
        row = np.zeros((6, 2))  # number and sum of each cell, then of seen and unseen questions
        for value, a, b in zip(s, trained, source, strict=True):
            row[CELLS.index((a, b.split()[0]))] += (1, value)
            row[5 if "unseen" in b.split() else 4] += (1, value)
        rows.append(row.ravel())
    parts = np.array(rows).reshape(-1, 12)

    def gap(i: int, j: int) -> Metric:
        def statistic(sums: np.ndarray) -> np.ndarray:
            n = sums[:, 0::2]
            share = sums[:, 1::2] / np.maximum(n, 1.0)
            return np.where((n[:, i] > 0) & (n[:, j] > 0), share[:, i] - share[:, j], np.nan)

        return of_sums(parts, statistic, level=level, resamples=resamples, seed=seed)

    return {
        "future_proof": gap(1, 0),
        "refresh": gap(3, 1),
        "backward_compatible": gap(2, 0),
        "question_generalisation": gap(5, 4),
    }
