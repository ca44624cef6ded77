"""The search tool of the environment `search`: BM25 (synth/search/bm25.py), or what synth/search/hybrid.py makes of it, over
the passages of a knowledge base, as text in, text out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property

import numpy as np

from synth.knowledge.compact import Columns
from synth.knowledge.documents import harmless
from synth.knowledge.kb import Passage
from synth.search.bm25 import Ranking, words
from synth.search.embeddings import Embedder
from synth.search.hybrid import ALIKE, Hybrid, Vectors
from synth.search.index import NOTHING, Page, SearchIndex, build_index

__all__ = ["NOTHING", "Blank", "Search", "words"]


class Search:
    """`search(query) -> str`: the texts of the k best passages, one per line, best first, or "nothing found".

    Only passages that share a word with the query are returned. `index` opens and finds too, on `pages` (without them
    on one for each entity that passages are about). `embed`, `follow`: see `Hybrid`. Raises ValueError for an empty
    collection or k < 1.
    """

    def __init__(
        self,
        passages: Sequence[Passage],
        *,
        k: int = 3,
        cache: int = 65536,
        pages: Callable[[], Iterable[Page]] | None = None,
        embed: Embedder | None = None,
        follow: int = 0,
    ) -> None:
        if not passages:
            raise ValueError(
                "there are no passages to search: the knowledge base is empty, check the sources of the stage kb"
            )
        if k < 1:
            raise ValueError(f"the search tool was asked for k = {k} passages per query: k must be at least 1")
        self.passages = passages
        # of columns, the others are not read for it
        self._text = (
            passages.column("text").__getitem__ if isinstance(passages, Columns) else lambda i: passages[i].text
        )
        self.k = k
        self._pages = pages or (lambda: own_pages(self.passages))
        self._embed, self._follow = embed, follow
        self._ranking: Ranking | Hybrid = Ranking.of(self._texts(), cache=cache)
        if embed is not None or follow:
            vectors = Vectors.of(self._texts(), len(passages), embed) if embed is not None else None
            self._ranking = Hybrid(
                self._ranking, _Titled(self.passages), embed=embed, vectors=vectors, follow=follow, cache=cache
            )

    def _texts(self) -> Iterator[str]:
        return (f"{p.title} {p.text}" for p in self.passages)

    def __call__(self, query: str) -> str:
        return harmless("\n".join(map(self._text, self._ranking.top(query, self.k)))) or NOTHING

    def hits(self, query: str) -> list[Passage]:
        """The k best passages, best first; empty where no word of the query occurs anywhere."""
        return [self.passages[i] for i in self._ranking.top(query, self.k)]

    @cached_property
    def index(self) -> SearchIndex:
        """search, open and find over the pages; made when first asked for."""
        index = build_index(self._pages())
        return index.hybrid(self._embed, self._follow) if isinstance(self._ranking, Hybrid) else index

    def scores(self, query: str) -> np.ndarray:
        """[passages] float64 scores of a query."""
        return self._ranking.scores(query)


class _Titled:
    """Passages for `Hybrid`: a name leads to those with that title, with an addition in brackets or without."""

    def __init__(self, passages: Sequence[Passage]) -> None:
        self._passages = passages
        self._places: dict[str, dict[str, list[int]]] = {}
        for place, p in enumerate(passages):
            for name in {p.title.casefold(), p.title.casefold().partition(" (")[0]}:
                self._places.setdefault(name, {}).setdefault(p.entity, []).append(place)

    def at(self, place: int) -> tuple[str, str]:
        return self._passages[place].entity, self._passages[place].text

    def named(self, name: str) -> list[tuple[str, list[int]]]:
        pages = self._places.get(name.casefold(), {})
        return list(pages.items()) if len(pages) <= ALIKE else []


def own_pages(passages: Sequence[Passage]) -> Iterator[Page]:
    """A page for each entity that passages are about: its passages."""
    lines: dict[str, list[str]] = {}
    titles = {p.entity: p.title for p in passages}
    for p in passages:
        lines.setdefault(p.entity, []).append(p.text)
    for entity, texts in lines.items():
        yield Page(id=entity, title=titles[entity], text="\n".join(texts))


class Blank:
    """A search tool that finds nothing, whatever is asked; its index opens and finds nothing either."""

    def __call__(self, query: str) -> str:
        return NOTHING

    @property
    def index(self) -> Blank:
        return self

    def search(self, query: str, k: int = 3) -> str:
        return NOTHING

    def open(self, page: str, part: int = 1) -> str:
        return NOTHING

    def find(self, text: str, page: str = "", k: int = 5) -> str:
        return NOTHING

    def pages(self, page: str) -> list[str]:
        return []
