"""Whether evaluation texts were trained on: compares every evaluation text with every training text.

    same      the normal forms are equal (NFKC, case folded, words and operators)
    overlap   the two share at least `share` of the word n-grams of the shorter one (Brown et al. 2020, arXiv
              2005.14165, appendix C, with n = 13 there; 8 here, so that texts of a sentence are compared too)

`overlap` is for texts that somebody wrote. Questions that one template makes share most of their words with each other
by construction, and are kept apart by the hash of their roots: for those, only an identical text counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from synth.preferences.cleaners._overlap import grams, words


@dataclass(frozen=True, kw_only=True)
class Hit:
    """An evaluation row that a training row contains. `overlap`: 1.0 for the same text."""

    row: str
    text: str
    trained: str
    where: str
    overlap: float


class Contamination:
    """Finds rows of `held_out` (id, text) in training rows that pass by. near: whether `overlap` counts too; n: words of a gram."""

    def __init__(
        self, held_out: Sequence[tuple[str, str]], *, near: bool = True, n: int = 8, share: float = 0.6
    ) -> None:
        self.near, self.n, self.share = near, n, share
        self._texts, self._same = dict(held_out), {tuple(words(text)): i for i, text in held_out}
        self._order = [i for i, _ in held_out]
        self._grams: dict[str, frozenset] = {}
        self._index: dict[tuple[str, ...], list[str]] = {}
        self._best: dict[str, Hit] = {}
        for i, text in held_out if near else ():
            text_words = words(text)
            if len(text_words) >= n:  # a shorter one counts only as a whole
                self._grams[i] = grams(text_words, n)
                for gram in self._grams[i]:
                    self._index.setdefault(gram, []).append(i)

    def see(self, trained: str, where: str, text: str) -> None:
        """A training row: its id, where it is and its text."""
        text_words = words(text)
        whole = tuple(text_words)
        shares = {self._same[whole]: 1.0} if whole and whole in self._same else {}
        theirs = grams(text_words, self.n) if self.near and len(text_words) >= self.n else frozenset()
        for i, shared in Counter(i for gram in theirs for i in self._index.get(gram, ())).items():
            overlap = shared / min(len(self._grams[i]), len(theirs))
            if overlap >= self.share:
                shares[i] = max(overlap, shares.get(i, 0.0))
        for i, overlap in shares.items():
            if i not in self._best or self._best[i].overlap < overlap:
                self._best[i] = Hit(row=i, text=self._texts[i], trained=trained, where=where, overlap=overlap)

    @property
    def hits(self) -> list[Hit]:
        """The rows that were trained on so far, in the order of `held_out`, each with the training row that holds most of it."""
        return [self._best[i] for i in self._order if i in self._best]


def contaminated(
    held_out: Sequence[tuple[str, str]], training: Iterable[tuple[str, str, str]], **knobs: Any
) -> list[Hit]:
    """The hits among the training rows (id, where, text); knobs: of Contamination."""
    contamination = Contamination(held_out, **knobs)
    for row in training:
        contamination.see(*row)
    return contamination.hits
