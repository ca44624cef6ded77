"""Exact and near duplicates, and contradictions: the same two answers to the same prompt with the sides swapped.

Two pairs are near duplicates where the Jaccard similarities of the word n-grams of the prompts, of the chosen and of the
rejected sides are *all* at least `threshold`, and the numbers in them are the same (a number matters more than its
share of the words). Which pairs are compared is found by the prefix filter (`_prefix_filter.py`), which loses nothing. This must
hold for the prompts, and for one side of each pair. A gram is a 32-bit hash of its words; rarest means the fewest in its cell of
a table of counts, so that memory grows with the texts alone and no faster.

More than TOGETHER pairs are first parted by their prompts (`_prompts.py`), and compared some TOGETHER at a time: what is decided is the
same, and in memory are the texts of those, and of all pairs whose prompts hang together.

The first of a group is kept. In a contradiction neither pair can be known to be right, so both are removed.
"""

from __future__ import annotations

import re
import unicodedata
from array import array
from collections.abc import Iterator, Sequence
from functools import lru_cache, partial
from itertools import pairwise
from typing import Any

import numpy as np

from synth.preferences.cleaners._grams import frequencies, gram_sets, jaccard, mix, nth
from synth.preferences.cleaners._prefix_filter import keys, short
from synth.preferences.cleaners._prompts import CELLS, NUMBER, Prompts, classes
from synth.preferences.ledger import Verdicts, each, mapped, once, taken
from synth.types import Decision, PreferencePair

_TAG = re.compile(r"</?\w+>")
_MARK, _BLANK = re.compile(r"[^\w\s\x00-\x7f]"), re.compile(r"[^\S\x00-\x7f]")
TOGETHER, CHARACTERS = 10_000, 1 << 25  # pairs, and characters of theirs, that are compared at once
_BLOCK = 1 << 20  # grams that are worked on at once
_MORE = 10  # times as many pairs in the one index as in the other: reading them costs more than to compare the few


_UNIQUE = Decision(step="duplicates", action="keep", reason="unique", score=0.0)


def duplicates(pairs: Sequence[PreferencePair], *, threshold: float = 0.7, ngram: int = 2) -> Sequence[Decision]:
    """Decision "remove" (exact_duplicate, near_duplicate or contradiction, with the id of the other pair) or "keep";
    score = similarity.

    Raises ValueError where a knob is out of range.
    """
    if not 0 < threshold <= 1 or ngram < 1:
        raise ValueError(
            f"duplicates: threshold = {threshold}, ngram = {ngram}: they must lie in (0, 1], and be at least 1"
        )
    if len(pairs) <= TOGETHER:
        return Verdicts(d or _UNIQUE for d in _judged(list(pairs), threshold, ngram))
    copies: dict[int, Decision] = {}
    parts = ((f"copies-{k}", rows) for k, rows in enumerate(_comparable(pairs, threshold, ngram)))
    make = partial(_copies, threshold=threshold, ngram=ngram)
    for part in each(once(pairs), parts, make, mapped(pairs), load=lambda rows: (rows, taken(pairs, rows))):
        for i, reason, score in zip(part["at"].tolist(), part["reasons"], part["scores"].tolist(), strict=True):
            copies[i] = _remove(reason, score)
    return Verdicts(copies.get(i, _UNIQUE) for i in range(len(pairs)))


def _copies(part: tuple[np.ndarray, Sequence[PreferencePair]], threshold: float, ngram: int) -> dict[str, Any]:
    """part: rows, and their pairs. at [m]: those of rows that are copies; reasons, scores [m]."""
    rows, pairs = part
    judged = _judged(pairs, threshold, ngram)
    copies = [(i, d.reason, d.score) for i, d in zip(rows.tolist(), judged, strict=True) if d]
    at, scores = np.array([i for i, _, _ in copies], np.int64), np.array([s for _, _, s in copies], np.float64)
    return {"at": at, "reasons": [reason for _, reason, _ in copies], "scores": scores}


def _comparable(pairs: Sequence[PreferencePair], threshold: float, ngram: int) -> Iterator[np.ndarray]:
    """Rows, ascending, some TOGETHER of them: two that are copies are in one, and one that is no copy need be in none."""
    parted = once(pairs)("prompts", lambda: _parted(pairs, threshold, ngram))
    of, size = parted["of"], parted["size"]
    many = np.flatnonzero(np.bincount(of)[of] > 1)
    many = many[np.argsort(of[many], kind="stable")]  # classes as they come, rows ascend in each
    ends = np.append(np.flatnonzero(np.diff(of[many])) + 1, len(many))
    texts = np.cumsum(size[many].astype(np.int64))
    a = 0
    while a < len(many):
        most = min(a + TOGETHER, int(np.searchsorted(texts, (texts[a - 1] if a else 0) + CHARACTERS, side="right")))
        k = int(np.searchsorted(ends, most, side="right"))
        b = int(ends[k - 1]) if k and ends[k - 1] > a else int(ends[k])  # a class is one, however large
        yield np.sort(many[a:b])
        a = b


