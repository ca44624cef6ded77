"""Exact and near duplicates, and contradictions: the same two answers to the same prompt with the sides swapped.

Two pairs are near duplicates where the Jaccard similarities of the word n-grams of the prompts, of the chosen and of the
rejected sides are *all* at least `threshold`, and the numbers in them are the same (a number means more than its share of
the words shows). Which pairs are compared is found by the prefix filter (Chaudhuri, Ganti and Kaushik 2006), which loses
nothing: two texts of similarity t share a gram among the |A| - ceil(t |A|) + 1 rarest of each. Their prompts must meet so,
and a side of each. A gram is a 64-bit hash of its words; rarest means the fewest in its cell of a table of counts, so
that memory grows with the texts alone and no faster.

The first of a group is kept. Of a contradiction no side can be told right, so both go.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Sequence

import numpy as np

from synth.preferences.cleaners._grams import gram_sets, jaccard, mix
from synth.types import Decision, PreferencePair

_TAG = re.compile(r"</?\w+>")
_NUMBER = re.compile(r"\d+")
_MARK, _BLANK = re.compile(r"[^\w\s\x00-\x7f]"), re.compile(r"[^\S\x00-\x7f]")
_BLOCK = 1000  # pairs whose grams are worked on at once
_OFTEN = (1 << 20) - 1  # grams that are more frequent rank alike
_MANY = 10_000  # pairs that a filter lets through: beyond, reading them all costs more than it saves
Sides = tuple[np.ndarray, np.ndarray, np.ndarray]


def duplicates(pairs: Sequence[PreferencePair], *, threshold: float = 0.7, ngram: int = 2) -> list[Decision]:
    """Decision "remove" (exact_duplicate, near_duplicate or contradiction, with the id of the other pair) or "keep";
    score = similarity.

    Raises ValueError where a knob is out of range.
    """
    if not 0 < threshold <= 1 or ngram < 1:
        raise ValueError(
            f"duplicates: threshold = {threshold}, ngram = {ngram}: they must lie in (0, 1], and be at least 1"
        )
    sets = gram_sets((text for pair in pairs for text in _texts(pair)), n=ngram, written=_written)
    sides: list[Sides] = list(zip(sets[0::3], sets[1::3], sets[2::3], strict=True))
    numbers = [hash(_numbers(pair)) for pair in pairs]
    answers = _Index([s[1:] for s in sides], numbers, threshold)
    prompts = _Index([s[:1] for s in sides], numbers, threshold)
    decisions: list[Decision | None] = [None] * len(pairs)
    for i in range(len(pairs)):
        for j in _meeting(answers, prompts, i):
            if numbers[i] != numbers[j]:
                continue
            same, crossed = _similarity(sides[i], sides[j], threshold)
            if max(same, crossed) < threshold:
                continue
            if crossed > same:
                decisions[i], decisions[j] = (_remove(f"contradiction: {pairs[k].id}", crossed) for k in (j, i))
            else:
                kind = "exact" if _plain(pairs[i]) == _plain(pairs[j]) else "near"
                decisions[i] = _remove(f"{kind}_duplicate: {pairs[j].id}", same)
                break
        else:  # what is no copy may have copies
            answers.add(i)
            prompts.add(i)
    return [d or Decision(step="duplicates", action="keep", reason="unique", score=0.0) for d in decisions]


def _remove(reason: str, score: float) -> Decision:
    return Decision(step="duplicates", action="remove", reason=reason, score=score)


def _texts(pair: PreferencePair) -> tuple[str, str, str]:
    return "\n".join(f"{m.role}: {m.content}" for m in pair.prompt), pair.chosen, pair.rejected


def _plain(pair: PreferencePair) -> list[list[str]]:
    """The words of its texts: Unicode NFKC, case folded, cut at spaces."""
    return [unicodedata.normalize("NFKC", text).casefold().split() for text in _texts(pair)]


def _written(text: str) -> bytes:
    """The bytes of a text, whose runs of letters and marks are its words: Unicode NFKC, case folded, without tags."""
    out = text.lower() if text.isascii() else unicodedata.normalize("NFKC", text).casefold()
    if "<" in out:
        out = _TAG.sub(" ", out)
    if not out.isascii():
        out = _BLANK.sub(" ", _MARK.sub(r" \g<0> ", out))
    return out.encode("utf-8", "surrogatepass")


def _numbers(pair: PreferencePair) -> tuple:
    prompt, chosen, rejected = (tuple(sorted(_NUMBER.findall(text))) for text in _texts(pair))
    return prompt, *sorted((chosen, rejected))


def _similarity(a: Sides, b: Sides, threshold: float) -> tuple[float, float]:
    """(least similarity side by side, least similarity with the sides of b swapped); 0 where the prompts are below the
    threshold already."""
    prompt = jaccard(a[0], b[0])
    if prompt < threshold:
        return 0.0, 0.0
    return min(prompt, jaccard(a[1], b[1]), jaccard(a[2], b[2])), min(prompt, jaccard(a[1], b[2]), jaccard(a[2], b[1]))


class _Index:
    """Which of the pairs added share a rare gram of one of their `texts`, and the numbers."""

    def __init__(self, texts: Sequence[Sequence[np.ndarray]], numbers: Sequence[int], threshold: float) -> None:
        total = sum(len(side) for sides in texts for side in sides)
        shift = np.uint64(64 - min(24, max(10, total.bit_length())))
        often = np.zeros(1 << (64 - int(shift)), np.int32)
        for k in range(0, len(texts), _BLOCK):
            np.add.at(often, np.concatenate([side for sides in texts[k : k + _BLOCK] for side in sides]) >> shift, 1)
        keys = [np.zeros(0, np.uint64)]
        owners = [np.zeros(0, np.int32)]
        for k in range(0, len(texts), _BLOCK):
            mine = texts[k : k + _BLOCK]
            every = np.concatenate([side for sides in mine for side in sides])
            count = np.minimum(often[every >> shift], _OFTEN).astype(np.uint64)
            ranked = (count << np.uint64(44)) | (every >> np.uint64(20))  # the rarest first; names the gram besides
            at, rare, own = 0, [], []
            for i, sides in enumerate(mine, start=k):
                for side in sides:
                    part = ranked[at : at + len(side)]
                    part.sort()
                    least = len(side) - math.ceil(threshold * len(side) - 1e-9) + 1
                    rare.append(part[:least])
                    own.append((i, min(least, len(side))))
                    at += len(side)
            who, many = np.array(own).T
            owner = np.repeat(who, many)
            number = np.array([x % 2**64 for x in numbers[k : k + _BLOCK]], np.uint64)
            keys.append(mix(np.concatenate(rare) ^ number[owner - k]))
            owners.append(owner.astype(np.int32))
        key, owner = np.concatenate(keys), np.concatenate(owners)
        order = np.argsort(key, kind="stable")
        key, owner = key[order], owner[order]
        fresh = np.ones(len(key), bool)  # a key, each pair that has it counted once
        fresh[1:] = (key[1:] != key[:-1]) | (owner[1:] != owner[:-1])
        key, owner = key[fresh], owner[fresh]
        first = np.ones(len(key), bool)
        first[1:] = key[1:] != key[:-1]
        group = np.cumsum(first) - 1
        size = np.bincount(group) if len(key) else np.zeros(0, int)
        shared = np.cumsum(size > 1) - 1  # what one pair has alone leads nowhere
        led = size[group] > 1 if len(key) else np.zeros(0, bool)
        place, owner = shared[group[led]], owner[led]
        by_owner = np.argsort(owner, kind="stable")
        ends = np.cumsum(np.bincount(owner, minlength=len(texts)))
        self.keys = [part.tolist() for part in np.split(place[by_owner], ends[:-1])] if len(texts) else []
        self.rows: list[list[int]] = [[] for _ in range(int((size > 1).sum()))]

    def add(self, i: int) -> None:
        for key in self.keys[i]:
            self.rows[key].append(i)

    def count(self, i: int) -> int:
        return sum(len(self.rows[key]) for key in self.keys[i])

    def of(self, i: int) -> set[int]:
        return {j for key in self.keys[i] for j in self.rows[key]}


def _meeting(a: _Index, b: _Index, i: int) -> list[int]:
    """The pairs added before i that meet it in both indexes, in order; where one has too many, in the other alone."""
    few, many = sorted((a, b), key=lambda index: index.count(i))
    found = few.of(i)
    if found and many.count(i) <= max(_MANY, 10 * few.count(i)):
        found &= many.of(i)
    return sorted(found)
