"""Processes: groups that are run and ended as a whole, and that end with who started them."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tasks.runtime import process

CODE = Path(process.__file__).parents[1]
# Starts a child that shrugs SIGTERM off, says both ids, and waits.
FAMILY = """
import os, signal, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c",
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); time.sleep(600)"], stdout=subprocess.PIPE)
child.stdout.readline()
print(os.getpid(), child.pid, flush=True)
time.sleep(600)
"""


def run(script, each, **more):
    return process.run_group([sys.executable, "-c", script], cwd=CODE, env=dict(os.environ), each=each, **more)


def gone(pids, seconds=300.0):
    """Whether none of the processes is left, within `seconds`: a bound on waiting, reached by a failure only."""
    until = time.monotonic() + seconds
    while any(process.look(p) for p in pids):
        if time.monotonic() > until:
            return False
        time.sleep(0.05)
    return True


def test_lines_and_the_exit_code():
    lines = []
    assert run("import sys; print('a'); print('b', file=sys.stderr, flush=True); sys.exit(7)", lines.append) == 7
    assert sorted(lines) == ["a", "b"]


@pytest.fixture
def hasty(monkeypatch):
    monkeypatch.setattr(process, "end_group", lambda group, end=process.end_group: end(group, grace=0.5))


def test_a_time_out_ends_the_whole_group(hasty):
    pids = []
    for seconds in (5, 60, 600):  # longer where a busy machine had not started both in time
        with pytest.raises(TimeoutError, match=f"did not end within {seconds} seconds"):
            run(FAMILY, lambda line: pids.extend(map(int, line.split())), seconds=seconds)
        if pids:
            break
    assert len(pids) == 2 and gone(pids)


def test_an_error_of_the_listener_ends_the_whole_group(hasty):
    pids = []

    def listen(line):
        pids.extend(map(int, line.split()))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(FAMILY, listen)
    assert len(pids) == 2 and gone(pids)


@pytest.mark.parametrize("grace", [0, 0.2])
def test_a_group_is_gone_when_its_end_returns(grace):
    """A process that is killed runs on until its turn comes: so many that some have not had it when the signal is sent."""
    script = (
        "import subprocess, sys, time\n"
        "code = 'import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(0, flush=True)\\nwhile True: pass'\n"
        "children = [subprocess.Popen([sys.executable, '-S', '-c', code], stdout=subprocess.PIPE) for _ in range(20)]\n"
        "print(*(c.pid for c in children if c.stdout.readline()), flush=True)\n"
        "time.sleep(600)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, start_new_session=True)
    children = [int(x) for x in parent.stdout.readline().split()]
    assert len(children) == 20 and all(map(process.look, children))
    process.end_group(parent.pid, grace=grace)
    assert not any(map(process.look, [parent.pid, *children]))
    parent.communicate()


def test_a_command_ends_with_who_started_it():
    """A process that is killed cannot tidy up: what it started through `python -m tasks.runtime.process` sees that it
    is gone."""
    script = (
        "import subprocess\n"
        "from tasks.runtime.process import ending_with_us\n"
        "child = subprocess.Popen(ending_with_us('http.server', '0', '--bind', '127.0.0.1'), start_new_session=True,"
        " stdout=subprocess.PIPE, env={**__import__('os').environ, 'PYTHONUNBUFFERED': '1'})\n"
        "child.stdout.readline()\n"
        "print(child.pid, flush=True)\n"
        "child.wait()\n"
    )
    starter = subprocess.Popen([sys.executable, "-c", script], cwd=CODE, stdout=subprocess.PIPE, text=True)
    child = int(starter.stdout.readline())
    assert process.look(child) is not None
    starter.kill()
    starter.wait()
    assert gone([child])


def test_a_command_whose_starter_is_gone_before_it_could_look_ends_at_once(tmp_path):
    script = "import json; from tasks.runtime.process import ending_with_us; print(json.dumps(ending_with_us('http.server', '0')))"
    command = json.loads(
        subprocess.run([sys.executable, "-c", script], cwd=CODE, capture_output=True, text=True, check=True).stdout
    )
    assert subprocess.run(command, cwd=CODE, capture_output=True, timeout=600).returncode == -signal.SIGTERM


@pytest.mark.parametrize("gone_already", [True, False])
def test_a_stage_whose_dvc_is_gone_before_it_could_look_ends_at_once(gone_already):
    """Whoever waits for orphans here, and whatever the first process of this machine is called."""
    stage = "from tasks.runtime import process; process.end_with_starters(); import time; time.sleep(.3); print('on')"
    dvc = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    name = f"{dvc.pid}/{process.look(dvc.pid).started}"
    try:
        if gone_already:
            dvc.communicate()
        done = subprocess.run(
            [sys.executable, "-c", stage], cwd=CODE, env={**os.environ, process.STARTER: name}, capture_output=True
        )
    finally:
        dvc.communicate()
    assert (done.returncode, done.stdout) == ((-signal.SIGTERM, b"") if gone_already else (0, b"on\n"))


def test_alive_knows_a_process_from_a_later_one_with_its_id():
    me = process.look(os.getpid())
    assert (
        process.alive(me.pid, me.started)
        and not process.alive(me.pid, "0")
        and not process.alive(2**22 + 1, me.started)
    )
