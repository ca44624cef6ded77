"""Relations that say the same turned round: `parent` and `child`, `directed by` and `directed`.

As with relations that hold in both directions, all pairs decide: two relations are inverse if each pair of one, turned
round, is a pair of the other, and there are at least two.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from synth.knowledge.kb import Relation
from synth.knowledge.postings import Postings


def candidates(relations: Sequence[Relation]) -> list[tuple[int, int]]:
    """The numbers of two relations each that lead from one type to another and back."""
    linked = [(i, r) for i, r in enumerate(relations) if not r.literal]
    return [(i, j) for i, a in linked for j, b in linked if i < j and (a.domain, a.range) == (b.range, b.domain)]


def inverses(postings: Postings, apart: Collection[str] = ()) -> dict[str, str]:
    """Relation -> the one that says the same turned round, for both of each pair; the first where there are several. apart:
    relations of which a person says that they have none."""
    out: dict[str, str] = {}
    for i, j in candidates(list(postings.relations)):
        a, b = postings.relations[i].name, postings.relations[j].name
        if a not in out and b not in out and not {a, b} & set(apart) and not difference(postings, i, j):
            out |= {a: b, b: a}
    return out


def difference(postings: Postings, i: int, j: int) -> int:
    """How many pairs of two relations stand in one of them alone; of fewer than two pairs, one at least."""
    one = np.stack(postings.block(i, True), 1).astype(np.int64)
    other = np.stack(postings.block(j, False), 1).astype(np.int64)
    if np.array_equal(one, other):
        return 0 if len(one) > 1 else 1
    size = 1 + max(int(x.max(initial=0)) for x in (one, other))
    return len(np.setxor1d(one @ [size, 1], other @ [size, 1]))


def left_aside(found: Mapping[str, str], relations: Mapping[str, Relation]) -> dict[str, str]:
    """Of each pair the relation that gives no clue -> the other, which does: that which is complete, then the first by name."""
    out = {}
    for a, b in found.items():
        if a < b:
            kept, aside = sorted((a, b), key=lambda name: (not relations[name].complete, name))
            out[aside] = kept
    return out
