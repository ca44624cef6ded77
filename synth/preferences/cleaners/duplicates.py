"""Exact and near duplicates, and contradictions: the same two answers to the same prompt with the sides swapped.

Candidates come from MinHash signatures (Broder 1997) over word n-grams, cut into bands (locality-sensitive hashing),
and each candidate is then compared in truth: two pairs are near duplicates where the Jaccard similarities of the
prompts, of the chosen and of the rejected sides are *all* at least `threshold`, and the numbers in them are the same (a
number means more than its share of the words shows). Where one prompt is asked thousands of times, most candidates fall
before that: two answers of similarity t share a gram among the
|A| - ceil(t |A|) + 1 rarest of each (prefix filter, Chaudhuri, Ganti and Kaushik 2006), which loses nothing.

The first of a group is kept. Of a contradiction no side can be told right, so both go.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

import numpy as np

from synth.types import Decision, PreferencePair, seed_for

_TOKEN = re.compile(r"\w+|[^\w\s]")
_TAG = re.compile(r"</?\w+>")
_PRIME = (1 << 31) - 1  # products of two residues fit in 63 bits
_ROWS = 4  # of a band: pairs of similarity 0.7 share one of 16 bands with probability 0.99
Sides = tuple[frozenset, frozenset, frozenset]


def duplicates(
    pairs: Sequence[PreferencePair], *, threshold: float = 0.7, ngram: int = 2, permutations: int = 64
) -> list[Decision]:
    """Decision "remove" (exact_duplicate, near_duplicate or contradiction, with the id of the other pair) or "keep";
    score = similarity.

    Raises ValueError where a knob is out of range.
    """
    if not 0 < threshold <= 1 or ngram < 1 or permutations < _ROWS or permutations % _ROWS:
        given = f"threshold = {threshold}, ngram = {ngram}, permutations = {permutations}"
        raise ValueError(f"duplicates: {given}: they must lie in (0, 1], be at least 1, be a multiple of {_ROWS}")
    shingles = [_sides(pair, ngram) for pair in pairs]
    numbers = [_numbers(pair) for pair in pairs]
    exact = [tuple(_plain(text) for text in _texts(pair)) for pair in pairs]
    decisions: list[Decision | None] = [None] * len(pairs)
    copies: set[int] = set()
    for i, (earlier, alike) in enumerate(
        zip(_candidates(shingles, permutations), _alike(shingles, threshold), strict=True)
    ):
        for j in (j for j in earlier if j in alike and j not in copies and numbers[i] == numbers[j]):
            same, crossed = _similarity(shingles[i], shingles[j])
            if max(same, crossed) < threshold:
                continue
            if crossed > same:
                decisions[i] = Decision(
                    step="duplicates", action="remove", reason=f"contradiction: {pairs[j].id}", score=crossed
                )
                decisions[j] = Decision(
                    step="duplicates", action="remove", reason=f"contradiction: {pairs[i].id}", score=crossed
                )
            else:
                kind = "exact" if exact[i] == exact[j] else "near"
                decisions[i] = Decision(
                    step="duplicates", action="remove", reason=f"{kind}_duplicate: {pairs[j].id}", score=same
                )
                copies.add(i)
                break
    return [d or Decision(step="duplicates", action="keep", reason="unique", score=0.0) for d in decisions]


def _texts(pair: PreferencePair) -> tuple[str, str, str]:
    return "\n".join(f"{m.role}: {m.content}" for m in pair.prompt), pair.chosen, pair.rejected


def _plain(text: str) -> str:
    """Unicode NFKC, case folded, spaces collapsed."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def _sides(pair: PreferencePair, n: int) -> Sides:
    """The word n-grams of prompt, chosen and rejected, tags left out; a text shorter than n words is one gram."""
    out = []
    for text in _texts(pair):
        tokens = _TOKEN.findall(_TAG.sub(" ", _plain(text)))
        out.append(frozenset(tuple(tokens[i : i + n]) for i in range(max(1, len(tokens) - n + 1))))
    return out[0], out[1], out[2]


def _numbers(pair: PreferencePair) -> tuple:
    prompt, chosen, rejected = (tuple(sorted(re.findall(r"\d+", text))) for text in _texts(pair))
    return prompt, *sorted((chosen, rejected))


def _jaccard(a: frozenset, b: frozenset) -> float:
    return len(a & b) / len(a | b)


def _similarity(a: Sides, b: Sides) -> tuple[float, float]:
    """(least similarity side by side, least similarity with the sides of b swapped)."""
    prompt = _jaccard(a[0], b[0])
    return min(prompt, _jaccard(a[1], b[1]), _jaccard(a[2], b[2])), min(
        prompt, _jaccard(a[1], b[2]), _jaccard(a[2], b[1])
    )


def _alike(shingles: Sequence[Sides], threshold: float) -> Iterator[set[int]]:
    """For each pair, the earlier ones with a side that can be as similar to its chosen side as `threshold`."""
    often = Counter(g for _, chosen, rejected in shingles for side in (chosen, rejected) for g in side)
    postings: dict[tuple, list[int]] = defaultdict(list)
    for i, (_, *sides) in enumerate(shingles):
        rare = [
            sorted(s, key=lambda g: (often[g], g))[: len(s) - math.ceil(threshold * len(s) - 1e-9) + 1] for s in sides
        ]
        yield {j for g in rare[0] for j in postings[g]}
        for g in {*rare[0], *rare[1]}:
            postings[g].append(i)


def _candidates(shingles: Sequence[Sides], permutations: int) -> Iterator[list[int]]:
    """For each pair, the earlier ones that share a band of MinHash values. Answers are hashed alike, so that swapped
    sides meet."""
    known: dict = {}
    rng = np.random.default_rng(seed_for("duplicates", permutations))
    a, b = rng.integers(1, _PRIME, permutations)[:, None], rng.integers(0, _PRIME, permutations)[:, None]
    buckets: dict[tuple, list[int]] = defaultdict(list)
    for i, (prompt, chosen, rejected) in enumerate(shingles):
        grams = [("prompt", g) for g in prompt] + [("answer", g) for g in chosen | rejected]
        ids = np.array([known.setdefault(g, len(known) + 1) for g in sorted(grams)], dtype=np.int64)
        bands = ((a * ids + b) % _PRIME).min(axis=1).reshape(-1, _ROWS)
        keys = [(k, *map(int, band)) for k, band in enumerate(bands)]
        yield sorted({j for key in keys for j in buckets[key]})
        for key in keys:
            buckets[key].append(i)
