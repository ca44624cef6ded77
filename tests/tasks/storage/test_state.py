"""Small state is whole or absent, and what an accident left of it is renamed aside with one sentence."""

import json
import os
import signal

import pytest

from tasks.storage import faults, state

VALUE = {"pid": 12, "started": "x", "share": 0.1 + 0.2, "text": "é\n\u2028", "list": [None, True]}


def test_what_is_written_is_read(tmp_path, capsys):
    path = tmp_path / "new" / "a.json"
    for value in (VALUE, {}, {"value": 1}):
        state.write(path, value)
        assert state.read(path, else_="x") == value
    assert state.read(tmp_path / "none.json", else_="x") is None
    assert [p.name for p in path.parent.iterdir()] == ["a.json"] and not capsys.readouterr().err


def test_a_file_from_before_checksums_is_read(tmp_path):
    (tmp_path / "a.json").write_text(json.dumps({"pid": 3, "started": "y"}))
    assert state.read(tmp_path / "a.json", else_="x", needs=("pid",)) == {"pid": 3, "started": "y"}


def test_every_flipped_bit_and_every_cut_is_seen(tmp_path):
    path = tmp_path / "a.json"
    state.write(path, VALUE)
    whole, aside = path.read_bytes(), tmp_path / f"a.json{state.ENDING}"
    harmless = 0
    for i in range(8 * len(whole)):
        data = bytearray(whole)
        data[i // 8] ^= 1 << i % 8
        path.write_bytes(data)
        value = state.read(path, else_="x", needs=("pid", "started"))
        assert value is None or value == VALUE, (i, value)
        aside.unlink(missing_ok=value is not None)  # of thousands aside each new one looks for a name for long
        harmless += value is not None
    assert harmless < 8, "white space and the digits of a number written another way, at most"
    for n in range(len(whole) - 1):
        path.write_bytes(whole[:n])
        assert state.read(path, else_="x") is None
        aside.unlink()


@pytest.mark.parametrize(
    ("how", "message"),
    [
        (lambda p: p.write_bytes(b""), "it is empty"),
        (lambda p: p.write_bytes(bytes(40)), "it is empty"),
        (lambda p: p.write_bytes(b"\xff\xfe"), "it is not JSON"),
        (lambda p: p.write_text("[1]"), "of another kind"),
        (lambda p: p.write_text('{"pid": 1}'), "it holds no 'started'"),
        (lambda p: p.write_text('{"version": 9, "sha256": "", "value": {}}'), "version 9, this code reads 1"),
        (lambda p: p.unlink() or p.mkdir(), "is a directory"),
    ],
)
def test_a_damaged_file_lies_aside_and_the_next_one_is_written(tmp_path, capsys, how, message):
    path = tmp_path / "a.json"
    for n in range(2):
        state.write(path, VALUE)
        how(path)
        assert state.read(path, else_="it is made anew", needs=("pid", "started")) is None
        err = capsys.readouterr().err
        assert message in err and err.rstrip().endswith(": it is made anew") and err.count("\n") == 1
        assert not path.exists() and len(list(tmp_path.glob(f"*{state.ENDING}"))) == n + 1, "none is lost"
    assert not list(tmp_path.glob("*.json")), "no pattern finds what lies aside"


def test_a_folder_in_its_place_does_not_stop_a_write(tmp_path, capsys):
    (tmp_path / "a.json" / "inside").mkdir(parents=True)
    state.write(tmp_path / "a.json", VALUE)
    assert (
        state.read(tmp_path / "a.json", else_="x") == VALUE and "a folder lies in its place" in capsys.readouterr().err
    )


def test_a_write_that_dies_leaves_the_old_value(tmp_path, monkeypatch):
    path = tmp_path / "a.json"
    state.write(path, {"n": 1})
    monkeypatch.setenv(faults.ARM, "state.rename=full")
    faults._passed.clear()
    with pytest.raises(OSError, match="No space"):
        state.write(path, {"n": 2})
    assert state.read(path, else_="x") == {"n": 1} and len(list(tmp_path.iterdir())) == 1
    pid = os.fork()
    if not pid:
        os.environ[faults.ARM] = "state.rename=kill"
        faults._passed.clear()
        state.write(path, {"n": 2})
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == signal.SIGKILL
    assert state.read(path, else_="x") == {"n": 1}


def test_the_order_of_a_write_is_flush_rename_flush(tmp_path, monkeypatch):
    """What a power cut may reorder is held together by two flushes: of the file before the rename, of the folder
    after it."""
    done = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda fd: done.append(("fsync", os.readlink(f"/proc/self/fd/{fd}"))) or fsync(fd))
    monkeypatch.setattr(os, "replace", lambda a, b: done.append(("rename", str(b))) or replace(a, b))
    state.write(tmp_path / "a.json", VALUE)
    (first, temporary), second, third = done
    assert first == "fsync" and temporary.endswith(".part")
    assert second == ("rename", str(tmp_path / "a.json")) and third == ("fsync", str(tmp_path))


def test_lines():
    text = json.dumps(VALUE).encode()
    whole = state.line(text)
    assert state.opened(whole) == text
    for i in range(8 * len(whole)):
        data = bytearray(whole)
        data[i // 8] ^= 1 << i % 8
        assert state.opened(bytes(data)) is None
    assert state.opened(whole[:-1]) is None and state.opened(b"") is None
