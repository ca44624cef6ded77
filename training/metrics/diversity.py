"""Diversity of the samples of one problem, and across problems.

    distinct@n       different n-grams / n-grams of all samples of a problem; Li et al. 2016 (arXiv 1510.03055)
    ead              different n-grams / expected number if C were drawn from V at random,
                     N / (V (1 - ((V - 1) / V)^C)), mean over n = 1 ... `orders`; Liu et al. 2022 (arXiv 2202.13587), as
                     used by Kirk et al. 2023 (arXiv 2310.06452)
    answer_entropy   -sum_a p_a ln p_a over the answers of a problem, in nats
    across           ead of one sample of every problem (the first): falls if a model gives the same answer to every
                     question; its n is the number of problems, its interval resamples them

Input: per problem scores, texts (what the model wrote) and answers. V is the number of different n-grams in all samples
of the model, at least 2. Words are split at spaces and punctuation. `distinct` falls with the number of samples and
their length; `ead` corrects for that.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from synth.verify.exact import normalise
from training.metrics import Metric, counts, interval, scored_samples

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
    problems = scored_samples(scored, texts, answers)
    words = [[_WORD.findall(t[:4000]) for t in written] for _, written, _ in problems]
    more = {"level": level, "resamples": resamples, "seed": seed}
    cut = {
        n: [[grams(w, n) for w in text_words] for text_words in words] for n in {*ns, *range(1, orders + 1)}
    }  # order -> problem -> sample -> n-grams
    size = {n: max(2, len({g for text_bag in bags for bag in text_bag for g in bag})) for n, bags in cut.items()}
    out = {}
    for n in ns:
        out[f"distinct@{n}"] = interval(
            [_share([g for bag in text_grams for g in bag]) for text_grams in cut[n]], **more
        )
    bags = [{n: [g for bag in cut[n][i] for g in bag] for n in range(1, orders + 1)} for i in range(len(words))]
    out["ead"] = interval([ead(bag, size) for bag in bags], **more)
    out["answer_entropy"] = interval([entropy(given) for _, _, given in problems], **more)
    first = [{n: cut[n][i][0] for n in range(1, orders + 1)} for i in range(len(words))]
    out["across"] = _across(first, size, level, seed)
    return out


def grams(words: Sequence[str], n: int) -> list[tuple[str, ...]]:
    return [tuple(words[i : i + n]) for i in range(len(words) - n + 1)]


def _share(bag: Sequence[tuple[str, ...]]) -> float:
    return len(set(bag)) / len(bag) if bag else 0.0


def ead(bags: Mapping[int, Sequence[tuple[str, ...]]], size: Mapping[int, int]) -> float:
    """Expectation-adjusted share of different n-grams (order -> n-grams), mean over the orders that have any; 0 where
    none has."""
    values = [len(set(bag)) / (size[n] * (1 - ((size[n] - 1) / size[n]) ** len(bag))) for n, bag in bags.items() if bag]
    return float(np.mean(values)) if values else 0.0


def entropy(answers: Sequence[str]) -> float:
    """Entropy in nats of the answers' frequencies; samples without an answer count as one more kind of answer."""
    p = np.array(list(Counter(normalise(a[:200]) for a in answers).values()), dtype=np.float64)
    p /= p.sum()
    return float(-(p * np.log(p)).sum()) + 0.0


def _across(
    first: Sequence[Mapping[int, Sequence]], size: Mapping[int, int], level: float, seed: int, resamples: int = 100
) -> Metric:
    """ead of one sample of every problem. A resample counts an n-gram as often as its problem was drawn."""
    if not first:
        return interval([])
    drawn = np.concatenate([np.ones((1, len(first))), counts(len(first), resamples, seed)])
    values, present = np.zeros(len(drawn)), np.zeros(len(drawn))
    for n, v in size.items():
        known: dict[tuple[str, ...], int] = {}
        entries = [(i, known.setdefault(g, len(known))) for i, bags in enumerate(first) for g in bags.get(n, ())]
        if not entries:
            continue
        owner, ids = np.array(entries).T
        for r, weights in enumerate(drawn):
            times = weights[owner]
            total = times.sum()
            if total:
                values[r] += np.count_nonzero(np.bincount(ids, times)) / (v * (1 - ((v - 1) / v) ** total))
                present[r] += 1
    values /= np.maximum(present, 1)
    low, high = np.quantile(values[1:], [(1 - level) / 2, (1 + level) / 2])
    return {
        "mean": float(values[0]),
        "low": float(min(low, values[0])),
        "high": float(max(high, values[0])),
        "n": len(first),
    }
