"""Pictures in rows: the ids that stand for them.

The name of a picture is the hash of its content. In a row it is a number of tokens whose ids are negative and made of
the name, so that a row says by itself what it shows: two rows with different pictures differ wherever ids are compared
(shared prefixes, the cache of prompts, a table of rollouts). Pixels stay out of rows, batches and tables of rollouts: a
process holds each picture once, in `HELD` (synth/pictures.py), and a vision-language model reads it there (training/model/vision.py). What
an environment draws while it plays (a crop, a screen after a click) is added in the same way.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from synth.pictures import HELD, Pictures, name_of, picture_key

__all__ = ["HELD", "PLACES", "Pictures", "Shown", "name_of", "picture_ids", "picture_key", "shown_in"]

PLACES = 1 << 12  # tokens that a picture may have


def picture_ids(name: str, tokens: int) -> np.ndarray:
    """The ids [tokens] int64 of a picture: -1 - (key x PLACES + k). Raises ValueError for more tokens than an id can
    count."""
    if not 0 < tokens <= PLACES:
        raise ValueError(f"a picture of {tokens} tokens: it may have 1 to {PLACES}")
    return -1 - (picture_key(name) * PLACES + np.arange(tokens, dtype=np.int64))


@dataclass(frozen=True)
class Shown:
    """A picture in a segment: the key of its name, its first token and the number of its tokens."""

    key: int
    start: int
    tokens: int


def shown_in(ids: np.ndarray) -> tuple[Shown, ...]:
    """The pictures in ids [n], in order."""
    at = np.flatnonzero(ids < 0)
    key, place = np.divmod(-1 - ids[at], PLACES)
    begins = np.flatnonzero(place == 0)
    counts = np.diff(np.append(begins, len(at)))
    return tuple(Shown(int(key[i]), int(at[i]), int(n)) for i, n in zip(begins, counts, strict=True))
