"""A stage's outputs are whole or absent, its work folder survives a death, and it does not outlive the process that
started it."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from sealed import seal

from tasks.core.errors import UserError
from tasks.results import garbage
from tasks.results.snapshots import cache
from tasks.runtime import dvc, process
from tasks.runtime.progress import Progress
from tasks.runtime.stage import Stage

CODE = Path(__file__).parents[3]


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dvc.yaml").write_text(
        "stages:\n  kb: {cmd: x, deps: [artifacts/plan/kb.json, data], outs: [artifacts/kb]}\n"
        "  questions: {cmd: x, deps: [artifacts/plan/questions.json, artifacts/kb], outs: [artifacts/questions]}\n"
    )
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "facts.csv").write_text("a,b,c\n")
    return tmp_path


def test_outputs_move_into_place_whole(root):
    old = root / "artifacts/kb"
    old.mkdir(parents=True)
    (old / "stale.txt").write_text("from an earlier run")
    stage = Stage("kb", root=root)
    with stage.running():
        (stage.out / "new.txt").write_text("x")
        assert (old / "stale.txt").exists(), "nothing changes before the end"
    assert sorted(p.name for p in old.iterdir()) == ["manifest.json", "new.txt"]
    assert not stage.work.exists()
    assert set(stage.measured()["kb"]) == {"seconds", "peak_rss_mb"}


def test_a_death_leaves_outputs_alone_and_work_to_resume_from(root):
    stage = Stage("kb", root=root)
    with pytest.raises(RuntimeError), stage.running():
        (stage.out / "half.txt").write_text("x")
        (stage.work / "rows.jsonl").write_text("done 1\n")
        raise RuntimeError("killed")
    assert not (root / "artifacts/kb").exists()
    again = Stage("kb", root=root)
    assert again.resumed and (again.work / "rows.jsonl").read_text() == "done 1\n"
    with again.running():
        assert not (again.out / "half.txt").exists(), "half-written outputs are not resumed"
        (again.out / "whole.txt").write_text("x")
    assert (root / "artifacts/kb/whole.txt").exists()


def test_identity_follows_plan_and_inputs(root):
    one = Stage("kb", plan={"params": {"a": 1}}, root=root).identity
    assert Stage("kb", plan={"params": {"a": 1}}, root=root).identity == one
    assert Stage("kb", plan={"params": {"a": 2}}, root=root).identity != one
    (root / "data" / "facts.csv").write_text("a,b,d\n")
    assert Stage("kb", plan={"params": {"a": 1}}, root=root).identity != one


def test_one_at_a_time(root):
    with Stage("kb", root=root).running() as first:
        with (
            pytest.raises(UserError, match=rf"kb already runs .*process {os.getpid()}"),
            Stage("kb", root=root).running(),
        ):
            pass
        (first.out / "x").write_text("x")


def test_writing_nothing_is_an_error(root):
    with pytest.raises(AssertionError, match="without writing"), Stage("kb", root=root).running():
        pass


def test_only_what_dvc_tracks_can_be_read(root):
    kb, questions = Stage("kb", root=root), Stage("questions", root=root)
    assert kb.source("data/facts.csv") == root / "data/facts.csv"
    with pytest.raises(UserError, match="does not exist.*params.yaml"):
        kb.source("data/none.csv")
    (root / "elsewhere.csv").write_text("x")
    with pytest.raises(UserError, match="not among its deps"):
        kb.source("elsewhere.csv")
    with pytest.raises(UserError, match="artifacts/kb/facts.parquet does not exist: run `dvc repro kb`"):
        questions.input("kb", "facts.parquet")
    with pytest.raises(UserError, match="not among its deps"):
        questions.input("sft", "model")


def test_a_card_that_lost_rows_is_refused(root):
    stage = Stage("kb", root=root)
    with pytest.raises(AssertionError, match="lost rows: produced 5, accepted 3, quarantined 1"):
        stage.card({"produced": 5, "accepted": 3, "quarantined": {"duplicate": 1}})
    stage.card({"produced": 5, "accepted": 3, "quarantined": {"duplicate": 1, "missing": 1}})
    assert json.loads((stage.out / "card.json").read_text())["stage"] == "kb"


SCRIPT = """
import sys, types
sys.path.insert(0, {code!r})
import tasks.stages
module = types.ModuleType("tasks.stages.kb")
def kb(stage, *, rows=3):
{body}
module.kb = kb
sys.modules["tasks.stages.kb"] = module
from tasks.run import run_stage
run_stage("kb")
"""


def script(root, body):
    (root / "artifacts/plan").mkdir(parents=True, exist_ok=True)
    (root / "artifacts/plan/kb.json").write_text(json.dumps({"params": {"rows": 3}}))
    seal(root)
    path = root / "stage.py"
    path.write_text(SCRIPT.format(code=str(CODE), body="\n".join("    " + line for line in body.splitlines())))
    return path


@pytest.mark.parametrize(
    "body, code, words",
    [
        ("stage.out.joinpath('x').write_text(str(rows))", 0, ""),
        ("raise ValueError('no rows left: lower `least`')", 2, "error: kb: no rows left: lower `least`\n"),
        ("stage.source('data/none.csv')", 2, "error: kb: data/none.csv does not exist"),
        ("{}['missing']", 1, "Traceback"),
    ],
)
def test_errors_are_one_sentence_or_a_traceback(root, body, code, words):
    done = subprocess.run([sys.executable, script(root, body)], cwd=root, capture_output=True, text=True)
    assert done.returncode == code and words in done.stderr, done.stderr
    if code == 2:
        assert done.stderr.count("\n") == 1


def test_a_missing_plan_says_what_to_run(root):
    path = script(root, "pass")
    (root / "artifacts/plan/kb.json").unlink()
    done = subprocess.run([sys.executable, path], cwd=root, capture_output=True, text=True)
    assert done.returncode == 2 and "dvc repro kb" in done.stderr


def test_a_stage_ends_when_the_process_above_its_shell_is_killed(root):
    """As DVC does: it starts a shell that starts the stage. Killing DVC kills neither."""
    path = script(
        root, "stage.work.joinpath('begun').write_text('x')\nimport time\nfor _ in range(600): time.sleep(0.1)"
    )
    starter = subprocess.Popen(
        [
            sys.executable,
            "-c",
            f"import subprocess; subprocess.run(['/bin/sh', '-c', '{sys.executable} {path}; true'])",
        ],
        cwd=root,
        start_new_session=True,
    )
    try:
        begun = _until(lambda: list(root.glob(".espalier/work/kb/*/begun")))
        pid = int((root / ".espalier/work/kb/lock").read_text())
        assert begun and process.look(pid) is not None
        starter.send_signal(signal.SIGKILL)
        starter.wait()
        _until(lambda: process.look(pid) is None)
        assert not (root / "artifacts/kb").exists()
    finally:
        starter.kill()


def _until(condition, seconds=300):
    for _ in range(seconds * 20):
        if value := condition():
            return value
        time.sleep(0.05)
    pytest.fail("it did not happen")


def test_progress_is_quiet_in_a_log_unless_it_lasts(capsys, monkeypatch):
    assert list(Progress(range(3), "rows")) == [0, 1, 2]
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("tasks.runtime.progress.LOG_EVERY", 0.0)
    with Progress(4, "steps") as bar:
        bar.update(2, loss=0.51234)
    assert "2/4" in (stderr := capsys.readouterr().err) and "loss 0.5123" in stderr and "\r" not in stderr
    assert " s left" not in stderr


def test_time_left_counts_from_the_first_that_is_done(capsys, monkeypatch):
    now = [0.0]
    monkeypatch.setattr("tasks.runtime.progress.time.monotonic", lambda: now[0])
    bar = Progress(110, "steps")
    now[0] = 600.0  # ten minutes to get ready, and what an earlier run did
    bar.update(50)
    assert "50/110  600 s" in (stderr := capsys.readouterr().err) and "left" not in stderr
    now[0] = 620.0
    bar.update(10)
    assert "60/110  620 s, 100 s left" in capsys.readouterr().err


def test_a_folder_in_the_place_of_our_lock_is_put_aside(root, capsys):
    (root / ".espalier/lock/inside").mkdir(parents=True)
    with dvc.alone(root):
        assert (root / ".espalier/lock").is_file()
    assert "lock is damaged" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "text"), [("rwlock", '{"version": 99}'), ("rwlock", "{"), ("rwlock.lock", None), ("lock", None)]
)
def test_lock_files_that_dvc_would_refuse_are_put_aside(root, capsys, name, text):
    """text: what the file holds; None: a folder is in its place."""
    path = root / ".dvc/tmp" / name
    (path if text is None else path.parent).mkdir(parents=True)
    if text is not None:
        path.write_text(text)
    (path.parent / ("lock" if name != "lock" else "rwlock")).write_text("{}")  # a sound one stays
    with dvc.alone(root):
        assert not path.exists()
    assert f"{name} is damaged" in capsys.readouterr().err and len(list(path.parent.iterdir())) == 2


def test_locks_of_a_living_process_stay(root):
    path = root / ".dvc/tmp/rwlock"
    path.parent.mkdir(parents=True)
    for pid, stays in ((os.getpid(), True), (2**22 + 1, False)):  # the second is beyond what Linux gives
        path.write_text(json.dumps({"read": {"a": [{"pid": pid, "cmd": "dvc"}]}, "write": {}}))
        with dvc.alone(root):
            assert path.exists() == stays


@pytest.mark.parametrize("wrong", ["[core]\n    analytics = false\n    check", "{", None])
def test_settings_of_dvc_that_cannot_be_read_are_one_sentence(root, wrong):
    path = root / ".dvc/config"
    path.parent.mkdir(exist_ok=True)
    path.write_text("[core]\n    analytics = false\n")
    dvc.configured(root)
    path.unlink()
    path.mkdir() if wrong is None else path.write_text(wrong)
    for ask in (lambda: dvc.ask(["status"], root), lambda: dvc.reproduce(root), lambda: cache(root)):
        with pytest.raises(UserError, match=r"\.dvc/config cannot be read .*git checkout"):
            ask()


def test_objects_of_the_cache_that_cannot_be_read_are_removed(root):
    folder = root / ".dvc/cache/files/md5"
    sound, other = folder / "90/0150983cd24fb0d6963f7d28e17f72", folder / "00/aa"  # of "abc"
    sound.parent.mkdir(parents=True)
    sound.write_bytes(b"abc")
    (other / "inside").mkdir(parents=True)
    (line,) = garbage.damaged(root)
    assert "00/aa cannot be read (is a directory)" in line and sound.exists() and not other.exists()


def test_empty_side_files_stop_nothing(root, capsys):
    """Each of these, left by a power cut, ended every later run in a traceback."""
    stage = Stage("kb", root=root)
    with stage.running():
        (stage.out / "new.txt").write_text("x")
    (root / ".espalier/measured/kb.json").write_bytes(b"")
    assert stage.measured() == {}
    params = root / "params.yaml"
    params.write_text("seed: 1\n")
    (root / ".espalier" / dvc.KEPT).write_bytes(b"")
    (root / ".dvc/tmp").mkdir(parents=True)
    (root / ".dvc/tmp/rwlock").write_text("[]")
    with dvc.alone(root):
        assert params.read_text() == "seed: 1\n"
    stderr = capsys.readouterr().err
    assert stderr.count("\n") == 3 and all(
        n in stderr for n in ("kb.json", dvc.KEPT, "rwlock", "`git diff params.yaml`")
    )
    with dvc.alone(root):
        assert not capsys.readouterr().err


def test_settings_of_a_run_that_died_are_taken_back(root):
    params = root / "params.yaml"
    params.write_text("seed: 1\nset: {rl: {steps: 3}}\n")
    pid = os.fork()
    if not pid:
        with dvc.alone(root), dvc.overridden({"seed": 5}, root):
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)
    assert "seed: 5" in params.read_text()
    with dvc.alone(root):
        assert params.read_text() == "seed: 1\nset: {rl: {steps: 3}}\n"
