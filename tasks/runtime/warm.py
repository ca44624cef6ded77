"""One process that has imported torch and transformers and forks for each stage of a run: importing them takes longer
than many a stage on small data.

`espalier run` starts it beside DVC (`beside`). DVC starts every stage as a process of its own, as always; that one asks
here (`asked`) and, where it gets an answer, waits for a fork that runs in its place: with its environment, working
directory, terminal and exit code. Only other people's packages are imported before the fork, so a stage runs the code
that lies on disk when it starts. The first stage of a run gets none (the imports begin with its question, so a run that
has nothing to do imports nothing), and neither does a stage on an accelerator, one whose number of threads is another
(OpenMP reads it when torch is loaded), one of several processes, and any where the kernel is not Linux. Whoever gets no
answer runs as it would without this file.

Who ends with whom: the process that asked and the fork (either way, and with the same code or signal), and the server
with the run that started it.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tasks.core.errors import TRANSIENT
from tasks.runtime import process
from tasks.runtime.threads import settings

SOCKET = "ESPALIER_WARM"  # the server's socket and its number of threads, "path:2"; "" switches it off
PATIENCE = 0.5  # seconds that a stage waits for the server to answer: it is importing, or busy with another
PASSED_ON = {signal.SIGTERM}
PACKAGES = (
    "pandas",
    "pandera.pandas",
    "torch",
    "transformers.models.auto.modeling_auto",
    "transformers.models.auto.tokenization_auto",
    "transformers.models.qwen3.modeling_qwen3",
)


def possible() -> bool:
    """Whether this system can: the server waits for its forks by `pidfd_open`, and a fork of a process that has loaded
    torch is sound on Linux."""
    return hasattr(os, "pidfd_open") and hasattr(socket, "send_fds")


@contextmanager
def beside(threads: int, packages: tuple[str, ...] = PACKAGES) -> Iterator[dict[str, str]]:
    """Starts the server and ends it with the block. Gives the variables of the environment by which stages find it, {}
    where it is not possible or ESPALIER_WARM is set already.

    threads: those of the stages that will ask.
    """
    if not possible() or SOCKET in os.environ:
        yield {}
        return
    with tempfile.TemporaryDirectory(prefix="espalier-warm-", ignore_cleanup_errors=True) as folder:
        path = str(Path(folder) / "s")  # the path of a socket has 107 bytes at most
        command = [sys.executable, "-P", "-m", "tasks.runtime.warm", path, *packages]
        env = {**os.environ, **settings(threads), "PYTHONUNBUFFERED": "1"}
        server = subprocess.Popen(command, stdin=subprocess.PIPE, env=env)
        try:
            yield {SOCKET: f"{path}:{threads}"}
        finally:
            assert server.stdin is not None
            server.stdin.close()  # it ends, after the stage that it waits for
            try:
                server.wait(timeout=process.GRACE)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()


def asked(module: str, threads: int) -> int | None:
    """Have the server run `python -m module` in the place of this process; its exit code, None where nobody did.

    A signal that ended the fork ends this process too.
    """
    path, _, theirs = os.environ.pop(SOCKET, "").rpartition(":")
    if not path or int(theirs) != threads:
        return None
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
        try:
            line.settimeout(PATIENCE)
            line.connect(path)
            if line.recv(1) != b"!":
                return None
        except OSError:
            return None
        line.settimeout(None)
        signal.pthread_sigmask(signal.SIG_BLOCK, PASSED_ON)  # until it is known to which process
        request = {"module": module, "cwd": os.getcwd(), "env": dict(os.environ), "pid": os.getpid()}
        sys.stdout.flush()
        sys.stderr.flush()
        socket.send_fds(line, [b"+"], [0, 1, 2])
        line.sendall(json.dumps(request).encode() + b"\n")
        return _waited(line)


def _waited(line: socket.socket) -> int:
    """The exit code of the fork, whose id and end the server writes."""
    fork = process.look(int(_answer(line, []) or 0))
    if fork is not None:
        signal.signal(signal.SIGTERM, lambda *_: os.kill(fork.pid, signal.SIGTERM))
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the fork too, which is of our process group
    # a signal also writes to a socket: Python would not see one that comes just before a read until that returns
    woken, waker = socket.socketpair()
    waker.setblocking(False)
    before = signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED_ON)
    with woken, waker:
        end = _answer(line, [woken])
        signal.set_wakeup_fd(before)
    if end:
        code = int(end)
        if code < 0:
            with contextlib.suppress(OSError):  # SIGKILL has no handler
                signal.signal(-code, signal.SIG_DFL)
            os.kill(os.getpid(), -code)
        return code
    if fork is not None and process.alive(fork.pid, fork.started):
        os.kill(fork.pid, signal.SIGKILL)
    print("error: the process that had loaded torch for the run was ended: run it again", file=sys.stderr)
    return TRANSIENT


def _answer(line: socket.socket, others: list[socket.socket]) -> bytes:
    """The next line of the server; empty: it is gone. What comes over the other sockets is dropped."""
    text = b""
    while not text.endswith(b"\n"):
        ready = select.select([line, *others], [], [])[0]
        for other in set(ready) - {line}:
            other.recv(64)
        if line in ready:
            if not (byte := line.recv(1)):
                return b""
            text += byte
    return text


def serve(path: str, packages: tuple[str, ...]) -> str | None:
    """Answers one stage after the other until standard input ends. Returns the name of a module in each fork, which is
    to run it, and None in the server at the end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    loaded = False
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(path)
        listener.listen()
        while 0 not in select.select([0, listener], [], [])[0]:
            line, _ = listener.accept()
            with line:
                if not loaded:
                    line.close()
                    for package in packages:
                        with contextlib.suppress(ImportError):  # whoever needs it says so
                            importlib.import_module(package)
                    loaded = True
                elif (request := _heard(line)) is not None and (module := _forked(line, listener, *request)):
                    return module
    return None


