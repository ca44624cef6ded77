"""Metrics of a reward model: accuracy, calibration, length bias, and the gain of best-of-n. Arrays in, numbers out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from training.metrics.best_of_n import expected


def measures(
    chosen: np.ndarray, rejected: np.ndarray, n_chosen: np.ndarray, n_rejected: np.ndarray, *, bins: int = 10
) -> dict[str, float | None]:
    """Metrics from the rewards [P] and lengths [P] of the two sides of held-out pairs.

    accuracy             share of pairs in order; a tie counts half
    calibration_error    expected calibration error of p = sigmoid(chosen - rejected), pairs taken in either order,
                         equal bins of p
    length_correlation   rank correlation of reward and length over all answers (None where one of them is constant)
    longer_wins          share of pairs in which the longer side has the higher reward, among those that differ in
                         length (None if there are none)
    longer_is_chosen     the same for the labels: the accuracy of a judge that looks at length alone
    """
    gap, longer = chosen - rejected, n_chosen - n_rejected
    p = 1 / (1 + np.exp(-np.clip(np.concatenate([gap, -gap]), -50, 50)))
    right = np.repeat([1.0, 0.0], len(gap))
    where = np.minimum((p * bins).astype(int), bins - 1)
    error = sum(abs(p[where == b].sum() - right[where == b].sum()) for b in range(bins)) / max(len(p), 1)
    differ = longer != 0
    wins = np.where(gap == 0, 0.5, np.sign(gap) == np.sign(longer))
    return {
        "accuracy": float(np.where(gap == 0, 0.5, gap > 0).mean()),
        "calibration_error": float(error),
        "length_correlation": rank_correlation(
            np.concatenate([chosen, rejected]), np.concatenate([n_chosen, n_rejected])
        ),
        "longer_wins": float(wins[differ].mean()) if differ.any() else None,
        "longer_is_chosen": float((longer[differ] > 0).mean()) if differ.any() else None,
    }


def rank_correlation(a: np.ndarray, b: np.ndarray) -> float | None:
    """Spearman's; ties get their mean rank. None if one of the two is constant."""
    ranks = []
    for x in (a, b):
        _, inverse, count = np.unique(x, return_inverse=True, return_counts=True)
        if len(count) < 2:
            return None
        ranks.append((np.cumsum(count) - (count - 1) / 2)[inverse])
    return float(np.corrcoef(*ranks)[0, 1])


def best_of(proxy: Sequence[np.ndarray], gold: Sequence[np.ndarray], sizes: Sequence[int]) -> list[dict[str, float]]:
    """The over-optimisation curve of best-of-n: the value by `proxy` and by `gold` of the best of n answers by `proxy`.

    proxy, gold   per prompt, [N] rewards of N answers; an answer with NaN gold (no verdict) is left out
    sizes         the n; those above the number of answers of every prompt are skipped

    For each n the mean over all subsets of n of a prompt's N answers (training/metrics/best_of_n.py). kl = log n - (n
    - 1) / n nats bounds the KL of the choice from the policy (Gao et al. 2022, "Scaling Laws for Reward Model
    Overoptimization", arXiv 2210.10760). random: gold's mean for any n; most: the best by gold itself.
    """
    kept = [(p[~np.isnan(g)], g[~np.isnan(g)]) for p, g in zip(proxy, gold, strict=True)]
    out = []
    for n in sizes:
        rows = [(p, g) for p, g in kept if len(p) >= n]
        if not rows:
            continue
        chosen = np.array([[expected(p, p, n), expected(g, p, n), expected(g, g, n), g.mean()] for p, g in rows])
        means = chosen.mean(0)
        se = float(chosen[:, 1].std(ddof=1) / np.sqrt(len(rows))) if len(rows) > 1 else 0.0
        out.append(
            {
                "n": n,
                "kl": float(np.log(n) - (n - 1) / n),
                "proxy": float(means[0]),
                "gold": float(means[1]),
                "gold_se": se,
                "most": float(means[2]),
                "random": float(means[3]),
                "prompts": len(rows),
            }
        )
    return out


def over_optimised(curve: Sequence[Mapping[str, float]]) -> float:
    """How much of gold's peak is lost at the largest n: 0 if a larger n never hurt."""
    return float(max(c["gold"] for c in curve) - curve[-1]["gold"]) if curve else 0.0
