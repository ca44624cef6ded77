"""BM25 with the cosine of embeddings, and with the pages that the query and the best texts name.

    first(q, d) = BM25(q, d) / max BM25(q, .)  +  1/2 cos(q, d)
    last(q, d)  = max over the query and the `follow` best texts t of the first round, of which one of the 2 best names
                  leads to d, of (first(q, t) / max first(q, .), 1 for the query) * (0.8 + 0.2 first(q, d) / max first(q, .)),
                  and first(q, d) / max first(q, .) itself

The second line is a second round of retrieval without a second query: a question about "the director of Film A" has no word
of the director's page, but the text about Film A has its title. The constants were chosen on the development half of the
questions of benchmarks/search_hybrid.py. A name is a run of words that begins with no small letter and is the title of
another page, the longest from the left; "Name (film)" is called "Name" too.

Vectors are float16, on disk where there is a folder; the product is taken a block at a time, so that memory does not grow
with them. Scores are compared after rounding to 6 decimals, and equal texts keep their order.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Protocol

import numpy as np

from synth.search.bm25 import Ranking, first
from synth.search.embeddings import Embedder

WEIGHT, KEPT, OWN, NAMES = 0.5, 0.8, 0.2, 2
DIGITS = 6  # decimals in which scores are compared
ALIKE = 3  # a name of more pages leads nowhere
_LONGEST = 8  # words of a name
_SHORTEST = 4  # characters of a name of one word
_BLOCK = 16_384  # vectors that are multiplied together
_WORD = re.compile(r"\w+(?:['’]\w+)*\.?")


class Texts(Protocol):
    """What is ranked, by place."""

    def at(self, place: int) -> tuple[Hashable, str]:
        """Its page and its text."""
        ...

    def named(self, name: str) -> Iterable[tuple[Hashable, Sequence[int]]]:
        """The pages with a title, case ignored, and the places of their texts."""
        ...


class Vectors:
    """[texts, dimensions] float16, in memory or in a file that is read a block at a time."""

    def __init__(self, file: Path | None, rows: np.ndarray | None, n: int, size: int) -> None:
        self._file, self._rows, self._shape = file, rows, (n, size)

    @staticmethod
    def of(texts: Iterable[str], n: int, embed: Embedder, folder: Path | None = None, about: str = "") -> Vectors:
        """The vectors of n texts. In a folder they are kept, and made again only where the embeddings or `about`, which
        stands for the texts, are others."""
        size = embed(["a"]).shape[1]
        head = {"embeddings": embed.digest, "about": about, "n": n, "dimensions": size}
        if folder is None:
            rows = np.concatenate([np.zeros((0, size), np.float16), *_embedded(texts, embed)])
            return Vectors(None, rows, n, size)
        file, card = folder / "vectors.f16", folder / "vectors.json"
        if not card.exists() or json.loads(card.read_text(encoding="utf-8")) != head:
            folder.mkdir(parents=True, exist_ok=True)
            card.unlink(missing_ok=True)
            part = file.with_name(f"{file.name}.{os.getpid()}")  # another process may make them too
            with part.open("wb") as out:
                for some in _embedded(texts, embed):
                    out.write(some.data)
            part.replace(file)
            card.write_text(json.dumps(head), encoding="utf-8")
        return Vectors(file, None, n, size)

    def times(self, query: np.ndarray) -> np.ndarray:
        """[texts] float32: the product of each with query [dimensions] float32."""
        n, size = self._shape
        out = np.empty(n, np.float32)
        for i, rows in self._blocks():
            np.matmul(rows.reshape(-1, size).astype(np.float32), query, out=out[i : i + len(rows)])
        return out

    def _blocks(self) -> Iterator[tuple[int, np.ndarray]]:
        n, size = self._shape
        if self._rows is not None:
            yield from ((i, self._rows[i : i + _BLOCK]) for i in range(0, n, _BLOCK))
            return
        assert self._file is not None
        with self._file.open("rb") as file:  # not mapped: what is mapped counts as memory once it was read
            for i in range(0, n, _BLOCK):
                many = min(_BLOCK, n - i)
                yield i, np.fromfile(file, np.float16, many * size).reshape(many, size)


def _embedded(texts: Iterable[str], embed: Embedder) -> Iterator[np.ndarray]:
    texts = iter(texts)
    while some := list(islice(texts, embed.batch)):
        yield np.ascontiguousarray(embed(some), np.float16)


class Hybrid:
    """A ranking like `Ranking`. Without `vectors` by BM25 alone in the first round; `follow`: of how many of the best texts
    the names are followed. Raises ValueError for a follow below 0."""

    def __init__(
        self,
        ranking: Ranking,
        texts: Texts,
        *,
        embed: Embedder | None = None,
        vectors: Vectors | None = None,
        follow: int = 0,
        cache: int = 65536,
    ) -> None:
        if follow < 0:
            raise ValueError(f"the names of {follow} texts are to be followed: say 0 for none")
        self._ranking, self._texts, self._follow = ranking, texts, follow
        self._embed, self._vectors = embed, vectors
        self._top = lru_cache(maxsize=cache)(self._rank)

    def __len__(self) -> int:
        """The number of texts."""
        return len(self._ranking)

    def top(self, query: str, k: int) -> tuple[int, ...]:
        """The places of the k best texts, best first, of those with a score above 0."""
        return self._top(query, k)

    def scores(self, query: str) -> np.ndarray:
        """[texts] float64, at most 1."""
        scores = self._ranking.scores(query)
        scores = scores / max(scores.max(), 1e-9)
        if self._embed is not None and self._vectors is not None:
            scores += WEIGHT * self._vectors.times(self._embed([query])[0])
        scores /= max(scores.max(), 1e-9)
        if self._follow:
            self._named(scores, query)
        return scores

    def _named(self, scores: np.ndarray, query: str) -> None:
        """Lifts in place the texts of pages that the query and the best texts name."""
        best = first(scores, self._follow, DIGITS)
        lifted = self._led(query, None, 1.0, scores)
        for place in best:
            page, text = self._texts.at(place)
            for to, score in self._led(text, page, float(scores[place]), scores).items():
                lifted[to] = max(lifted.get(to, 0.0), score)
        for to, score in lifted.items():
            scores[to] = max(scores[to], score)

    def _led(self, text: str, page: Hashable, worth: float, scores: np.ndarray) -> dict[int, float]:
        """Place -> score of the best texts of the pages that a text of this page names."""
        led: dict[int, float] = {}
        for name in names_in(text, lambda n: bool(self._texts.named(n))):
            for other, places in self._texts.named(name):
                if other != page and len(places):
                    to = max(places, key=lambda p: (scores[p], -p))
                    led[to] = float(scores[to])
        some = sorted(led, key=lambda p: (-round(led[p], 6), p))[:NAMES]
        return {to: worth * (KEPT + OWN * led[to]) for to in some}

    def _rank(self, query: str, k: int) -> tuple[int, ...]:
        return first(self.scores(query), k, DIGITS)


def names_in(text: str, known: Callable[[str], bool]) -> Iterator[str]:
    """The names in a text that `known` knows, the longest from the left, each once."""
    words = list(_WORD.finditer(text))
    seen: set[str] = set()
    i = 0
    while i < len(words):
        taken = 0
        if not words[i].group()[0].islower():
            for n in range(min(_LONGEST, len(words) - i), 0, -1):
                for name in _spellings(text[words[i].start() : words[i + n - 1].end()]):
                    if n == 1 and len(name) < _SHORTEST or not known(name):
                        continue
                    taken = n
                    if name not in seen:
                        seen.add(name)
                        yield name
                    break
                if taken:
                    break
        i += taken or 1


def _spellings(text: str) -> Iterator[str]:
    """As it stands, and without the full stop of a sentence or the s of a genitive."""
    text = " ".join(text.split())
    yield text
    for end in (".", "'s", "’s"):
        if text.endswith(end):
            yield text[: -len(end)]
