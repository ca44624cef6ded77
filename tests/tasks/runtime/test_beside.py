"""Work in a copy of this process: what it returns, raises, and what happens when it is ended."""

import os
import signal
import threading
import time

import pytest

from tasks.core.errors import UserError
from tasks.runtime import beside as module
from tasks.runtime.beside import beside, can_fork


@pytest.fixture(params=[True, False], ids=["copied", "here"])
def copied(request, monkeypatch):
    monkeypatch.setattr(module, "can_fork", lambda: request.param)
    return request.param


def test_it_returns_what_the_work_returns_and_shares_what_is_in_memory(copied):
    here, many = os.getpid(), list(range(1000))
    with beside("it", lambda: (os.getpid(), sum(many))) as answer:
        pid, total = answer()
    assert total == 499_500 and (pid != here) is copied


def test_it_works_beside_the_block(copied, tmp_path):
    def work() -> None:
        (tmp_path / "begun").touch()

    with beside("it", work) as answer:
        limit = time.monotonic() + 20
        while not (tmp_path / "begun").exists() and time.monotonic() < limit:
            time.sleep(0.01)
        assert (tmp_path / "begun").exists()
        assert answer() is None


def test_what_the_work_raises_is_raised_here(copied):
    def work() -> None:
        raise ValueError("two pages have the id 'x'")

    with pytest.raises(ValueError, match="two pages have the id 'x'"), beside("it", work) as answer:
        answer()


def test_a_killed_copy_is_one_sentence(monkeypatch):
    monkeypatch.setattr(module, "can_fork", lambda: True)
    with (
        pytest.raises(
            UserError, match=r"^the tables: the process that writes them was ended by SIGKILL; run it again$"
        ),
        beside("the tables", lambda: os.kill(os.getpid(), signal.SIGKILL)) as answer,
    ):
        answer()


def test_a_block_that_is_left_ends_the_copy(monkeypatch, tmp_path):
    monkeypatch.setattr(module, "can_fork", lambda: True)

    def work() -> None:
        (tmp_path / "pid").write_text(str(os.getpid()))
        (tmp_path / "ready").touch()
        time.sleep(60)

    with pytest.raises(KeyboardInterrupt), beside("it", work):
        limit = time.monotonic() + 20
        while not (tmp_path / "ready").exists() and time.monotonic() < limit:
            time.sleep(0.01)
        raise KeyboardInterrupt
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_another_thread_or_one_core_forbids_a_copy(monkeypatch):
    monkeypatch.setattr(module.threading, "active_count", lambda: 1)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1}, raising=False)
    monkeypatch.setattr(module.sys, "platform", "linux")
    assert can_fork()
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0}, raising=False)
    assert not can_fork()
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1}, raising=False)
    monkeypatch.undo()
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait)
    thread.start()
    try:
        assert not can_fork()
    finally:
        stop.set()
        thread.join()
