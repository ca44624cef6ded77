"""`espalier run` on a machine that does not play along: one sentence, the right exit code, and the next run goes on.

The stages are toys (tests/support/toy.py); what happens inside a real stage is in tests/tasks/runtime/test_resume.py.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest
import room
import toy

from tasks.runtime import dvc

pytestmark = pytest.mark.slow
PATIENCE = 600.0  # seconds: a bound on waiting that only a failure reaches
ESPALIER = [sys.executable, "-c", "import sys; from flows.cli import main; sys.exit(main())"]


@pytest.fixture(scope="module")
def pristine(tmp_path_factory):
    return toy.pristine(tmp_path_factory)


@pytest.fixture
def repo(pristine, tmp_path):
    root = shutil.copytree(pristine, tmp_path / "repo", symlinks=True)
    change(root, 1)
    return root


def change(root, episodes):
    """Another number for the last stage: `plan` and `report` are due."""
    (root / "params.yaml").write_text(
        f"recipe: grpo\nprofile: cpu\ntracking: off\nset: {{report: {{episodes: {episodes}}}}}\n"
    )


def start(root, *args):
    """`espalier ...` in a process group of its own, as a terminal would start it."""
    env = {**toy.environment(), "PYTHONPATH": str(root)}
    return subprocess.Popen(
        [*ESPALIER, *args],
        cwd=root,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def espalier(root, *args, code=0):
    child = start(root, *args)
    output, _ = child.communicate(timeout=PATIENCE)
    assert child.returncode == code, output
    return output


@contextlib.contextmanager
def under_way(root):
    """A run whose last stage takes its time."""
    (root / "slow-report").write_text("600")
    child = start(root, "run")
    try:
        until(lambda: toy.processes(root) or child.poll() is not None)
        assert child.poll() is None, child.communicate()[0]
        yield child
    finally:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def until(true):
    end = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.1)


@pytest.mark.parametrize(
    "number, code, words",
    [
        (signal.SIGTERM, 143, "run: ended by SIGTERM; what is finished is kept"),
        (signal.SIGINT, 130, "run: interrupted"),
    ],
)
def test_asked_to_end(repo, number, code, words):
    """SIGTERM reaches the command alone, Ctrl-C every process of the terminal."""
    with under_way(repo) as child:
        os.kill(child.pid, number) if number == signal.SIGTERM else os.killpg(child.pid, number)
        output, _ = child.communicate(timeout=PATIENCE)
        assert child.returncode == code and output.count(words) == 1, output
        until(lambda: not toy.processes(repo))
    (repo / "slow-report").unlink()
    assert "Running stage 'report'" in espalier(repo, "run")
    assert json.loads((repo / "reports/card.json").read_text())["params"]["episodes"] == 1


@pytest.mark.parametrize(
    "ended, code", [("75", 75), ("-9", 75), ("143", 75), ("2", 1)], ids=["75", "SIGKILL", "143", "its own fault"]
)
def test_a_stage_that_may_succeed_when_it_is_tried_again_gives_code_75(repo, ended, code):
    """As batch systems read it; `dvc repro` gives 255 for all of them."""
    (repo / "fail-report").write_text(ended)
    assert "The run stopped" in espalier(repo, "run", "--stage", "report", code=code)
    if ended == "75":
        espalier(repo, "run", "--set", "report.episodes=3", code=75)
    if ended != "143":
        espalier(repo, "run", "--jobs", "2", code=code)
        (repo / "fail-report").unlink()
        assert "Running stage 'report'" in espalier(repo, "run", "-q") or (repo / "reports/card.json").exists()


def test_one_stage_and_what_it_reads(repo):
    (repo / "params.yaml").write_text(
        "recipe: grpo\nprofile: cpu\ntracking: off\nset: {report: {episodes: 5}, sft: {steps: 7}}\n"
    )
    would = espalier(repo, "run", "--stage", "sft", "--dry-run")
    assert "  sft" in would and "report" not in would and "evaluate" not in would
    ran = espalier(repo, "run", "--stage", "sft")
    assert "Running stage 'sft'" in ran and "Running stage 'rl'" not in ran
    assert "did you mean 'sft'" in espalier(repo, "run", "--stage", "sfft", code=2)
    assert "leave --stage or --watch out" in espalier(repo, "run", "--stage", "rl", "--watch", code=2)
    ran = espalier(repo, "run", "--stage", "evaluate", "--jobs", "2")
    assert "rl: Running stage 'rl'" in ran and "report" not in ran.replace("reports", "")


def test_a_second_run_in_the_same_checkout(repo):
    with under_way(repo):
        output = espalier(repo, "run", code=2)
        assert output == f"error: another run is under way in {repo}: wait for it, or work in a second clone\n"
        assert espalier(repo, "gc", code=2) == output
        assert espalier(repo, "run", "--dry-run", code=2).startswith(
            f"error: another run is under way in {repo}, and DVC answers no questions"
        )
        assert toy.processes(repo), "the first goes on"


def test_locks_left_by_dead_processes_hold_nobody(repo):
    gone = subprocess.Popen(["true"])
    gone.wait()
    (repo / ".espalier").mkdir()
    (repo / ".espalier/lock").write_text(str(gone.pid))
    held = {str(repo / out): {"pid": gone.pid, "cmd": "dvc repro"} for out in ("reports", "artifacts/plan")}
    (repo / ".dvc/tmp").mkdir(exist_ok=True)
    (repo / ".dvc/tmp/rwlock").write_text(json.dumps({"write": held, "read": {}}))
    (repo / ".dvc/tmp/lock").write_text(f" {gone.pid}\n")
    output = espalier(repo, "run")
    assert "Running stage 'report'" in output and "RWLock" not in output


def test_a_read_only_checkout_and_a_full_disk(pristine, tmp_path):
    with room.mounted(tmp_path / "room", 64) as disk:
        repo = shutil.copytree(pristine, disk.folder / "repo", symlinks=True)
        change(repo, 2)
        before = (repo / "reports/card.json").read_bytes()
        disk.remount("ro")
        for command in (["run"], ["gc"], ["run", "--watch"]):
            output = espalier(repo, *command, code=2)
            assert (
                output.splitlines()[-1].startswith(f"error: {repo}/.espalier")
                and "read-only file system: make it writable" in output
            ), output
            assert "Traceback" not in output
        disk.remount("rw")
        disk.leave(0)
        output = espalier(repo, "run", code=2)
        assert output.count("\n") == 1 and "no space left on device: free some space (`espalier gc`" in output, output
        assert (repo / "reports/card.json").read_bytes() == before
        disk.leave(16 << 20)
        assert "Running stage 'report'" in espalier(repo, "run")


def test_a_run_of_prefect_waits_for_the_other(tmp_path):
    """Where the command line refuses, a scheduled run says that it is queued, once, and begins when the other has
    ended."""
    script = "import sys; from pathlib import Path; from tasks.runtime import dvc\nwith dvc.alone(Path.cwd()):\n    print('held', flush=True)\n    sys.stdin.read()"
    env = {**os.environ, "PYTHONPATH": str(toy.CODE)}
    other = subprocess.Popen(
        [sys.executable, "-c", script], cwd=tmp_path, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert other.stdout.readline() == b"held\n"
    told = []
    with dvc.alone(tmp_path, queue=lambda: told.append(other.poll()) or other.stdin.close()):
        assert told == [None], "it was told while the other still held the lock"
        assert other.wait(PATIENCE) == 0
