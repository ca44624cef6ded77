"""The search tool of the environment `search`: BM25 over the passages of a knowledge base, as text in, text out.

    score(q, d) = sum over words t of q of  idf(t) * tf / (tf + k1 * (1 - b + b * len(d) / mean_len)),   k1 = 1.5, b = 0.75
    idf(t) = ln(1 + (N - df + 1/2) / (df + 1/2))

(the "lucene" variant of BM25S, Lu 2024, arXiv:2407.03618), over the words of title and text. Scores are float64 and compared
after rounding to 9 decimals; equal passages keep the order of the table, so that a replay gives the same bytes anywhere.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import bm25s
import numpy as np

from synth.kb import Passage
from tasks.disk import tables

NOTHING = "nothing found"


def words(text: str) -> list[str]:
    """The lower-cased words of a text: no stemming and no stop words, so that what is written is what is matched."""
    return re.findall(r"\w+", unicodedata.normalize("NFKC", text).lower())


class Search:
    """`search(query) -> str`: the texts of the k best passages, one per line, best first, or "nothing found".

    Only passages that share a word with the query are returned. Answers are cached (`cache` of them, least recently used out first):
    a policy that is being trained repeats its queries. Raises ValueError for an empty collection or k < 1.
    """

    def __init__(self, passages: Sequence[Passage], *, k: int = 3, cache: int = 65536) -> None:
        if not passages:
            raise ValueError("there are no passages to search: the knowledge base is empty, check the sources of the stage kb")
        if k < 1:
            raise ValueError(f"the search tool was asked for k = {k} passages per query: k must be at least 1")
        self.passages = tuple(passages)
        self.k = k
        documents = [words(f"{p.title} {p.text}") for p in self.passages]
        self._vocabulary = {word: i for i, word in enumerate(sorted({w for d in documents for w in d}))}
        self._index = bm25s.BM25(method="lucene", k1=1.5, b=0.75, dtype="float64")
        self._index.index(([[self._vocabulary[w] for w in d] for d in documents], dict(self._vocabulary)), show_progress=False)
        self._top = lru_cache(maxsize=cache)(self._rank)

    def __call__(self, query: str) -> str:
        return "\n".join(p.text for p in self.hits(query)) or NOTHING

    def hits(self, query: str) -> list[Passage]:
        """The k best passages, best first; empty where no word of the query occurs anywhere."""
        known = (self._vocabulary.get(w) for w in words(query))
        return [self.passages[i] for i in self._top(tuple(sorted(t for t in known if t is not None)))]

    def scores(self, query: str) -> np.ndarray:
        """[passages] float64 BM25 scores of a query."""
        return self._scores(tuple(sorted(self._vocabulary[w] for w in words(query) if w in self._vocabulary)))

    def _scores(self, tokens: tuple[int, ...]) -> np.ndarray:
        # Sorted tokens: a float sum depends on its order, and a query should not depend on the order of its words.
        return self._index.get_scores_from_ids(list(tokens)) if tokens else np.zeros(len(self.passages))

    def _rank(self, tokens: tuple[int, ...]) -> tuple[int, ...]:
        scores = np.round(self._scores(tokens), 9)
        (found,) = np.nonzero(scores)
        if len(found) > self.k:
            found = found[scores[found] >= np.partition(scores[found], -self.k)[-self.k]]
        return tuple(int(i) for i in found[np.lexsort((found, -scores[found]))][: self.k])


def load(path: Path, *, k: int = 3) -> Search:
    """The search tool over `passages.parquet` of the stage kb."""
    return Search(tables.read(path, Passage), k=k)