def _heard(line: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """What a stage asks for and its three streams; None if it does not wait any more."""
    try:
        line.sendall(b"!")
        sign, streams, _, _ = socket.recv_fds(line, 1, 3)
        if sign:
            with line.makefile("r", encoding="utf-8") as text:
                return json.loads(text.readline()), streams
    except OSError:
        pass
    return None


def _forked(line: socket.socket, listener: socket.socket, request: dict[str, Any], streams: list[int]) -> str | None:
    """Forks. In the fork, the module to run; in the server None, once the fork has ended."""
    pid = os.fork()
    if pid == 0:
        line.close()
        listener.close()
        _become(request, streams)
        return request["module"]
    for stream in streams:
        os.close(stream)
    with contextlib.suppress(OSError):
        line.sendall(f"{pid}\n".encode())
    end = os.pidfd_open(pid)
    others: list[Any] = [0, line]
    while end not in (ready := select.select([end, *others], [], [])[0]):
        if line in ready:  # it says nothing more: it is gone
            os.kill(pid, signal.SIGKILL)
        others = [other for other in others if other not in ready]  # a run that is gone: the fork sees it itself
    os.close(end)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    with contextlib.suppress(OSError):
        line.sendall(f"{code}\n".encode())
    return None


def _become(request: dict[str, Any], streams: list[int]) -> None:
    """Be the process that asked: its streams, working directory and environment; end with it."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    signal.signal(signal.SIGINT, signal.default_int_handler)
    asker = process.look(request["pid"])
    if asker is None:
        os.kill(os.getpid(), signal.SIGKILL)
    else:
        process.end_with([asker])


if __name__ == "__main__":
    name = serve(sys.argv[1], tuple(sys.argv[2:]))
    if name is not None:
        sys.argv[:] = [name]
        runpy.run_module(name, run_name="__main__", alter_sys=True)
