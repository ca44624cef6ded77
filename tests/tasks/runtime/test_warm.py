"""The process that has imported torch: a stage that it runs is to the one that asked what a process of its own would be."""

import os
import signal
import socket
import subprocess
import sys
import time

import pytest

from tasks.core.paths import CODE
from tasks.runtime import process, warm

pytestmark = pytest.mark.skipif(not warm.possible(), reason="forks are watched by pidfd_open, which is Linux's")

ASK = "import sys; from tasks.runtime import warm; code = warm.asked('work', 2); print('cold' if code is None else f'code {code}')"
WAITS = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"


@pytest.fixture
def ask(tmp_path, monkeypatch):
    """Starts a process that asks for a module of this text; the server has loaded its packages."""
    # `-P` keeps the working directory out of the path of the server, and PYTHONPATH brings the module
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), str(CODE)]))
    monkeypatch.delenv(warm.SOCKET, raising=False)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)

    def start(text, *, script=ASK, **env):
        (tmp_path / "work.py").write_text(text)
        environ = {**os.environ, **variables, **env}
        return subprocess.Popen(
            [sys.executable, "-P", "-c", script], cwd=tmp_path, env=environ, stdout=subprocess.PIPE, text=True
        )

    with warm.beside(2, ("fractions",)) as variables:
        until = time.monotonic() + 30
        while start("pass").communicate()[0] != "code 0\n":  # the first question only begins the imports
            assert time.monotonic() < until
        yield start


def ended(pid):
    until = time.monotonic() + 20
    while process.look(pid) is not None and time.monotonic() < until:
        time.sleep(0.02)
    return process.look(pid) is None


def test_a_stage_has_the_streams_environment_and_folder_of_the_one_that_asked(ask, tmp_path):
    text = (
        "import os, sys; print(__name__, 'fractions' in sys.modules, os.getcwd(), os.environ['MINE'], sys.argv);"
        " print(os.environ.get('ESPALIER_WARM'), os.environ['OMP_NUM_THREADS']); sys.exit(7)"
    )
    shown, _ = ask(text, MINE="a=b\nü", OMP_NUM_THREADS="2").communicate(timeout=30)
    assert shown.splitlines() == [
        f"__main__ True {tmp_path} a=b",
        "ü ['" + str(tmp_path / "work.py") + "']",
        "None 2",
        "code 7",
    ]


def test_each_stage_runs_the_code_on_the_disk(ask):
    assert ask("print('one')").communicate(timeout=30)[0] == "one\ncode 0\n"
    assert ask("print('another')").communicate(timeout=30)[0] == "another\ncode 0\n"


def test_threads_are_those_that_openmp_was_loaded_with(ask):
    assert ask("print('ran')", script=ASK.replace("2)", "3)")).communicate(timeout=30)[0] == "cold\n"


def test_a_traceback_is_code_1_and_a_signal_ends_the_one_that_asked_too(ask, capfd):
    assert ask("raise ValueError('this one')").communicate(timeout=30)[0] == "code 1\n"
    assert "this one" in capfd.readouterr().err
    child = ask("import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    assert child.wait(timeout=30) == -signal.SIGKILL


def test_sigterm_reaches_the_stage_and_its_code_comes_back(ask):
    text = (
        "import os, signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: sys.exit(143));"
        " print(os.getpid(), flush=True); [time.sleep(0.05) for _ in range(1200)]"  # no signal is lost for long
    )
    child = ask(text)
    pid = int(child.stdout.readline())
    assert pid != child.pid
    child.terminate()
    assert child.communicate(timeout=30)[0] == "code 143\n" and ended(pid)


def test_sigterm_that_comes_before_the_id_of_the_stage_reaches_it(tmp_path):
    """A server of this test's own says the id when it wants."""
    text = "import time; print('up', flush=True); [time.sleep(0.05) for _ in range(1200)]"
    stage = subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, text=True)
    stage.stdout.readline()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen()
        env = {**os.environ, warm.SOCKET: f"{tmp_path / 's'}:2", "PYTHONPATH": str(CODE)}
        child = subprocess.Popen([sys.executable, "-P", "-c", ASK], env=env, stdout=subprocess.PIPE, text=True)
        line, _ = listener.accept()
        with line:
            line.sendall(b"!")
            while not line.recv(65536).endswith(b"\n"):
                pass
            child.terminate()
            line.sendall(f"{stage.pid}\n".encode())
            assert stage.wait(timeout=30) == -signal.SIGTERM
            line.sendall(b"3\n")
            assert child.communicate(timeout=30)[0] == "code 3\n"


def test_a_stage_ends_with_the_one_that_asked(ask):
    child = ask(WAITS)
    pid = int(child.stdout.readline())
    child.kill()
    assert ended(pid)
    assert ask("print('next')").communicate(timeout=30)[0] == "next\ncode 0\n"


def test_a_server_that_is_killed_takes_its_stage_along(ask, capfd):
    child = ask(WAITS)
    pid = int(child.stdout.readline())
    os.kill(process.look(pid).parent, signal.SIGKILL)
    assert child.communicate(timeout=30)[0] == "code 75\n" and ended(pid)
    assert "was ended: run it again" in capfd.readouterr().err
    assert ask("pass").communicate(timeout=30)[0] == "cold\n"  # nobody answers: as if there were no server


def test_the_server_ends_with_the_run(monkeypatch):
    script = (
        "import sys\nfrom tasks.runtime import warm\nwith warm.beside(2, ()) as found:\n"
        "    print(next(iter(found.values())), flush=True); sys.stdin.read()"
    )
    monkeypatch.delenv(warm.SOCKET, raising=False)
    run = subprocess.Popen(
        [sys.executable, "-P", "-c", script], cwd=CODE, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    path = run.stdout.readline().rpartition(":")[0]
    until = time.monotonic() + 30
    while not (server := [p for p in process.psutil.Process(run.pid).children() if path in p.cmdline()]):
        assert time.monotonic() < until
    run.kill()
    assert ended(server[0].pid)


def test_it_is_switched_off_by_a_variable(monkeypatch):
    monkeypatch.setenv(warm.SOCKET, "")
    with warm.beside(2) as variables:
        assert variables == {}
    assert warm.asked("work", 2) is None
