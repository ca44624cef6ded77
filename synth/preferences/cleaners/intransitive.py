"""Pairs that contradict each other in a circle: within one prompt a beats b, b beats c, and c beats a.

The labels of a prompt are arcs chosen -> rejected between its answers (equal after trimming spaces). Arcs inside a
strongly connected component of two or more answers lie on a cycle, and only they do (Tarjan, "Depth-first search and
linear graph algorithms", 1972). No arc of a cycle is wrong for sure: the smallest set that breaks all cycles is seldom
unique, so the cleaner asks unless told otherwise. Two answers labelled both ways are the shortest cycle.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence

import numpy as np

from synth.preferences.cleaners._columns import Action, verdict
from synth.types import Decision, PreferencePair


def intransitive(pairs: Sequence[PreferencePair], *, action: Action = "ask") -> list[Decision]:
    """Decision `action` with reason on_a_cycle, else "keep"; score = number of answers in the component (0 off
    cycles)."""
    prompts: dict[tuple, list[int]] = defaultdict(list)
    for i, pair in enumerate(pairs):
        prompts[pair.prompt].append(i)
    compared = [(k, i) for k, rows in enumerate(prompts.values()) if len(rows) > 1 for i in rows]
    size = [0] * len(pairs)
    arcs = [((k, pairs[i].chosen.strip()), (k, pairs[i].rejected.strip())) for k, i in compared]
    for (_, i), n in zip(compared, _components(arcs), strict=True):
        size[i] = n
    return [verdict("intransitive", n > 0, action, ("on_a_cycle", "no_cycle"), n) for n in size]


def _components(arcs: Sequence[tuple[Hashable, Hashable]]) -> list[int]:
    """For each arc the size of the strongly connected component that holds both ends, 0 where none does."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    if not arcs:
        return []
    names = {name: k for k, name in enumerate(dict.fromkeys(x for arc in arcs for x in arc))}
    a, b = np.array([[names[x], names[y]] for x, y in arcs]).T
    graph = coo_array((np.ones(len(arcs)), (a, b)), shape=(len(names), len(names)))
    _, label = connected_components(graph, directed=True, connection="strong")
    size = np.bincount(label)[label]
    return np.where((a != b) & (label[a] == label[b]), size[a], 0).tolist()
