"""Sweeps: every value an experiment, whatever happens to the worker that makes it."""

import fcntl
import json
import os
import signal
import threading
import time

import grid
import pytest
import toy

from flows import cli
from tasks.core.errors import UserError
from tasks.results import snapshots
from tasks.results import sweep as task
from tasks.schedule import server, sweeps
from tasks.storage import state


@pytest.fixture
def root(tmp_path, monkeypatch):
    root = grid.project(tmp_path / "mine")
    monkeypatch.chdir(root)
    monkeypatch.delenv("ESPALIER_PATH", raising=False)
    for name in ("PREFECT_API_URL", "PREFECT_HOME"):
        monkeypatch.delenv(name, raising=False)
    for key, value in {**toy.WHO, "MARKS": str(tmp_path)}.items():
        monkeypatch.setenv(key, value)
    return root


def test_values_are_read():
    assert task.axis("rl.optimizer.lr=1e-3,3e-4") == ("rl.optimizer.lr", ["1e-3", "3e-4"])
    assert task.axis("seed=1..3,7")[1] == ["1", "2", "3", "7"]
    assert task.axis("rl.rewards=[{piece: a, b: 1}],[]")[1] == ["[{piece: a, b: 1}]", "[]"]
    name, points = task.grid(["rl.steps=5,6", "seed=1..2"], "c", {"recipe": "dapo"}, frozenset({"seed"}))
    assert [p.changes for p in points][1] == {"recipe": "dapo", "set.rl.steps": 5, "seed": 2} and len(points) == 4
    assert len({p.name for p in points}) == 4 and all(p.name.startswith(f"sweep-{name}-") for p in points)
    assert task.grid(["rl.steps=5,6", "seed=1..2"], "d", {}, frozenset({"seed"}))[0] != name, (
        "another commit, another sweep"
    )
    with pytest.raises(UserError, match="more than 10,000"):
        task.grid(["seed=1..20000"], "c", {}, frozenset({"seed"}))


def shown(root, url):
    """The states of the runs that a server knows by name, with their messages; that of the sweep is ""."""
    with sweeps._connected(root, url, lambda: None, print) as api:
        runs = api.read_flow_runs(limit=50)
    (above,) = (r for r in runs if r.parent_task_run_id is None)
    assert above.parameters["workers"] == 2 and all(above.tags[0] == r.tags[0] == "sweep" for r in runs)
    assert {r.name: r.parameters for r in runs if r is not above} == {
        f"rl.optimizer.lr={lr} seed={s}": {"rl.optimizer.lr": lr, "seed": s} for lr in (0.25, 0.5) for s in (1, 2)
    }
    return {"" if r is above else r.name: (r.state.name, r.state.message.partition(" (")[0], r.run_count) for r in runs}


@pytest.mark.slow
def test_a_killed_worker_or_server_changes_no_byte_and_a_failed_value_is_the_only_one_to_run_again(
    root, tmp_path, capsys, monkeypatch
):
    sweep = ["sweep", "rl.optimizer.lr=0.25,0.5", "seed=1..2", "--workers", "2"]
    (tmp_path / "kill-0.5-2").touch()
    (tmp_path / "fail-0.25-1").touch()
    assert cli.main(sweep) == 1
    output = capsys.readouterr()
    assert "failed: rl.optimizer.lr=0.25 seed=1: evaluate: lr 0.25 does not go" in output.err
    assert "Prefect shows it at http://127.0.0.1:" in output.err and "warning: Prefect" not in output.err
    assert len(snapshots.experiments(root)) == 3 and not (tmp_path / "kill-0.5-2").exists()

    begin = sweeps.Runs.begin

    def killed(runs, *about):
        begin(runs, *about)
        os.killpg(state.read(server.home(root) / "server.json", else_="the test fails")["pid"], signal.SIGKILL)

    monkeypatch.setattr(sweeps.Runs, "begin", killed)
    monkeypatch.setattr(sweeps, "LAST", 1.0)
    url, fresh = server.address(root)
    assert fresh, "the server of the sweep has ended with it"
    with server.running(root, url):
        done = [x for x in snapshots.experiments(root)]
        assert shown(root, url) == {
            "": ("Failed", "1 of 4 values failed", 1),
            "rl.optimizer.lr=0.25 seed=1": ("Failed", "evaluate: lr 0.25 does not go", 1),
            "rl.optimizer.lr=0.25 seed=2": ("Completed", f"experiment {min(done)}", 1),
            "rl.optimizer.lr=0.5 seed=1": ("Completed", f"experiment {sorted(done)[1]}", 1),
            "rl.optimizer.lr=0.5 seed=2": ("Completed", f"experiment {max(done)}", 2),
        }
        capsys.readouterr()
        assert cli.main([*sweep, "--json"]) == 0
    output = capsys.readouterr()
    assert "4 values, 3 are there already" in output.err and output.err.count("warning: Prefect does not show all") == 1
    summary = json.loads(output.out)
    scores = summary["scores"]["rl"]["pass@1"]
    assert {k: v["values"] for k, v in scores.items()} == {
        "rl.optimizer.lr=0.25": pytest.approx([0.26, 0.27]),
        "rl.optimizer.lr=0.5": pytest.approx([0.51, 0.52]),
    }
    low = 0.515 - 12.706 * 0.0070711 / 2**0.5  # Student's t of one degree of freedom
    assert scores["rl.optimizer.lr=0.5"]["low"] == pytest.approx(low, abs=1e-4)
    (page,) = (root / ".espalier/sweep").glob("*/index.html")
    assert "rl.optimizer.lr=0.25" in page.read_text() and not list(page.parent.glob("worker-*"))
    assert toy.git(root, "status", "--porcelain") == "" and len(toy.git(root, "worktree", "list").splitlines()) == 1
    (killed,) = (n for n in snapshots.experiments(root) if n.endswith("-3"))
    bytes_of = snapshots.snapshot(root, killed).path("artifacts/evaluate/metrics.json").read_bytes()
    (root / "params.yaml").write_text("seed: 2\nset: {rl: {optimizer: {lr: 0.5}}}\n")
    toy.sh(root, "repro", "-q", "-f")
    assert (root / "artifacts/evaluate/metrics.json").read_bytes() == bytes_of


