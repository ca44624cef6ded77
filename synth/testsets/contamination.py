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

from synth.preferences.cleaners._overlap import grams, words


@dataclass(frozen=True, kw_only=True)
class Hit:
    """An evaluation row that a training row contains. `overlap`: 1.0 for the same text."""

    row: str
    text: str
    trained: str
    where: str
    overlap: float


def contaminated(
    held_out: Sequence[tuple[str, str]],
    training: Iterable[tuple[str, str, str]],
    *,
    near: bool = True,
    n: int = 8,
    share: float = 0.6,
) -> list[Hit]:
    """The rows of `held_out` (id, text) that were trained on, each with the training row (id, where, text) that holds
    most of it."""
    texts, same = dict(held_out), {tuple(words(text)): i for i, text in held_out}
    mine: dict[str, frozenset] = {}
    index: dict[tuple[str, ...], list[str]] = {}
    for i, text in held_out if near else ():
        text_words = words(text)
        if len(text_words) >= n:  # a shorter one counts only as a whole
            mine[i] = grams(text_words, n)
            for gram in mine[i]:
                index.setdefault(gram, []).append(i)
    best: dict[str, Hit] = {}
    for trained, where, text in training:
        text_words = words(text)
        shares = {same[tuple(text_words)]: 1.0} if text_words and tuple(text_words) in same else {}
        theirs = grams(text_words, n) if near and len(text_words) >= n else frozenset()
        for i, shared in Counter(i for gram in theirs for i in index.get(gram, ())).items():
            overlap = shared / min(len(mine[i]), len(theirs))
            if overlap >= share:
                shares[i] = max(overlap, shares.get(i, 0.0))
        for i, overlap in shares.items():
            if i not in best or best[i].overlap < overlap:
                best[i] = Hit(row=i, text=texts[i], trained=trained, where=where, overlap=overlap)
    return [best[i] for i, _ in held_out if i in best]
