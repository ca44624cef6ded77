"""How much of a text occurs in protected texts, by word n-grams."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable

from synth.types import PreferencePair

# Words, and signs that change what is asked: "84 - 38" is not "84 + 38". A hyphen between letters joins a word.
_WORD = re.compile(r"\w+|[+*/%^=<>×÷±−∗≤≥≠]|(?<![^\W\d_])-|-(?![^\W\d_])")
Gram = tuple[str, ...]


def words(text: str) -> list[str]:
    """The words and operators of a text after NFKC and case folding."""
    return _WORD.findall(unicodedata.normalize("NFKC", text).casefold())


def grams(text_words: list[str], n: int) -> frozenset[Gram]:
    """The n-grams of a list of words; a shorter list is one gram, an empty one none."""
    return (
        frozenset(tuple(text_words[i : i + n]) for i in range(max(1, len(text_words) - n + 1)))
        if text_words
        else frozenset()
    )


class Protected:
    """Texts that must not be trained on, indexed by n-gram.

    A text of fewer than n words is looked for as a whole; one of fewer than `least` words occurs everywhere and is
    ignored.
    """

    def __init__(self, texts: Iterable[str], *, n: int = 8, least: int = 4) -> None:
        self.n = n
        self._where: dict[Gram, list[int]] = defaultdict(list)
        self._sizes: list[int] = []
        for text_words in map(words, texts):
            if len(text_words) >= least:
                text_grams = grams(text_words, n)
                for gram in text_grams:
                    self._where[gram].append(len(self._sizes))
                self._sizes.append(len(text_grams))
        self._short = sorted({len(gram) for gram in self._where} - {n})

    def overlap(self, text: str) -> float:
        """The greatest, over protected texts, of shared grams / the smaller number of grams. In [0, 1]."""
        text_words = words(text)
        mine = grams(text_words, self.n)
        for m in self._short:
            if any(gram in self._where for gram in grams(text_words, m) if len(gram) == m):
                return 1.0
        shared = Counter(k for gram in mine for k in self._where.get(gram, ()))
        return max((count / min(len(mine), self._sizes[k]) for k, count in shared.items()), default=0.0)

    def of(self, pair: PreferencePair) -> float:
        """The greatest overlap of any message of the prompt or any side."""
        return max(self.overlap(text) for text in (*(m.content for m in pair.prompt), pair.chosen, pair.rejected))