def _parted(pairs: Sequence[PreferencePair], threshold: float, ngram: int) -> dict[str, np.ndarray]:
    """of [pairs]: the class of each, by its prompt; size [pairs]: characters of its texts."""
    size = array("i")

    def prompts() -> Iterator[str]:
        for pair in pairs:
            text = _texts(pair)[0]
            size.append(len(text) + len(pair.chosen) + len(pair.rejected))
            yield text

    distinct = Prompts(prompts(), ngram, _written)
    of = classes(distinct, threshold)[distinct.of]
    return {"of": of, "size": np.array(size, np.int32)}


def _judged(pairs: Sequence[PreferencePair], threshold: float, ngram: int) -> list[Decision | None]:
    """Of each pair what is decided if it is a copy or contradicts another."""
    read = _Read(pairs, ngram)
    answers = _Index(read, read.sides[:, 1:], threshold)
    prompts = _Index(read, read.sides[:, :1], threshold)
    decisions: list[Decision | None] = [None] * len(pairs)
    for i, pair in enumerate(pairs):
        for j in _meeting(answers, prompts, i):
            if read.numbers[i] != read.numbers[j]:
                continue
            same, crossed = _similarity(answers, prompts, i, j, threshold)
            if max(same, crossed) < threshold:
                continue
            if crossed > same:
                decisions[i], decisions[j] = (_remove(f"contradiction: {pairs[k].id}", crossed) for k in (j, i))
            else:
                kind = "exact" if _plain(pair) == _plain(pairs[j]) else "near"
                decisions[i] = _remove(f"{kind}_duplicate: {pairs[j].id}", same)
                break
        else:  # what is no copy may have copies
            answers.add(i)
            prompts.add(i)
    return decisions


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


class _Read:
    """The distinct texts of n pairs, each read once: five pairs of one prompt have far fewer than fifteen.

    sides [n, 3] int64: the places of prompt, chosen and rejected among the texts; grams: the set of each text; numbers [n]:
    equal where the prompts and the sides, in either order, hold the same numbers.
    """

    def __init__(self, pairs: Sequence[PreferencePair], ngram: int) -> None:
        at: dict[str, int] = {}
        self.sides = np.array(
            [[at.setdefault(text, len(at)) for text in _texts(pair)] for pair in pairs], np.int64
        ).reshape(-1, 3)
        self.grams = gram_sets(at, n=ngram, written=_written)
        held: dict[tuple[str, ...], int] = {}
        of = [held.setdefault(tuple(sorted(NUMBER.findall(text))), len(held)) for text in at]
        together: dict[tuple[int, int, int], int] = {}
        triples = ((of[p], min(of[c], of[r]), max(of[c], of[r])) for p, c, r in self.sides.tolist())
        self.numbers = [together.setdefault(triple, len(together)) for triple in triples]


