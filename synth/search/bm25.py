"""BM25 ranking of short texts, in memory or from disk.

    score(q, d) = sum over words t of q of  idf(t) * tf / (tf + k1 * (1 - b + b * len(d) / mean_len)),   k1 = 1.5, b =
    0.75 idf(t) = ln(1 + (N - df + 1/2) / (df + 1/2))

(the "lucene" variant of BM25S, Lu 2024, arXiv:2407.03618). Scores are float64 and compared after rounding to 9
decimals; equal texts keep their order, so that a replay gives the same bytes anywhere.
"""

from __future__ import annotations

import json
import re
import unicodedata
from array import array
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import bm25s
import numpy as np

_WORD = re.compile(r"\w+")


def words(text: str) -> list[str]:
    """The lower-cased words of a text: no stemming and no stop words, so that words match exactly as written."""
    return _WORD.findall(unicodedata.normalize("NFKC", text).lower())


class _Documents(Sequence[list[int]]):
    """The words of every text as numbers, for bm25s, which reads them several times: lists of Python numbers for all
    texts at once would take nine times the memory."""

    def __init__(self, flat: np.ndarray, ends: np.ndarray) -> None:
        self._flat, self._ends = flat, ends

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __getitem__(self, i: Any) -> Any:
        return self._flat[self._ends[i] : self._ends[i + 1]].tolist()

    def __iter__(self) -> Iterator[list[int]]:  # that of Sequence ends at the first IndexError, and numpy raises none
        return (self[i] for i in range(len(self)))


class Ranking:
    """`top(query, k)` gives the places of the k best texts. Answers are cached (least recently used are evicted first),
    because a policy in training repeats its queries. Made by `Ranking.of` or `Ranking.load`."""

    def __init__(self, index: bm25s.BM25, vocabulary: dict[str, int], n: int, *, cache: int = 65536) -> None:
        self._index, self._vocabulary, self._n = index, vocabulary, n
        self._top = lru_cache(maxsize=cache)(self._rank)

    @staticmethod
    def of(texts: Iterable[str], *, cache: int = 65536) -> Ranking:
        """The ranking of texts. Raises ValueError where none has a word."""
        place: dict[str, int] = {}
        flat, ends = array("i"), array("q", [0])
        for text in texts:
            flat.extend(place.setdefault(w, len(place)) for w in words(text))
            ends.append(len(flat))
        if not place:
            raise ValueError("there is not one word in the texts to be searched: check the sources")
        names = sorted(
            place
        )  # numbered in alphabetical order: float sums depend on their order, and may not depend on that of the texts
        rank = np.empty(len(place), np.int32)
        rank[[place[w] for w in names]] = np.arange(len(place))
        documents = _Documents(rank[np.frombuffer(flat, np.int32)], np.frombuffer(ends, np.int64))
        del flat, place
        index = bm25s.BM25(method="lucene", k1=1.5, b=0.75, dtype="float64")
        texts_of: Any = SimpleNamespace(ids=documents, vocab=dict(zip(names, range(len(names)))))
        index.index(texts_of, show_progress=False)
        return Ranking(index, {w: i for i, w in enumerate(names)}, len(documents), cache=cache)

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
        self._index.save(folder, show_progress=False)
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
