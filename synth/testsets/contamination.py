"""Whether what is evaluated on was trained on: every evaluation text against every training text.

    same      the normal forms are equal (NFKC, case folded, words and operators)
    overlap   the two share at least `share` of the word n-grams of the shorter one (Brown et al. 2020, arXiv
              2005.14165, appendix C, with n = 13 there; 8 here, so that texts of a sentence are compared too)

`overlap` is for texts that somebody wrote. Questions that one template makes share most of their words with each other
by construction, and are kept apart by the hash of their roots: of those, only the same text counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from synth.preferences.cleaners._overlap import grams, words


@dataclass(frozen=True, kw_only=True)
class Hit:
    """An evaluation row that a training row holds. `overlap`: 1.0 for the same text."""

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
        said = words(text)
        if len(said) >= n:  # a shorter one counts only as a whole
            mine[i] = grams(said, n)
            for gram in mine[i]:
                index.setdefault(gram, []).append(i)
    best: dict[str, Hit] = {}
    for trained, where, text in training:
        said = words(text)
        found = {same[tuple(said)]: 1.0} if said and tuple(said) in same else {}
        theirs = grams(said, n) if near and len(said) >= n else frozenset()
        for i, shared in Counter(i for gram in theirs for i in index.get(gram, ())).items():
            overlap = shared / min(len(mine[i]), len(theirs))
            if overlap >= share:
                found[i] = max(overlap, found.get(i, 0.0))
        for i, overlap in found.items():
            if i not in best or best[i].overlap < overlap:
                best[i] = Hit(row=i, text=texts[i], trained=trained, where=where, overlap=overlap)
    return [best[i] for i, _ in held_out if i in best]
