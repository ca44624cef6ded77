"""Pairs that contradict each other in a circle: within one prompt a beats b, b beats c, and c beats a.

The labels of a prompt are arcs chosen -> rejected between its answers (equal after trimming spaces). Arcs inside a
strongly connected component of two or more answers lie on a cycle, and only they do (Tarjan, "Depth-first search and
linear graph algorithms", 1972). No arc of a cycle is wrong for sure: the smallest set that breaks all cycles is seldom
unique, so the cleaner asks unless told otherwise. Two answers labelled both ways are the shortest cycle.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from itertools import islice

import numpy as np

from synth.preferences.cleaners._columns import Action, verdict
from synth.preferences.cleaners._filed import Buckets
from synth.preferences.ledger import Verdicts
from synth.types import Decision, PreferencePair

TOGETHER, READ = 1 << 18, 1 << 12  # pairs whose answers are compared at once, about; pairs that are read at once


def intransitive(pairs: Sequence[PreferencePair], *, action: Action = "ask") -> Sequence[Decision]:
    """Decision `action` with reason on_a_cycle, else "keep"; score = number of answers in the component (0 off
    cycles)."""
    size = np.zeros(len(pairs), np.int32)
    for part in _by_prompt(pairs):
        _, place, times = np.unique(part["prompt"], return_inverse=True, return_counts=True)
        compared = part[times[place] > 1]
        size[compared["row"]] = _components(np.stack([compared["chosen"], compared["rejected"]]))
    reasons = ("on_a_cycle", "no_cycle")
    return Verdicts(verdict("intransitive", n > 0, action, reasons, n) for n in size.data)


def _by_prompt(pairs: Sequence[PreferencePair]) -> Iterator[np.ndarray]:
    """The rows of pairs with the hashes of their prompt and of their answers to that prompt, in parts: those of one prompt are in one."""
    names = ("row", "prompt", "chosen", "rejected")
    stream, first = iter(pairs), 0
    with Buckets(-(-len(pairs) // TOGETHER), [(name, np.int64) for name in names]) as buckets:
        while block := list(islice(stream, READ)):
            told = array("q")
            for row, pair in enumerate(block, first):
                of = hash(pair.prompt)
                told.extend((row, of, hash((of, pair.chosen.strip())), hash((of, pair.rejected.strip()))))
            first += len(block)
            columns = np.array(told).reshape(-1, 4).T
            buckets.add(columns[1].astype(np.uint64), **dict(zip(names, columns, strict=True)))
        yield from buckets.parts()


def _components(arcs: np.ndarray) -> np.ndarray:
    """[n] for each arc [2, n] the size of the strongly connected component that holds both ends, 0 where none does."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    if not arcs.size:
        return np.zeros(0, np.int64)
    names, places = np.unique(arcs, return_inverse=True)
    a, b = places.reshape(2, -1).astype(np.int32)
    graph = coo_array((np.ones(len(a)), (a, b)), shape=(len(names), len(names)))
    _, label = connected_components(graph, directed=True, connection="strong")
    size = np.bincount(label)[label]
    return np.where((a != b) & (label[a] == label[b]), size[a], 0)
