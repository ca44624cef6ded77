"""Word n-grams, MinHash and text hashes of many texts at once, in numpy, without a Python loop over words.

Words are runs of letters, digits, `_` and bytes above 127; every other byte that is no space is a word of its own.
Texts are lower-cased (ASCII alone; others by NFKC and case folding). A word's hash is a polynomial over its bytes
modulo 2^64 with a random value per byte, made independent of its place by the inverse power, and mixed (splitmix64); a
gram's hash mixes those of two neighbours. One-permutation MinHash (Li, Owen and Zhang 2012): the top six bits of a
gram's hash choose one of 64 bins, each bin keeps the least of the rest, and the share of equal bins of two texts
estimates the Jaccard similarity of their sets of grams; an empty bin borrows from the next one to its right
(Shrivastava and Li 2014).
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

BINS = 64
BLOCK = 1 << 18  # bytes worked on at once: the arrays of a block stay in the cache
EMPTY = np.uint32(0xFFFFFFFF)
_SPACE, _WORD, _MARK = 0, 1, 2
_HALF = np.uint64(32)

_random = np.random.default_rng(0x5EED)
_CLASS = np.full(256, _MARK, np.uint8)
_CLASS[[9, 10, 11, 12, 13, 28, 29, 30, 31, 32]] = _SPACE
for _b in (*range(48, 58), *range(65, 91), 95, *range(97, 123), *range(128, 256)):
    _CLASS[_b] = _WORD
_VALUE = _random.integers(1, 1 << 63, 256, dtype=np.uint64) | np.uint64(1)
_VALUE[_CLASS == _SPACE] = 0
_DIGIT = np.zeros(256, np.int32)
_DIGIT[48:58] = 1
_BASE = 0x9E3779B97F4A7C15  # odd, so it has an inverse modulo 2^64
_A, _B, _C = (np.uint64(x) for x in _random.integers(1, 1 << 63, 3, dtype=np.uint64) | np.uint64(1))


def _powers(base: int, n: int) -> np.ndarray:
    out = np.full(n, base % 2**64, np.uint64)
    out[0] = 1
    return np.multiply.accumulate(out)


@dataclass(frozen=True)
class Hashed:
    """Of n texts. bins [n, 64] uint32 raw minima (EMPTY where no gram fell); text [n] and numbers [n] uint64, hashes of
    the sequence of words and of the multiset of words with a digit; words [n] int64, their number."""

    bins: np.ndarray
    text: np.ndarray
    numbers: np.ndarray
    words: np.ndarray


def plain(text: str) -> bytes:
    return (
        text.lower().encode()
        if text.isascii()
        else unicodedata.normalize("NFKC", text).casefold().encode("utf-8", "replace")
    )


def hashed(texts: Sequence[str]) -> Hashed:
    """Everything at once, block by block."""
    n = len(texts)
    bins, text, numbers, words = (
        np.full((n, BINS), EMPTY),
        np.zeros(n, np.uint64),
        np.zeros(n, np.uint64),
        np.zeros(n, np.int64),
    )
    for first, last, raw, ends in _blocks(texts):
        word, owner, digits = _words(raw, ends)
        count = np.bincount(owner, minlength=last - first)
        words[first:last] = count
        if not len(word):
            continue
        begin = np.concatenate([[0], np.cumsum(count)[:-1]])
        place = np.arange(len(word)) - begin[owner]
        order = mix(word + (place.astype(np.uint64) + np.uint64(1)) * _C)
        text[first:last] = _sums(order, begin, count)
        numbers[first:last] = _sums(np.where(digits, mix(word ^ _C), np.uint64(0)), begin, count)
        gram, at = _grams(word, owner, count)
        here = np.full((last - first) * BINS, EMPTY)
        keys = at * BINS + (gram >> np.uint64(58)).astype(np.int64)
        np.minimum.at(here, keys, ((gram << np.uint64(6)) >> np.uint64(32)).astype(np.uint32))
        bins[first:last] = here.reshape(-1, BINS)
    return Hashed(bins=bins, text=text, numbers=numbers, words=words)


def gram_sets(texts: Iterable[str], *, n: int = 2, written: Callable[[str], bytes] = plain) -> list[np.ndarray]:
    """The sorted distinct hashes (uint32) of the word n-grams of each text; one shorter than n words is one gram. written:
    the bytes that the words are read from."""
    out: list[np.ndarray] = []
    for first, last, raw, ends in _blocks(texts, written):
        word, owner, _ = _words(raw, ends)
        count = np.bincount(owner, minlength=last - first)
        begin = np.cumsum(count) - count
        size = np.maximum(1, count - n + 1)
        end = np.cumsum(size)
        gram = np.empty(end[-1], np.uint32)
        if len(word) >= n:
            whole = np.full(len(word) - n + 1, np.uint64(n))
            for k in range(n):
                whole = whole * _A + word[k : len(whole) + k]
            inside = owner[n - 1 :] == owner[: len(whole)]
            at = np.flatnonzero(inside)
            gram[(end - size)[owner[at]] + at - begin[owner[at]]] = mix(whole[inside]) >> _HALF
        for short in np.flatnonzero(count < n):
            few = np.full(1, np.uint64(count[short]))
            for k in range(count[short]):
                few = few * _A + word[begin[short] + k]
            gram[end[short] - 1] = mix(few)[0] >> _HALF
        starts = (end - size).tolist()
        for a, b in zip(starts, end.tolist(), strict=True):
            gram[a:b].sort()
        distinct = np.ones(len(gram), bool)
        distinct[1:] = gram[1:] != gram[:-1]
        distinct[starts] = True
        sums = np.cumsum(distinct)
        gram, stops = gram[distinct], sums[end - 1].tolist()
        out += [gram[a:b] for a, b in zip([0, *stops[:-1]], stops, strict=True)]
    return out


def nth(many: np.ndarray) -> np.ndarray:
    """[sum of many] 0, 1, 2, ... of each group; many [groups]: how large it is."""
    return np.arange(many.sum()) - np.repeat(np.cumsum(many) - many, many)


def jaccard(a: np.ndarray, b: np.ndarray) -> float:
    """Of two sorted sets; two empty ones are the same."""
    every = np.concatenate((a, b))
    every.sort()
    both = int(np.count_nonzero(every[1:] == every[:-1]))
    return both / (len(every) - both) if len(every) else 1.0


def frequencies(parts: Iterable[Sequence[np.ndarray]], total: int, bits: int) -> np.ndarray:
    """[2 ** k] int32, k at most `bits`: how many of the sets in all parts hold a gram whose first k bits are these. total: their grams.

    Counted by sorting: `np.bincount` would make a table of 8 bytes a cell beside it."""
    k = min(bits, max(10, total.bit_length()))
    out = np.zeros(1 << k, np.int32)
    for part in parts:
        cells, times = np.unique(np.concatenate(part) >> np.uint32(32 - k), return_counts=True)
        out[cells] += times.astype(np.int32)
    return out


def densified(bins: np.ndarray) -> np.ndarray:
    """[n, 64] with every empty bin filled from the next full one to its right, marked by the distance; a text without
    grams stays empty."""
    out = bins.copy()
    rows = np.flatnonzero((bins == EMPTY).any(axis=1) & (bins != EMPTY).any(axis=1))
    part, source = out[rows], bins[rows]
    for distance in range(1, BINS):
        empty = part == EMPTY
        if not empty.any():
            break
        moved = np.roll(source, -distance, axis=1)
        fill = empty & (moved != EMPTY)
        part[fill] = (moved[fill].astype(np.uint64) * np.uint64(2654435761) + np.uint64(distance * 40503)).astype(
            np.uint32
        )
    out[rows] = part
    return out


def bands(bins: np.ndarray, *, rows: int = 4) -> np.ndarray:
    """[n, 64 / rows] uint64 keys: texts that agree in `rows` bins beside each other share a key of that column."""
    grouped = bins.reshape(len(bins), BINS // rows, rows).astype(np.uint64)
    key = np.zeros(grouped.shape[:2], np.uint64)
    for r in range(rows):
        key = mix(key * _A + grouped[:, :, r] + np.uint64(r + 1))
    return key


def _blocks(
    texts: Iterable[str], written: Callable[[str], bytes] = plain
) -> Iterator[tuple[int, int, np.ndarray, np.ndarray]]:
    """(first, last, bytes, end of each text in them), texts parted by a space, blocks of about BLOCK bytes."""
    first, parts, size = 0, [], 0

    def block() -> tuple[int, int, np.ndarray, np.ndarray]:
        raw = np.frombuffer(b" ".join([*parts, b""]), np.uint8)
        return first, first + len(parts), raw, np.cumsum([len(p) + 1 for p in parts])

    for text in texts:
        parts.append(written(text))
        size += len(parts[-1]) + 1
        if size >= BLOCK:
            yield block()
            first, parts, size = first + len(parts), [], 0
    if parts:
        yield block()


def _words(raw: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(hash uint64, text it stands in, whether it has a digit) of every word."""
    kind = _CLASS[raw]
    starts = kind == _MARK
    starts[0] |= kind[0] == _WORD
    starts[1:] |= (kind[1:] == _WORD) & (kind[:-1] != _WORD)
    at = np.flatnonzero(starts)
    power, inverse = _tables(len(raw) + 1)
    sums = np.zeros(len(raw) + 1, np.uint64)
    np.cumsum(_VALUE[raw] * power[: len(raw)], out=sums[1:])
    digits = np.zeros(len(raw) + 1, np.int32)
    np.cumsum(_DIGIT[raw], out=digits[1:])
    stop = np.append(at[1:], len(raw))
    word = mix((sums[stop] - sums[at]) * inverse[at])
    return word, np.searchsorted(ends, at, side="right"), digits[stop] > digits[at]


_cache: dict[str, np.ndarray] = {}


def _tables(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Powers of the base and of its inverse, grown as needed."""
    if len(_cache.get("power", ())) < n:
        size = max(n, 2 * BLOCK)
        _cache["power"], _cache["inverse"] = _powers(_BASE, size), _powers(pow(_BASE, -1, 2**64), size)
    return _cache["power"], _cache["inverse"]


def _grams(word: np.ndarray, owner: np.ndarray, count: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(hash, text) of every pair of neighbouring words; a text of one word is one gram."""
    inside = owner[1:] == owner[:-1]
    pair, at = mix(word[:-1] * _A + word[1:] * _B)[inside], owner[1:][inside]
    lone = count[owner] == 1
    return np.concatenate([pair, mix(word[lone] * _A)]), np.concatenate([at, owner[lone]])


def _sums(values: np.ndarray, begin: np.ndarray, count: np.ndarray) -> np.ndarray:
    """[texts] uint64 wrapped sums of each text's values."""
    total = np.zeros(len(values) + 1, np.uint64)
    np.cumsum(values, out=total[1:])
    return total[begin + count] - total[begin]


def mix(x: np.ndarray) -> np.ndarray:
    """splitmix64's finaliser (Steele, Lea and Flood 2014)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
