"""Rows that are finished are made once, whatever happens between them."""

import os

import pytest

from synth.types import Problem, Quarantined
from tasks.lab.toy import problems
from tasks.storage import faults
from tasks.storage.finished import Finished

ROWS = [
    *problems(6),
    Quarantined(id="q", stage="s", reason="r", evidence="é\n\u2028"),
    None,
    [{"a": 0.1, "b": None}],
    "text\r\n",
]


def make(path, upto=len(ROWS)):
    """(what a run gets, the keys that it had to make)"""
    calls, finished = [], Finished(path, Problem, Quarantined)
    got = [finished(f"k/{i}", lambda i=i: calls.append(i) or ROWS[i]) for i in range(upto)]
    return got, calls


def test_nothing_is_made_twice(tmp_path):
    path = tmp_path / "new" / "rows.jsonl"
    assert make(path, 4) == (ROWS[:4], [0, 1, 2, 3])
    assert make(path) == (ROWS, list(range(4, len(ROWS))))
    before = path.read_bytes()
    assert make(path) == (ROWS, []) and path.read_bytes() == before


def test_cut_anywhere_the_rest_is_made_anew(tmp_path, capsys):
    path = tmp_path / "rows.jsonl"
    make(path)
    whole = path.read_bytes()
    for size in range(0, len(whole), 37):
        path.write_bytes(whole[:size])
        got, calls = make(path)
        assert got == ROWS and len(calls) == len(ROWS) - whole[:size].count(b"\n") and path.read_bytes() == whole
    assert capsys.readouterr().err == "", "an unfinished last line is what a kill leaves: no reason to warn"


def test_a_flipped_bit_is_noticed_and_what_follows_it_is_made_anew(tmp_path, capsys):
    path = tmp_path / "rows.jsonl"
    make(path)
    whole = path.read_bytes()
    for i in range(0, len(whole), 29):
        bad = bytearray(whole)
        bad[i] ^= 1 << (i % 8)
        path.write_bytes(bad)
        assert make(path)[0] == ROWS and path.read_bytes() == whole
    assert "rows are made anew" in capsys.readouterr().err


@pytest.mark.parametrize("point", ["rows.append", "rows.half"])
def test_a_full_disk_stops_and_the_next_run_goes_on(tmp_path, monkeypatch, point):
    path = tmp_path / "rows.jsonl"
    monkeypatch.setenv(faults.ARM, f"{point}:4=full")
    monkeypatch.setattr(faults, "_passed", faults.Counter())
    with pytest.raises(OSError, match=os.strerror(28)):
        make(path)
    monkeypatch.delenv(faults.ARM)
    assert make(path) == (ROWS, list(range(3, len(ROWS))))
