"""majority@k: the score of the answer that most of k samples agree on.

Wang et al. 2022, "Self-Consistency Improves Chain of Thought Reasoning in Language Models" (arXiv 2203.11171).

    for a problem:   mean over subsets of k samples of (mean score of the answers with the most votes)

Input: per problem its sample scores and answers; answers are compared in normal form, samples without an answer have no
vote, and a subset without any vote scores 0. Ties share their scores: breaking them at random would give the same in
expectation. All subsets of k samples are enumerated if there are at most `draws`; else that many are drawn. A problem
with fewer than k scorable samples says nothing about k.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import combinations
from math import comb

import numpy as np

from synth.verify.exact import normalise
from training.metrics import Metric, interval, scored_samples


def majority_at_k(
    scored: Sequence[Sequence[float]],
    answers: Sequence[Sequence[str]],
    *,
    ks: Sequence[int] = (8,),
    draws: int = 64,
    level: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> dict[str, Metric]:
    problems = [(s, [normalise(a)[:200] for a in given]) for s, given in scored_samples(scored, answers)]
    out = {}
    for k in ks:
        values = [_one(s, given, k, draws, seed) for s, given in problems if len(s) >= k]
        if values or not problems:
            out[f"majority@{k}"] = interval(values, level=level, resamples=resamples, seed=seed, shares=True)
    return out


def _one(scores: Sequence[float], answers: Sequence[str], k: int, draws: int, seed: int) -> float:
    n = len(scores)
    if comb(n, k) <= draws:
        subsets = list(combinations(range(n), k))
    else:
        rng = np.random.default_rng(seed)
        subsets = [tuple(rng.choice(n, k, replace=False)) for _ in range(draws)]
    return float(np.mean([_vote(scores, answers, subset) for subset in subsets]))


def _vote(scores: Sequence[float], answers: Sequence[str], subset: Sequence[int]) -> float:
    votes = Counter(answers[i] for i in subset if answers[i])
    most = max(votes.values(), default=0)
    winners = {a for a, n in votes.items() if n == most}
    won = [[scores[i] for i in subset if answers[i] == a] for a in winners]
    return float(np.mean([np.mean(w) for w in won])) if won else 0.0
