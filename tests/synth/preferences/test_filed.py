"""Rows of numbers in a temporary file are those that were added."""

import numpy as np
import pytest

from synth.preferences.cleaners import _filed
from synth.preferences.cleaners._filed import Filed


def test_rows_are_those_that_were_added(monkeypatch):
    monkeypatch.setattr(_filed, "BLOCK", 7)
    rng = np.random.default_rng(2)
    parts = [rng.normal(size=(n, 3)) for n in (5, 0, 200, 1)]
    table, want = Filed(3), np.concatenate(parts)
    for part in parts:
        table.add(part)
    assert len(table) == 206 and np.array_equal(table[:], want)
    for a, b in ((0, 1), (4, 100), (205, None), (206, None), (9, 9), (200, 900)):
        assert np.array_equal(table[a:b], want[a:b])
    for rows in ([], [0], [3, 4, 5], [1, 7, 205]):
        assert np.array_equal(table[np.array(rows, np.int64)], want[rows].reshape(-1, 3))
    rows = rng.integers(206, size=50)
    assert np.array_equal(table.taken(rows)[:], want[rows])
    assert len(table.taken(rows[:0])) == 0


def test_a_file_that_is_cut_short_is_no_table():
    table = Filed(2)
    table.add(np.ones((9, 2)))
    table._file.truncate(20)
    with pytest.raises(OSError, match="is the disk full"):
        table[:]
