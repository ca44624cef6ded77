"""The prefix filter: which sets may be of Jaccard similarity t or more, without comparing all of them.

Grams rank by the number of sets that hold them, the rarest first. Sets x and y, |y| <= |x|, of similarity t share
o >= t / (1 + t) (|x| + |y|) grams, which is at least t |x|, and at least 2t / (1 + t) |y|. So the first gram that they share
is among the |x| - ceil(t |x|) + 1 first of x (Chaudhuri, Ganti and Kaushik 2006), and among the |y| - ceil(2t / (1 + t) |y|) + 1
first of y (its short prefix; Xiao et al. 2008, PPJoin); the second one that they share is at most one place later in both.
So the first of these grams of a set are its keys, and how much two sets can share after a key says whether they may be similar.

A gram of more than OFTEN sets is a key with each gram behind it in that longer prefix, and not by itself (prefixes of several
lengths: Wang, Li and Feng 2012). So what many texts have in common, a form or a language of few words, leads few of
them together. Large sets, of more than PLACES places, would have too many such keys and have the gram itself; those that
may be similar to one of them have both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from synth.preferences.cleaners._grams import mix, nth

OFTEN = 256  # sets that hold a gram; comparing half of them costs as much as a few keys more
PLACES = 16  # of the first shared gram: each two of them may be a key
_CLOSE = 1e-9


@dataclass(frozen=True)
class Keys:
    """Two sets of similarity t share a key for which `rest` of both is at least t / (1 + t) (|x| + |y|).

    key [m] uint64; owner [m] int64: the set; rest [m] int64: the most that it shares with another set if the key is the
    first that they share.
    """

    key: np.ndarray
    owner: np.ndarray
    rest: np.ndarray


def short(rest: np.ndarray, size: np.ndarray, threshold: float) -> np.ndarray:
    """[m] whether a key may be the first that a set of that size shares with one that is as large or larger."""
    return rest >= 2 * threshold / (1 + threshold) * size - _CLOSE


def keys(sets: Sequence[np.ndarray], often: np.ndarray, threshold: float) -> Keys:
    """Of sets of distinct grams (uint32), without grams that are in one set alone. often: the number of sets that hold a gram, by
    its first bits."""
    size = np.array([len(x) for x in sets], np.int64)
    owner = np.repeat(np.arange(len(sets)), size)
    gram = np.concatenate([np.zeros(0, np.uint32), *sets])
    count = often[gram >> np.uint32(33 - len(often).bit_length())]
    name = (count.astype(np.uint64) << np.uint64(32)) | gram
    order = np.lexsort((name, owner))
    name, count = name[order], count[order]
    place = nth(size)

    shared = np.ceil(threshold * size - _CLOSE).astype(np.int64)
    last = size - shared  # place of the last that may be the first shared one
    large = PLACES / max(1 - threshold, _CLOSE)
    here = (place <= last[owner]) & (count > 1)
    common = here & (count > OFTEN)
    # what is similar to these may share one gram, or be large
    single = (shared < 2) | (size >= threshold * large - _CLOSE)
    alone = np.flatnonzero(here & ~(common & ~single[owner]))
    led = np.flatnonzero(common & (size <= large)[owner])

    behind = np.minimum(last + 1, size - 1)[owner[led]] - place[led]  # grams that may be the second, of each
    first = np.repeat(led, behind)
    second = first + 1 + nth(behind)
    key = np.concatenate([name[alone], mix(name[first] ^ mix(name[second]))])
    of = np.concatenate([owner[alone], owner[first]])
    rest = size[of] - np.concatenate([place[alone], place[second] - 1])
    return Keys(key, of, rest)
