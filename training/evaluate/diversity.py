"""Diversity of the samples of one problem, and across problems.

    distinct@n       different n-grams / n-grams of all samples of a problem                  Li et al. 2016 (arXiv 1510.03055)
    ead              different n-grams / expected number if C were drawn from V at random,    Liu et al. 2022 (arXiv 2202.13587); as used by
                     N / (V (1 - ((V - 1) / V)^C)), mean over n = 1 ... `orders`              Kirk et al. 2023 (arXiv 2310.06452)
    answer_entropy   -sum_a p_a ln p_a over the answers of a problem, in nats
    across           ead of one sample of every problem (the first): falls when a model says the same whatever it is asked; its n is the
                     number of problems, its interval redraws them

Input: per problem scores, texts (what the model wrote) and answers. V is the number of different n-grams in all samples of the model, at
least 2. Words are split at spaces and punctuation. `distinct` falls with the number of samples and their length; `ead` corrects for that.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

import numpy as np

from synth.verify.exact import normalise
from training.evaluate import Metric, counts, interval, scored_samples

_WORD = re.compile(r"\w+|[^\w\s]")


def diversity(
    scored: Sequence[Sequence[float]],
    texts: Sequence[Sequence[str]],
    answers: Sequence[Sequence[str]],
    *,
    ns: Sequence[int] = (1, 2),
    orders: int = 3,
    level: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> dict[str, Metric]:
    problems = [([_WORD.findall(t[:4000]) for t in said], given) for _, said, given in scored_samples(scored, texts, answers)]
    more = {"level": level, "resamples": resamples, "seed": seed}
    size = {n: max(2, len({g for said, _ in problems for words in said for g in grams(words, n)})) for n in {*ns, *range(1, orders + 1)}}
    out = {}
    for n in ns:
        bags = [[g for words in said for g in grams(words, n)] for said, _ in problems]
        out[f"distinct@{n}"] = interval([len(set(b)) / len(b) if b else 0.0 for b in bags], **more)
    out["ead"] = interval([ead(said, orders, size) for said, _ in problems], **more)
    out["answer_entropy"] = interval([entropy(given) for _, given in problems], **more)
    out["across"] = _across([said[0] for said, _ in problems], orders, size, level, seed)
    return out


def grams(words: Sequence[str], n: int) -> list[tuple[str, ...]]:
    return [tuple(words[i : i + n]) for i in range(len(words) - n + 1)]


def ead(samples: Sequence[Sequence[str]], orders: int, size: dict[int, int]) -> float:
    """Expectation-adjusted share of different n-grams, mean over n = 1 ... orders that the samples are long enough for; 0 where none is."""
    values = []
    for n in range(1, orders + 1):
        found = [g for words in samples for g in grams(words, n)]
        if found:
            v = size[n]
            values.append(len(set(found)) / (v * (1 - ((v - 1) / v) ** len(found))))
    return float(np.mean(values)) if values else 0.0


def entropy(answers: Sequence[str]) -> float:
    """Entropy in nats of the answers' frequencies; samples without an answer count as one answer of their own kind."""
    p = np.array(list(Counter(normalise(a[:200]) for a in answers).values()), dtype=np.float64)
    p /= p.sum()
    return float(-(p * np.log(p)).sum()) + 0.0


def _across(first: Sequence[Sequence[str]], orders: int, size: dict[int, int], level: float, seed: int, resamples: int = 100) -> Metric:
    """ead of one sample of every problem. A redraw counts an n-gram as often as its problem was drawn."""
    if not first:
        return interval([])
    drawn = np.concatenate([np.ones((1, len(first))), counts(len(first), resamples, seed)])
    values, present = np.zeros(len(drawn)), np.zeros(len(drawn))
    for n in range(1, orders + 1):
        known: dict[tuple[str, ...], int] = {}
        owner, ids = [], []
        for i, words in enumerate(first):
            for g in grams(words, n):
                owner.append(i)
                ids.append(known.setdefault(g, len(known)))
        if not ids:
            continue
        v = size[n]
        for r, weights in enumerate(drawn):
            times = weights[owner]
            total = times.sum()
            if total:
                values[r] += (np.bincount(ids, times) > 0).sum() / (v * (1 - ((v - 1) / v) ** total))
                present[r] += 1
    values /= np.maximum(present, 1)
    low, high = np.quantile(values[1:], [(1 - level) / 2, (1 + level) / 2])
    return {"mean": float(values[0]), "low": float(min(low, values[0])), "high": float(max(high, values[0])), "n": len(first)}
