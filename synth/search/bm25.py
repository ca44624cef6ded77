"""BM25 ranking of short texts, in memory or from disk.

    score(q, d) = sum over words t of q of  idf(t) * tf / (tf + k1 * (1 - b + b * len(d) / mean_len)),   k1 = 1.5, b =
    0.75 idf(t) = ln(1 + (N - df + 1/2) / (df + 1/2))

(the "lucene" variant of BM25S, Lu 2024, arXiv:2407.03618). Scores are float64 and compared after rounding to 9
decimals; equal texts keep their order, so that a replay gives the same bytes anywhere.
"""

from __future__ import annotations

import json
import math
import re
import unicodedata
from array import array
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any

import bm25s
import numpy as np

_WORD = re.compile(r"\w+")
_K1, _B = 1.5, 0.75
_DATA, _INDICES, _STARTS = "data.csc.index.npy", "indices.csc.index.npy", "indptr.csc.index.npy"  # as bm25s calls them
_BATCH = 16_384  # texts that are split together
_CHUNK = 65_536  # texts whose words are looked through together
_BLOCK = 1 << 21  # places of words that are sorted together


def words(text: str) -> list[str]:
    """The lower-cased words of a text: no stemming and no stop words, so that words match exactly as written."""
    return _WORD.findall((text if text.isascii() else unicodedata.normalize("NFKC", text)).lower())


_LOWER = np.full(256, ord(" "), np.uint8)  # of each byte what `words` makes of it: a blank between words
_LOWER[128:] = np.arange(128, 256)
for _c in filter(_WORD.match, map(chr, range(128))):
    _LOWER[ord(_c)] = ord(_c.lower())


def _numbered(texts: Sequence[str], place: dict[str, int]) -> tuple[np.ndarray, np.ndarray]:
    """(numbers int32 [words], how many words each text has int64 [texts]) of `words` of texts, split by Arrow. place: word
    -> its number, to which new words are added."""
    import pyarrow as pa  # only building needs it
    from pyarrow import compute

    blanked = pa.array([t if t.isascii() else " ".join(words(t)) for t in texts], pa.large_string())
    _, offsets, data = blanked.buffers()
    lower = _LOWER[np.frombuffer(data, np.uint8)] if data else np.zeros(0, np.uint8)
    pc: Any = compute  # its functions are made when it is imported, so that no checker of types knows them
    split = pc.ascii_split_whitespace(pa.LargeStringArray.from_buffers(len(texts), offsets, pa.py_buffer(lower)))
    own = split.flatten().dictionary_encode()
    names, codes = own.dictionary.to_pylist(), own.indices.to_numpy()
    starts = split.offsets.to_numpy()
    full = np.array([bool(n) for n in names], bool)[codes]  # a blank at an end of a text gives an empty word
    kept = np.concatenate([[0], np.cumsum(full)])
    new = np.array([place.setdefault(n, len(place)) if n else 0 for n in names], np.int32)
    return new[codes[full]], np.diff(kept[starts - starts[0]])


