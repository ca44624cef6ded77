"""`espalier gc`: what it removes, what it never removes, and what is damaged."""

import fcntl
import hashlib
import json
import os
from types import SimpleNamespace as N

import pytest
from sealed import seal

from flows import cli
from tasks.results import garbage
from tasks.runtime import dvc
from tasks.runtime.stage import Stage, load
from tasks.tracking import observe, spool


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    (tmp_path / "params.yaml").write_text("disk_gb: 0\n")
    (tmp_path / "dvc.yaml").write_text(
        "stages:\n  plan: {cmd: x, outs: [artifacts/plan]}\n"
        "  kb: {cmd: x, deps: [artifacts/plan/kb.json], outs: [artifacts/kb]}\n"
        "  report: {cmd: x, deps: [artifacts/kb], outs: [reports]}\n"
    )
    (tmp_path / "artifacts/plan").mkdir(parents=True)
    (tmp_path / "artifacts/plan/kb.json").write_text('{"params": {"rows": 3}}')
    (tmp_path / "artifacts/kb").mkdir()
    (tmp_path / "artifacts/kb/facts").write_text("x" * 100)
    seal(tmp_path)
    monkeypatch.setattr(dvc, "unnamed", lambda root: [])
    return tmp_path


def work(root, stage, identity):
    folder = root / ".espalier/work" / stage / identity
    folder.mkdir(parents=True)
    (folder / "rows.jsonl").write_text("y" * 1000)
    return folder


def test_work_of_the_present_plan_stays_that_of_others_goes(root):
    mine = work(root, "kb", Stage("kb", plan=load("kb"), root=root).identity)
    theirs, gone = work(root, "kb", "0123456789abcdef"), work(root, "old_stage", "x")
    assert len(garbage.collect(root, dry=True).items) == 2 and theirs.exists(), "a dry run removes nothing"
    before = garbage.collect(root, dry=True).used
    freed = garbage.collect(root)
    assert freed.used == before and sum(i.bytes for i in freed.items) == 2000
    assert mine.exists() and not theirs.exists() and not gone.exists()


def test_work_of_a_stage_that_runs_stays(root):
    theirs = work(root, "kb", "x")
    with (root / ".espalier/work/kb/lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert not garbage.collect(root).items
    assert theirs.exists()


def test_shipped_events_go_but_for_the_last_and_the_open(root):
    for i in range(garbage.CLOSED + 4):
        folder = spool.spool(root) / f"e{i}"
        folder.mkdir(parents=True)
        facts = {"key": f"e{i}", "commit": "", "time": i, "started": "", "closed": i != 1}
        facts["pid"] = os.getpid() if i == 0 else 2**22 + i
        (folder / "execution.json").write_text(json.dumps(facts))
    garbage.collect(root)
    left = {p.name for p in spool.spool(root).iterdir()}
    assert left == {"e0", "e1", *(f"e{i}" for i in range(4, garbage.CLOSED + 4))}


class Store:
    """MLflow with four parent runs, each with a child; the second has a registered model."""

    def __init__(self, root):
        self.deleted = []
        self.runs = [self.run(root, f"p{i}", i, None) for i in range(4)] + [
            self.run(root, f"c{i}", i, f"p{i}") for i in range(4)
        ]

    def run(self, root, name, start, parent):
        folder = root / "mlartifacts" / name
        (folder / "artifacts").mkdir(parents=True)
        (folder / "artifacts/model").write_bytes(bytes(10**6))
        info = N(
            run_id=name,
            run_name=name,
            start_time=start,
            status="FINISHED",
            artifact_uri=(folder / "artifacts").as_uri(),
        )
        return N(info=info, data=N(tags={"mlflow.parentRunId": parent} if parent else {}))

    def get_experiment_by_name(self, name):
        return N(experiment_id="1")

    def search_runs(self, experiments, page_token=None):
        at = int(page_token or 0)

        class Page(list):
            token = str(at + 3) if at + 3 < len(self.runs) else None

        return Page(self.runs[at : at + 3])

    def search_model_versions(self):
        return [N(run_id="p1")]

    def delete_run(self, run):
        self.deleted.append(run)


def test_runs_go_only_over_the_budget_the_oldest_first_never_a_registered_one_or_the_last(root, monkeypatch):
    store = Store(root)
    (root / "mlflow.db").write_text("")
    monkeypatch.setattr(observe, "client", lambda root: store)
    (root / "params.yaml").write_text("disk_gb: 1\n")
    assert not garbage.collect(root).items and not store.deleted, "within the budget nothing goes"
    (root / "params.yaml").write_text("disk_gb: 0\n")
    assert [i.what for i in garbage.collect(root, dry=True).items] == [
        f"MLflow run p{i} and its 1 stages" for i in (0, 2)
    ]
    garbage.collect(root)
    assert store.deleted == ["p0", "c0", "p2", "c2"]
    assert {p.name for p in (root / "mlartifacts").iterdir()} == {"p1", "p3", "c1", "c3"}
    store.deleted.clear()
    (root / "params.yaml").write_text("tracking: off\ndisk_gb: 0\n")
    assert not garbage.collect(root).items and not store.deleted, "without tracking MLflow is left alone"


def test_what_is_damaged_is_named_and_removed(root, capsys):
    cache = root / ".dvc/cache/files/md5"
    right, wrong = hashlib.md5(b"right").hexdigest(), hashlib.md5(b"other").hexdigest() + ".dir"
    for name, content in ((right, b"right"), (wrong, b"wrong")):
        (cache / name[:2]).mkdir(parents=True)
        (cache / name[:2] / name[2:]).write_bytes(content)
    assert cli.main(["gc", "--damaged"]) == 0
    output = capsys.readouterr().out
    assert wrong[2:] in output and "1 damaged, removed; `espalier run` makes them anew" in output
    assert [p.name for p in cache.glob("*/*")] == [right[2:]]
    path = root / "artifacts/kb/facts"
    at = path.stat()
    path.write_text("x" * 99 + "y")
    os.utime(path, ns=(at.st_atime_ns, at.st_mtime_ns + 1))
    assert cli.main(["gc", "--damaged", "--dry-run"]) == 0 and path.exists()
    assert cli.main(["gc", "--damaged"]) == 0 and not path.parent.exists() and (root / "artifacts/plan").exists()
    assert "artifacts/kb/facts is not what was written" in capsys.readouterr().out


def test_the_command_says_what_it_freed_and_when_that_is_not_enough(root, capsys):
    work(root, "kb", "x")
    assert cli.main(["gc", "--dry-run"]) == 1
    output = capsys.readouterr().out
    assert (
        "unfinished work of kb with other settings (x)" in output
        and "would be removed" in output
        and "Still over the budget" in output
    )
    (root / "params.yaml").write_text("disk_gb: 1\n")
    assert cli.main(["gc"]) == 0 and "Still" not in capsys.readouterr().out
    with dvc.alone(root):
        assert cli.main(["gc"]) == 2
    assert "another run is under way" in capsys.readouterr().err


def test_outside_a_project(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["gc"]) == 2 and "holds no dvc.yaml" in capsys.readouterr().err