class _Index:
    """Which of the pairs added share one of their texts, or a rare gram of one, and the numbers.

    A text beside the numbers of its pair is an item. A gram that only one text has leads nowhere and is left out, so that
    what is kept is little where texts differ.
    """

    def __init__(self, read: _Read, texts: np.ndarray, threshold: float) -> None:
        """texts [n, k] int64: of each pair those that are looked at."""
        number = np.repeat(np.array(read.numbers, np.int64)[:, None], texts.shape[1], axis=1)
        many = max(read.numbers, default=0) + 1
        items, place = np.unique(texts * many + number, return_inverse=True)
        self.sides = [
            [int(x) for x in row] for row in place.reshape(texts.shape)
        ]  # pair -> the item of each of its texts
        self.items = [tuple(dict.fromkeys(row)) for row in self.sides]
        self.grams = [read.grams[t] for t in (items // many).tolist()]
        text, number = items // many, (items % many).astype(np.uint64)
        key, owner, rest = map(np.concatenate, zip(*_keys(read.grams, text, threshold), strict=True))
        key = mix(key ^ mix(number[owner]))
        order = np.lexsort((owner, key))
        key, owner, rest = key[order], owner[order], rest[order]
        group = np.cumsum(np.append(True, key[1:] != key[:-1])[: len(key)]) - 1
        size = np.bincount(group)
        shared = np.cumsum(size > 1) - 1
        led = size[group] > 1
        lead, owner = shared[group[led]].astype(np.int32), owner[led]
        first = short(rest[led], np.array([len(x) for x in self.grams])[owner], threshold)
        # item -> the keys that it shares with others, and those of them that are short
        self.leads = _by_item(lead, owner, len(items))
        self.short = _by_item(lead[first], owner[first], len(items))
        leads = self.leads  # not self: a cycle would outlive its pairs while the collector is off
        self.led = lru_cache(2)(lambda item: set(leads[item]))  # one pair is compared with many: its sets are kept
        many = int((size > 1).sum())
        self.rows: list[list[int]] = [[] for _ in range(many)]  # key -> items that were added
        self.short_rows: list[list[int]] = [[] for _ in range(many)]  # those for which it is short
        self.load, self.short_load = [0] * many, [0] * many  # key -> pairs that were
        self.pairs: list[list[int]] = [[] for _ in items]

    def alike(self, a: int, b: int) -> float:
        """The similarity of two items; 0 for those that share no key, whose similarity is below the threshold."""
        if a == b:
            return 1.0
        if self.led(a).isdisjoint(self.leads[b]):
            return 0.0
        return jaccard(self.grams[a], self.grams[b])

    def add(self, i: int) -> None:
        for item in self.items[i]:
            for leads, rows, load in (
                (self.leads, self.rows, self.load),
                (self.short, self.short_rows, self.short_load),
            ):
                for key in leads[item]:
                    load[key] += 1
                    if not self.pairs[item]:
                        rows[key].append(item)
            self.pairs[item].append(i)

    def count(self, i: int) -> int:
        return sum(
            len(self.pairs[item])
            + sum(self.short_load[key] for key in self.leads[item])
            + sum(self.load[key] for key in self.short[item])
            for item in self.items[i]
        )

    def of(self, i: int) -> set[int]:
        near = set(self.items[i])
        for item in self.items[i]:  # a key of two that are similar is short for the smaller one
            for key in self.leads[item]:
                near.update(self.short_rows[key])
            for key in self.short[item]:
                near.update(self.rows[key])
        return {j for item in near for j in self.pairs[item]}


def _by_item(lead: np.ndarray, owner: np.ndarray, n: int) -> list[Sequence[int]]:
    """[n] the leads of each owner."""
    of_item = array("i", lead[np.argsort(owner, kind="stable")].tobytes())
    ends = np.cumsum(np.bincount(owner, minlength=n)).tolist()
    return [of_item[a:b] for a, b in pairwise((0, *ends))]


def _keys(grams: Sequence[np.ndarray], text: np.ndarray, threshold: float) -> Iterator[tuple[np.ndarray, ...]]:
    """(key uint64, item int64, rest int64) of the prefix filter, of the text of each item. text [items] ascending."""
    named, first = np.unique(text, return_index=True)
    copies = np.diff(np.append(first, len(text)))
    total = sum(len(grams[t]) for t in named.tolist())
    often = frequencies(_parts(grams, named), total, CELLS)
    yield np.zeros(0, np.uint64), np.zeros(0, np.int64), np.zeros(0, np.int64)
    k = 0
    for part in _parts(grams, named):
        found = keys(part, often, threshold)
        of = k + found.owner
        each = copies[of]
        yield np.repeat(found.key, each), np.repeat(first[of], each) + nth(each), np.repeat(found.rest, each)
        k += len(part)


def _parts(grams: Sequence[np.ndarray], named: np.ndarray) -> Iterator[list[np.ndarray]]:
    """The sets of the texts `named`, in order, in lists of about _BLOCK grams."""
    part, size = [], 0
    for t in named.tolist():
        part.append(grams[t])
        size += len(grams[t])
        if size >= _BLOCK:
            yield part
            part, size = [], 0
    if part:
        yield part


def _similarity(answers: _Index, prompts: _Index, i: int, j: int, threshold: float) -> tuple[float, float]:
    """(least similarity of two pairs side by side, the same with the sides of j swapped), as far as they reach the
    threshold: else some number below it. The pairs hold the same numbers."""
    (c, r), (d, s) = answers.sides[i], answers.sides[j]
    same, crossed = _least(answers, (c, d), (r, s), threshold), _least(answers, (c, s), (r, d), threshold)
    if max(same, crossed) < threshold:
        return 0.0, 0.0
    prompt = prompts.alike(prompts.sides[i][0], prompts.sides[j][0])
    return min(prompt, same), min(prompt, crossed)


def _least(index: _Index, one: tuple[int, int], other: tuple[int, int], threshold: float) -> float:
    """The lesser similarity of two pairs of items; the second is not looked at where the first is below the threshold."""
    first = index.alike(*one)
    return first if first < threshold else min(first, index.alike(*other))


def _meeting(a: _Index, b: _Index, i: int) -> list[int]:
    """The pairs added before i that meet it in both indexes, in order; where one has many more, in the other alone."""
    few, many = sorted((a, b), key=lambda index: index.count(i))
    meeting = few.of(i)
    if meeting and many.count(i) <= _MORE * len(meeting):
        meeting &= many.of(i)
    return sorted(meeting)
