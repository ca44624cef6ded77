"""A mixture of families, given, or chosen by a quadratic model of the results of earlier mixtures.

"MoDoMoDo: Multi-Domain Data Mixtures for Multimodal LLM Reinforcement Learning", 2025 (arXiv 2505.24871).

    S(w) = b . w + w' A w  (A above the diagonal), fitted by ridge regression to `trials`;      the mixture is its best
    point on a lattice

`families` names the columns of `trials`: each trial is their weights and the held-out score of a run with them (all
single, all but one, uniform is a good start). Without trials: `weights`, or uniform. Returns n indices drawn with these
weights, uniformly within a family; families that are not named are not drawn, unless none is named. state["weights"]
shows the mixture. Assumes that the scores are given: it runs nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import combinations

import numpy as np

from synth.types import Problem

LATTICE = 20  # weights are multiples of 1 / 20


def mixture(
    problems: Sequence[Problem],
    state: dict,
    rng: np.random.Generator,
    n: int,
    *,
    families: tuple = (),
    weights: tuple = (),
    trials: tuple = (),
    ridge: float = 0.01,
) -> list[int]:
    if not problems:
        raise ValueError(
            "the curriculum was given no problem to choose from: check the split and the filters of the stage before"
        )
    sizes = Counter(p.family for p in problems)
    names = [f for f in families if f in sizes] or sorted(sizes)
    if (weights and len(weights) != len(families)) or any(len(t) != len(families) + 1 for t in trials):
        raise ValueError(
            f"mixture: {len(families)} families need as many weights, and trials of as many weights and a score"
        )
    chosen = (
        best_mixture(np.array(trials, dtype=np.float64), ridge) if trials else np.array(weights or (1.0,) * len(names))
    )
    shares = dict(zip(families or names, chosen, strict=False))
    state["weights"] = {f: float(shares.get(f, 0.0)) for f in names}
    p = np.array([max(state["weights"].get(q.family, 0.0), 0.0) / sizes[q.family] + 1e-9 for q in problems])
    return [int(i) for i in rng.choice(len(problems), size=n, replace=n > len(problems), p=p / p.sum())]


def best_mixture(trials: np.ndarray, ridge: float) -> np.ndarray:
    """trials [t, m + 1] -> weights [m]: the best point of the fitted surface on the lattice of the simplex."""
    w, score = trials[:, :-1], trials[:, -1]
    m = w.shape[1]
    x = _features(w)
    fitted = np.linalg.solve(x.T @ x + ridge * np.eye(x.shape[1]), x.T @ score)
    lattice = np.array(list(_simplex(m, LATTICE))) / LATTICE
    return lattice[int(np.argmax(_features(lattice) @ fitted))]


def _features(w: np.ndarray) -> np.ndarray:
    return np.concatenate([w, *(w[:, [i]] * w[:, [j]] for i, j in combinations(range(w.shape[1]), 2))], axis=1)


def _simplex(parts: int, total: int):
    if parts == 1:
        yield (total,)
        return
    for first in range(total + 1):
        for rest in _simplex(parts - 1, total - first):
            yield (first, *rest)
