"""What is known of texts lies on disk."""

import errno
from concurrent.futures import ThreadPoolExecutor

import pytest
from traced import traced

from synth.lookup import Lookup


def test_it_is_a_mapping():
    known = Lookup[str]()
    known["b"], known["a"], known["\ud83d é\n"] = "one", "two", "\ude00"
    assert dict(known) == {"a": "two", "b": "one", "\ud83d é\n": "\ude00"} and len(known) == 3
    known["a"] = "three"
    assert known["a"] == "three" and known.get("c") is None and "c" not in known and list(known)[0] == "a"
    with pytest.raises(KeyError, match="c"):
        known["c"]
    places = Lookup[int]()
    places["x"] = 2**62
    assert places["x"] == 2**62 and places.get("b") is None, "each has its own file"


def test_memory_does_not_grow_with_what_is_known():
    def fill():
        known = Lookup[str]()
        for i in range(20_000):
            known[f"{i:020d}"] = f"train {i:020d}"
        assert len(known) == 20_000
        return known

    Lookup[str]()["first"] = "1"  # what is imported late is there
    size, _ = traced(fill)
    assert size < 20_000, size
    known = Lookup[str]()
    known["first"] = "1"
    (pages,) = known._db.execute("PRAGMA cache_size").fetchone()
    assert -8192 <= pages < 0, "KiB that SQLite holds"


def test_a_full_disk_is_an_error_of_the_system():
    known = Lookup[str]()
    known._db.execute("PRAGMA max_page_count = 20")
    with pytest.raises(OSError, match="temporary folder") as e:
        for i in range(9_000):
            known[f"{i}"] = "x" * 99
    assert e.value.errno == errno.ENOSPC


def test_threads_share_it():
    known = Lookup[int]()

    def some(k):
        for i in range(k, 4000, 4):
            known[f"{i}"] = i
            assert known[f"{i}"] == i and known.get(f"{i - 4}", i - 4) == i - 4

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(some, range(4)))
    assert {int(k): v for k, v in known.items()} == {i: i for i in range(4000)}