def matrix(flat: np.ndarray, ends: np.ndarray, n_words: int) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """(scores float64 and texts int32, both [pairs of a word and a text that has it], how many texts have each word int64
    [words of the block]) of the words in their order, a block of them at a time; the texts of a word are rising. What
    bm25s computes of the same words, bit by bit, without lists of all words and without all pairs in memory.

    flat   [words of all texts] int32, their numbers     ends   [texts + 1] int64, where each text ends in it
    """
    lengths = np.diff(ends)
    n, mean = len(lengths), lengths.mean()
    total = np.cumsum(np.bincount(flat, minlength=n_words))
    first = 0
    while first < n_words:
        before = int(total[first - 1]) if first else 0
        last = max(first + 1, int(total.searchsorted(before + _BLOCK, "right")))
        keys = np.concatenate(list(_keys(flat, ends, first, last)))
        keys.sort()
        starts = np.flatnonzero(np.diff(keys, prepend=-1))
        times = np.diff(starts, append=len(keys)).astype(np.int32)
        keys = keys[starts]
        word = (keys // n).astype(np.int32)
        text = (keys - word.astype(np.int64) * n).astype(np.int32)
        del keys, starts
        frequency = np.bincount(word, minlength=last - first)
        different, place = np.unique(frequency, return_inverse=True)
        idf = np.array([math.log(1 + (n - f + 0.5) / (f + 0.5)) for f in different.tolist()])[place]
        scores = idf[word] * (times / (_K1 * ((1 - _B) + _B * lengths[text] / mean) + times))
        yield scores, text, frequency
        first = last


def _keys(flat: np.ndarray, ends: np.ndarray, first: int, last: int) -> Iterator[np.ndarray]:
    """(word - first) * texts + text of each place of words first to last, a chunk of texts at a time."""
    n = len(ends) - 1
    for at in range(0, n, _CHUNK):
        part = ends[at : at + _CHUNK + 1]
        words = flat[part[0] : part[-1]]
        (here,) = np.nonzero((words >= first) & (words < last))
        texts = np.repeat(np.arange(at, at + len(part) - 1), np.diff(part))[here]
        yield (words[here].astype(np.int64) - first) * n + texts


class _Array:
    """A .npy file of one axis that is written some at a time, byte for byte as numpy saves it whole."""

    def __init__(self, path: Path, kind: type) -> None:
        self._file, self._type, self._n = path.open("wb"), np.dtype(kind), 0
        self._head()

    def _head(self) -> None:
        head = {"descr": np.lib.format.dtype_to_descr(self._type), "fortran_order": False, "shape": (self._n,)}
        np.lib.format.write_array_header_1_0(self._file, head)  # as long for every number of rows

    def add(self, some: np.ndarray) -> None:
        self._file.write(np.ascontiguousarray(some, self._type).data)
        self._n += len(some)

    def close(self) -> None:
        self._file.seek(0)
        self._head()
        self._file.close()


class Ranking:
    """`top(query, k)` gives the places of the k best texts. Answers are cached (least recently used are evicted first),
    because a policy in training repeats its queries. Made by `Ranking.of` or `Ranking.load`."""

    def __init__(self, index: bm25s.BM25, vocabulary: dict[str, int], n: int, *, cache: int = 65536) -> None:
        self._index, self._vocabulary, self._n = index, vocabulary, n
        self._top = lru_cache(maxsize=cache)(self._rank)

    @staticmethod
    def of(texts: Iterable[str], folder: Path | None = None, *, cache: int = 65536) -> Ranking:
        """The ranking of texts, in memory; or written into `folder` as `save` does, and read from there. Raises ValueError
        where none has a word."""
        place: dict[str, int] = {}
        flat, ends = array("i"), array("q", [0])
        texts = iter(texts)
        while some := list(islice(texts, _BATCH)):
            before = len(flat)
            numbers, sizes = _numbered(some, place)
            flat.frombytes(numbers.tobytes())
            ends.frombytes((before + np.cumsum(sizes)).tobytes())
        if not place:
            raise ValueError("there is not one word in the texts to be searched: check the sources")
        names = sorted(
            place
        )  # numbered in alphabetical order: float sums depend on their order, and may not depend on that of the texts
        rank = np.empty(len(place), np.int32)
        rank[[place[w] for w in names]] = np.arange(len(place))
        n, numbers = len(ends) - 1, np.frombuffer(flat, np.int32)
        np.take(rank, numbers, out=numbers)
        index = bm25s.BM25(method="lucene", k1=_K1, b=_B, dtype="float64")
        vocabulary = {w: i for i, w in enumerate(names)}
        del place, names, rank
        blocks = matrix(numbers, np.frombuffer(ends, np.int64), len(vocabulary))
        index.nonoccurrence_array = None
        if folder is None:
            scores, of, frequency = (np.concatenate(x) for x in zip(*blocks, strict=True))
            starts = np.concatenate([[0], np.cumsum(frequency)])
            index.scores = {"data": scores, "indices": of, "indptr": starts, "num_docs": n}
            index.vocab_dict = vocabulary | {"": len(vocabulary)}  # as bm25s adds it
            index.unique_token_ids_set = set(index.vocab_dict.values())
            return Ranking(index, vocabulary, n, cache=cache)
        none = np.zeros(0)
        index.scores = {"data": none, "indices": none, "indptr": none, "num_docs": n}
        index.vocab_dict = vocabulary | {"": len(vocabulary)}
        Ranking(index, vocabulary, n).save(folder)
        del index, vocabulary
        data, indices = _Array(folder / _DATA, np.float64), _Array(folder / _INDICES, np.int32)
        frequencies = []
        for scores, of, frequency in blocks:
            data.add(scores)
            indices.add(of)
            frequencies.append(frequency)
        data.close()
        indices.close()
        np.save(folder / _STARTS, np.concatenate([[0], np.cumsum(np.concatenate(frequencies))]))
        del flat, numbers, blocks
        return Ranking.load(folder, cache=cache)

    def __len__(self) -> int:
        """The number of texts."""
        return self._n

    def _tokens(self, query: str) -> tuple[int, ...]:
        """Sorted, so that a query does not depend on the order of its words."""
        known = (self._vocabulary.get(w) for w in words(query))
        return tuple(sorted(t for t in known if t is not None))

    def scores(self, query: str) -> np.ndarray:
        """[texts] float64."""
        return self._scores(self._tokens(query))

    def top(self, query: str, k: int) -> tuple[int, ...]:
        """The places of the k best texts, best first; only of those that share a word with the query."""
        return self._top(self._tokens(query), k)

    def _scores(self, tokens: tuple[int, ...]) -> np.ndarray:
        return self._index.get_scores_from_ids(list(tokens)) if tokens else np.zeros(self._n)

    def _rank(self, tokens: tuple[int, ...], k: int) -> tuple[int, ...]:
        scores = self._scores(tokens)
        least = (
            np.partition(scores, -k)[-k] - 1e-8 if k < len(scores) else 0.0
        )  # below it by more than rounding can lift
        (documents,) = np.nonzero(scores > max(0.0, least))
        rounded = np.round(scores[documents], 9)
        documents, rounded = documents[rounded > 0], rounded[rounded > 0]
        return tuple(int(i) for i in documents[np.lexsort((documents, -rounded))][:k])

    def save(self, folder: Path) -> None:
        """Arrays as .npy and the vocabulary as JSON, in a folder of their own."""
        folder.mkdir(parents=True, exist_ok=True)
        self._index.save(folder, data_name=_DATA, indices_name=_INDICES, indptr_name=_STARTS, show_progress=False)
        names = [w for w, _ in sorted(self._vocabulary.items(), key=lambda item: item[1])]
        (folder / "vocabulary.json").write_text(
            json.dumps({"n": self._n, "words": names}, ensure_ascii=False), encoding="utf-8"
        )

    @staticmethod
    def load(folder: Path, *, cache: int = 65536) -> Ranking:
        """What `save` wrote; the arrays stay on disk and are mapped into memory. Raises ValueError where the folder
        holds none."""
        try:
            index = bm25s.BM25.load(folder, mmap=True, load_vocab=False, show_progress=False, verbosity=0)
            vocabulary = json.loads((folder / "vocabulary.json").read_text(encoding="utf-8"))
            return Ranking(index, {w: i for i, w in enumerate(vocabulary["words"])}, vocabulary["n"], cache=cache)
        except (OSError, KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{folder} holds no ranking ({error}): build the index anew") from error