@pytest.mark.parametrize("after", ["all are begun", "the first is begun"])
def test_what_interrupts_a_sweep_waits_for_its_workers(root, monkeypatch, after):
    ended = []

    class Slow(threading.Thread):
        def start(self):
            super().start()
            time.sleep(0.2)

    def one(root, tree, point, commit, env, log, git, stop, again):
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.wait(60)
        time.sleep(0.3)  # as DVC takes to end
        ended.append(point.name)
        return "Cancelled", "it was ended"

    monkeypatch.setattr(task, "_one", one)
    monkeypatch.setattr(task, "_worktree", lambda root, place, commit: place)
    name, points = task.grid(["seed=1..2"], "c", {}, frozenset({"seed"}))
    if after == "the first is begun":
        monkeypatch.setattr(task.threading, "Thread", Slow)
    with pytest.raises(KeyboardInterrupt):
        task.run(root, name, points, "c", workers=1 if after == "all are begun" else 2, say=print)
    assert ended == [points[0].name]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("rl.lrr=1,2", "sweep rl.lrr: unknown key 'lrr'"),
        ("rl.lr=1e-3,3e-4", "sweep rl.lr: rl.lr is rl.optimizer.lr now: write rl.optimizer.lr"),
        ("rl.learners=1,2", "sweep rl.learners=1,2: learners says where rl runs, and no result depends on it"),
        ("seed=1,2 --set rl.stepps=3", "--set rl.stepps: unknown key"),
        ("rl.steps=2,many", "sweep rl.steps must be int"),
        ("rl.steps=", "rl.steps has no values"),
        ("seed=5..1", "seed has no values"),
        ("seed", "write STAGE.KNOB=VALUE,VALUE or seed=1..5"),
        ("seed=1 seed=2", "seed is given twice"),
        ("seed=1..2 --workers 0", "--workers must be 1 or more"),
        ("rl.device=cuda --workers 64", "--workers is 64, and this machine has"),
    ],
)
def test_a_mistake_is_one_sentence_and_nothing_runs(root, capsys, words, sentence):
    assert cli.main(["sweep", *words.split()]) == 2
    err = capsys.readouterr().err
    assert err.startswith("error: ") and sentence in err and err.count("\n") == 1
    assert not (root / ".espalier/sweep").exists()


def test_two_sweeps_and_what_is_not_committed(root, capsys):
    lock = root / ".espalier/sweep/lock"
    lock.parent.mkdir(parents=True)
    with lock.open("w") as held:
        held.write("77")
        held.flush()
        fcntl.flock(held, fcntl.LOCK_EX)
        assert cli.main(["sweep", "seed=1..2"]) == 2
        assert "a sweep is already running in" in (err := capsys.readouterr().err) and "(process 77)" in err
    (root / "params.yaml").write_text("seed: 1\nset: {}\n")
    assert cli.main(["sweep", "seed=1..2"]) == 2
    assert "params.yaml differs from the last commit" in capsys.readouterr().err


def test_a_dry_run_lists_the_values(root, capsys):
    assert cli.main(["sweep", "seed=1..3", "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert [x.split()[1] for x in out.splitlines()] == ["seed=1", "seed=2", "seed=3"] and "there" not in out
