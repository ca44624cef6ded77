"""Rows of numbers in temporary files are those that were added."""

import numpy as np
import pytest

from synth.preferences.cleaners import _filed
from synth.preferences.cleaners._filed import Buckets, Filed


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
    assert np.array_equal(table.at(rows), want[rows]) and table.at(rows[:0]).shape == (0, 3)


def test_a_file_that_is_cut_short_is_no_table():
    table = Filed(2)
    table.add(np.ones((9, 2)))
    table._file.truncate(20)
    with pytest.raises(OSError, match="is the disk full"):
        table[:]


def test_records_of_one_key_are_in_one_part_in_order():
    rng = np.random.default_rng(3)
    key, row = rng.integers(40, size=500).astype(np.uint64), np.arange(500)
    with Buckets(7, [("key", np.uint64), ("row", np.int32)]) as buckets:
        for a in range(0, 500, 90):
            buckets.add(key[a : a + 90], key=key[a : a + 90], row=row[a : a + 90])
        parts = list(buckets.parts())
    assert sorted(np.concatenate([p["row"] for p in parts]).tolist()) == row.tolist()
    assert all(np.array_equal(key[p["row"]], p["key"]) and (np.diff(p["row"]) > 0).all() for p in parts)
    assert (
        len({k for p in parts for k in set(p["key"].tolist())}) == sum(len(set(p["key"].tolist())) for p in parts) == 40
    )
    with Buckets(0, [("row", np.int32)]) as none:
        assert list(none.parts()) == []
