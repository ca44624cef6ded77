"""Observation: the spool comes first, a dead server costs a bounded time, and every event counts once; promotion
decides by interval."""

import contextlib
import itertools
import json
import os
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pyarrow
import pyarrow.parquet
import pytest
import sqlalchemy
from sealed import seal

from tasks.core.errors import UserError
from tasks.results import garbage
from tasks.results import promote as promotion
from tasks.results.promote import promote, registered
from tasks.runtime import process
from tasks.runtime.stage import Stage, load
from tasks.storage import state
from tasks.tracking import observe, spool
from tasks.tracking.episodes import trace

EVENTS = 11  # of `stage`: begin, five steps, card, artifact, dataset, what was measured, end


@pytest.fixture(scope="module")
def empty_store(tmp_path_factory):
    """An MLflow database with its tables: making them takes longer than a test."""
    folder = tmp_path_factory.mktemp("store")
    observe.client(folder).search_experiments()
    return folder / "mlflow.db"


@pytest.fixture
def root(tmp_path, monkeypatch, empty_store):
    shutil.copy(empty_store, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setenv(spool.EXECUTION, "e1")
    monkeypatch.setenv(spool.SHIPPED, "1")  # or stages start processes that ship while the test does
    (tmp_path / "params.yaml").write_text("seed: 0\n")
    (tmp_path / "artifacts/plan").mkdir(parents=True)
    return tmp_path


def stage(root, name="kb", fail=False, n=5, model=False):
    """Run one stage in `root` and record it."""
    plan = {"params": {"rows": 3, "piece": {"piece": "x", "k": 2}}, "seed": 7}
    (root / f"artifacts/plan/{name}.json").write_text(json.dumps(plan))
    seal(root)
    s = Stage(name, plan=plan, root=root)
    with spool.recording(s), s.running():
        for i in range(n):
            s.log({"loss": 1 / (i + 1)}, step=i)
        (s.out / "x.txt").write_text("x")
        if model:
            (s.out / "model").mkdir()
            (s.out / "model/weights").write_text("w")
        audit = {"mine": {"accepted": {"executed": "3 of 5"}}, "sound": {"accepted": {}}}
        s.card({"produced": 3, "accepted": 2, "quarantined": {"duplicate": 1}, "audit": audit})
        s.artifact(s.out / "x.txt")
        s.dataset(root / "params.yaml", 3)
        if fail:
            raise ValueError("no rows left: lower `least`")
    return s


def test_a_run_becomes_a_parent_with_a_child_and_counts_once(root):
    s = stage(root)
    assert "shipped to" in observe.sync(root)
    client = observe.client(root)
    (experiment,) = [e.experiment_id for e in client.search_experiments() if e.name == observe.EXPERIMENT]
    parent, child = sorted(client.search_runs([experiment]), key=lambda r: "mlflow.parentRunId" in r.data.tags)
    assert (
        child.data.tags["mlflow.parentRunId"] == parent.info.run_id
        and child.data.tags["espalier.identity"] == s.identity
    )
    assert (
        child.data.params == {"seed": "7", "rows": "3", "piece.piece": "x", "piece.k": "2"}
        and child.info.status == "FINISHED"
    )
    assert child.inputs.dataset_inputs[0].dataset.name == "params.yaml"
    assert {a.path for a in client.list_artifacts(child.info.run_id)} == {"card.json", "x.txt"}
    assert child.data.tags["espalier.accepted"] == "mine: executed"
    # A crash after MLflow took a batch and before the offset moved: the same events are delivered again.
    mark = next((root / ".espalier/spool/e1").glob("kb.sent"))
    mark.unlink()
    observe.sync(root)
    assert len(client.search_runs([experiment])) == 2, "runs are found by their key, not made again"
    history = client.get_metric_history(child.info.run_id, "loss")
    assert [(m.step, m.value) for m in history] == [(i, 1 / (i + 1)) for i in range(5)]
    # A half-written line waits for the next pass.
    lines = root / ".espalier/spool/e1/kb.jsonl"
    with lines.open("a") as f:
        f.write('{"time": 1, "kind": "metr')
    assert observe.sync(root).startswith("0 events")
    # Another stage of the execution joins the same parent; a failed one says why.
    with pytest.raises(ValueError):
        stage(root, "questions", fail=True)
    observe.sync(root)
    runs = {r.info.run_name: r for r in client.search_runs([experiment])}
    assert runs["questions"].info.status == "FAILED" and "no rows left" in runs["questions"].data.tags["espalier.error"]
    assert runs["questions"].data.tags["mlflow.parentRunId"] == parent.info.run_id


@pytest.mark.parametrize(
    ("setting", "changes", "on"),
    [
        ("local", {}, True),
        ("off", {}, False),
        ("local", {"tracking": "off"}, False),
        ("off", {"tracking": "local"}, True),
    ],
)
def test_a_run_may_turn_tracking_off_for_itself(root, setting, changes, on):
    (root / "params.yaml").write_text(f"tracking: '{setting}'\n")
    assert spool.tracking(root, changes) is on
    if not on:
        env: dict[str, str] = {}
        with spool.shipped(root, "e1", env, pytest.fail, changes=changes):
            assert spool.SHIPPED not in env, "a process beside the run ships it"


def test_any_name_of_a_metric_is_taken(root):
    s = stage(root, "evaluate")
    metrics = {
        "difference": {"rl, search blanked - rl": {"mean": -0.25, "n": 3}},
        "models": {"rl": {"pass@1": {"mean": 0.5}}},
    }
    (s.target / "metrics.json").write_text(json.dumps(metrics))
    with observe.shipping(root, 60.0) as ship:
        run = ship.all().client.get_run(ship.close(root / ".espalier/spool/e1", ""))
    assert ship.problem == "" and run.data.metrics == {
        "difference.rl_ search blanked - rl.mean": -0.25,
        "models.rl.pass_at_1.mean": 0.5,
    }
    assert re.fullmatch(r"\w+ \d{4}-\d\d-\d\d \d\d:\d\d, rl 0\.500", run.info.run_name)


def test_a_trained_model_is_logged_with_its_run_its_data_and_what_was_measured(root):
    graph = {
        "stages": {
            "rl": {"cmd": "x", "deps": ["artifacts/questions"], "outs": ["artifacts/rl"]},
            "evaluate": {"cmd": "x", "deps": ["artifacts/rl", "artifacts/questions"], "outs": ["artifacts/evaluate"]},
        },
        "artifacts": {
            "model": {"path": "artifacts/rl/model", "type": "model"},
            "questions": {"path": "artifacts/questions/problems.parquet", "type": "dataset"},
            "pairs": {"path": "artifacts/clean/pairs.parquet", "type": "dataset"},
            "mine": {"path": "artifacts/rl/x.txt"},  # DVC asks for no type
        },
    }
    (root / "dvc.yaml").write_text(json.dumps(graph))
    data = root / "artifacts/questions/problems.parquet"
    data.parent.mkdir()
    data.write_text("rows")
    seal(root)
    trained = stage(root, "rl", model=True)
    judged = stage(root, "evaluate")
    metrics = {
        "models": {"rl": {"pass@1": {"mean": 0.5, "low": 0.4}}, "base": {"pass@1": {"mean": 0.1}}},
        "difference": {},
    }
    (judged.target / "metrics.json").write_text(json.dumps(metrics))
    seal(root)
    for _ in range(2):  # all is told once, though it is shipped twice
        with observe.shipping(root, 60.0) as ship:
            ship.all()
            ship.close(root / ".espalier/spool/e1", "")
        for mark in (root / ".espalier/spool/e1").glob("*.sent"):
            mark.unlink()
        about = root / ".espalier/spool/e1/execution.json"
        state.write(about, {**state.read(about, else_=""), "closed": False})
    assert ship.problem == ""
    client = ship.client
    (model,) = client.search_logged_models([ship.experiment])
    runs = {r.info.run_name: r for r in client.search_runs([ship.experiment])}
    assert (model.name, model.source_run_id, model.status) == ("rl", runs["rl"].info.run_id, "READY")
    assert model.params["piece.k"] == "2" and model.tags["espalier.identity"] == trained.identity
    assert model.tags["espalier.path"] == "artifacts/rl/model"
    (measured,) = client.get_logged_model(model.model_id).metrics
    assert (measured.key, measured.value) == ("pass_at_1", 0.5)
    (dataset_input,) = [d for d in runs["rl"].inputs.dataset_inputs if d.tags[0].value == "training"]
    assert dataset_input.dataset.name == measured.dataset_name == "artifacts/questions/problems.parquet"
    assert dataset_input.dataset.digest == measured.dataset_digest
    assert [m.model_id for m in runs["rl"].outputs.model_outputs] == [model.model_id]
    judge = client.get_run(runs["evaluate"].info.run_id)
    assert [m.model_id for m in judge.inputs.model_inputs] == [model.model_id]
    assert "eval" in {d.tags[0].value for d in runs["evaluate"].inputs.dataset_inputs}


@pytest.mark.parametrize(
    ("models", "difference", "headline"),
    [
        ({"sft": 0.346, "rl": 0.524}, {"prefer - sft": 0.1, "rl - sft": 0.178}, "rl 0.524 (+0.178 to sft)"),
        ({"sft": 0.5, "prefer": 0.4679}, {"prefer - sft": -0.032}, "prefer 0.468 (-0.032 to sft)"),
        ({"sft": 0.5, "rl": None}, {"rl, search blanked - rl": -0.5}, "sft 0.500"),
        ({}, {}, ""),
    ],
)
def test_a_run_is_named_by_its_result(models, difference, headline):
    metrics = {
        "models": {n: {"pass@1": {"mean": v}} for n, v in models.items()} | {"pairs": {"accuracy": {"mean": 1.0}}},
        "difference": {k: {"mean": v} for k, v in difference.items()},
    }
    assert observe.headline(metrics) == headline


def test_a_closed_execution_links_what_was_cached(root, monkeypatch):
    (root / "dvc.yaml").write_text(
        "stages:\n  kb: {cmd: x, deps: [], outs: [artifacts/kb]}\n  rl: {cmd: x, deps: [], outs: [artifacts/rl]}\n"
    )
    stage(root, "kb")
    stage(root, "rl")
    observe.sync(root)
    monkeypatch.setenv(spool.EXECUTION, "e2")
    stage(root, "rl")
    with observe.shipping(root, 60.0) as ship:
        ship.all()
        ship.close(root / ".espalier/spool/e2", "abc")
        client = ship.client
    runs = client.search_runs([ship.experiment])
    kb = next(r for r in runs if r.info.run_name == "kb")
    parent = next(r for r in runs if r.data.tags["espalier.key"] == "e2")
    assert parent.data.tags["stage.kb"] == f"cached: {kb.info.run_id}" and "stage.rl" not in parent.data.tags
    assert parent.data.tags["espalier.dvc_lock"] == "abc" and parent.info.status == "FINISHED"


def test_a_dead_server_costs_a_bounded_time_and_loses_nothing(root, monkeypatch):
    """A server that accepts connections and never answers, the worst kind. Time is bounded by the time-out of one
    request, tried twice, not by a measurement: with the default settings this test would run into pytest's
    patience."""
    silent = socket.create_server(("127.0.0.1", 0))
    accepted = []

    def accept():
        with contextlib.suppress(OSError):  # closed below
            while True:
                accepted.append(silent.accept())

    threading.Thread(target=accept, daemon=True).start()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{silent.getsockname()[1]}")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    stage(root)  # ends at once: it never talks to the server
    message = observe.sync(root)
    assert f"{EVENTS} events wait" in message and "espalier sync" in message
    assert len(accepted) <= 4
    silent.close()
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    assert observe.sync(root).startswith(f"{EVENTS} events shipped"), "the next pass ships what waited"


def test_the_process_beside_a_stage_ships_and_ends_when_the_stage_does(root):
    stage(root)
    beside = subprocess.Popen(
        [sys.executable, "-m", "tasks.tracking.observe"],
        cwd=root,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=_path(),
    )
    out, _ = beside.communicate(timeout=900)  # closes its standard input
    assert beside.returncode == 0 and f"{EVENTS} events shipped" in out


def _path():
    return {**os.environ, "PYTHONPATH": str(Path(observe.__file__).parents[2])}


def test_one_process_ships_for_all_stages_of_a_run(root, monkeypatch):
    monkeypatch.setattr(spool, "LIVE_AFTER", 0.0)
    env, lines = {}, []
    folder = spool.open_execution(root, "e1")
    with spool.shipped(root, "e1", env, lines.append, seconds=900.0):
        with monkeypatch.context() as below:
            for name, value in env.items():
                below.setenv(name, value)
            below.setattr(spool._Beside, "start", lambda self: pytest.fail("a stage started a process that ships"))
            stage(root)
    assert (folder / spool.ENDED).exists() and "shipped to MLflow" in lines[0]
    runs = observe.client(root).search_runs(["1"])
    assert {r.info.status for r in runs} == {"FINISHED"} and len(runs) == 2, "the parent is closed too"


def test_tracking_off_keeps_events_in_the_spool(root, monkeypatch):
    (root / "params.yaml").write_text("tracking: off\n")
    monkeypatch.delenv(spool.SHIPPED)
    (root / "dvc.yaml").write_text("stages:\n  kb: {cmd: x, deps: [], outs: [artifacts/kb]}\n")  # the last of the graph
    monkeypatch.setattr(spool, "LIVE_AFTER", 0.0)
    monkeypatch.setattr(spool._Beside, "start", lambda self: pytest.fail("started a process that ships"))
    stage(root)
    assert (root / ".espalier/spool/e1/kb.jsonl").read_text().count("\n") == EVENTS


def test_a_stage_that_was_asked_to_end_is_killed_and_half_a_line_is_cut_off(root):
    s = Stage("kb", root=root)
    with pytest.raises(SystemExit), spool.recording(s), s.running():
        raise SystemExit(143)
    path = root / ".espalier/spool/e1/kb.jsonl"
    with path.open("a") as f:
        f.write('{"kind": "metr')
    stage(root)
    events = list(spool.events(path.read_bytes()))
    assert [e["status"] for e in events if e["kind"] == "end"] == ["KILLED", "FINISHED"]


class Flaky:
    """An MLflow client whose server goes at the `n`-th call: before it is carried out, or after it and before the
    reply."""

    def __init__(self, client, n, carried_out):
        self.client, self.left, self.carried_out = client, n, carried_out

    def __getattr__(self, name):
        def call(*args, **kwargs):
            self.left -= 1
            if self.left > 0 or self.left == 0 and self.carried_out:
                reply = getattr(self.client, name)(*args, **kwargs)
            if self.left <= 0:
                from mlflow.exceptions import MlflowException

                raise MlflowException("connection reset by peer")
            return reply

        return call


@pytest.mark.parametrize("carried_out", [False, True])
def test_a_server_that_goes_at_any_call_and_comes_back_doubles_nothing(root, monkeypatch, carried_out):
    client = observe.client(root)
    for n in itertools.count(1):
        monkeypatch.setenv(spool.EXECUTION, f"e{n}")
        stage(root)
        flaky = Flaky(client, n, carried_out)
        with observe.shipping(root, 60.0) as ship:
            ship._make = lambda root, flaky=flaky: flaky
            ship.all()
        if flaky.left > 0:
            break
        assert "connection reset" in ship.problem
        assert "shipped to" in observe.sync(root)
    (experiment,) = [e.experiment_id for e in client.search_experiments() if e.name == observe.EXPERIMENT]
    children = client.search_runs([experiment], filter_string="tags.`espalier.stage` = 'kb'")
    assert n > 8 and len(children) == n and len(client.search_runs([experiment])) == 2 * n
    for child in children:
        assert [(m.step, m.value) for m in client.get_metric_history(child.info.run_id, "loss")] == [
            (i, 1 / (i + 1)) for i in range(5)
        ]
        assert child.info.status == "FINISHED" and len(child.inputs.dataset_inputs) == 1


KILLED = """
import os, signal
from pathlib import Path
from tasks.runtime import process
from tasks.runtime.stage import Stage
from tasks.tracking import spool
s = Stage("rl", plan={"params": {"rows": 3}}, root=Path.cwd())
spool.open_execution(s.root, "killed", process.look(os.getpid()))
with spool.recording(s), s.running():
    s.log({"loss": 1.0}, step=0)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def counted(client):
    """(what it is, how it ended) -> how many runs."""
    (experiment,) = [e.experiment_id for e in client.search_experiments() if e.name == observe.EXPERIMENT]
    kinds = [
        ("child" if "mlflow.parentRunId" in r.data.tags else "parent", r.info.status)
        for r in client.search_runs([experiment])
    ]
    return Counter(kinds)


def test_runs_are_counted_after_a_full_a_cached_a_partial_and_a_killed_execution(root, monkeypatch):
    (root / "dvc.yaml").write_text(
        "stages:\n  kb: {cmd: x, deps: [], outs: [artifacts/kb]}\n  rl: {cmd: x, deps: [], outs: [artifacts/rl]}\n"
    )
    client = observe.client(root)
    for key, stages, expected in (("full", ("kb", "rl"), (1, 2)), ("cached", (), (2, 2)), ("partial", ("rl",), (3, 3))):
        monkeypatch.setenv(spool.EXECUTION, key)
        folder = spool.open_execution(root, key)
        for name in stages:
            stage(root, name)
        (folder / spool.ENDED).touch()  # as `spool.shipped` does
        for _ in range(2):  # what is told twice counts once
            assert "shipped to" in observe.sync(root)
        parents, children = expected
        assert counted(client) == {("parent", "FINISHED"): parents, ("child", "FINISHED"): children}, key
    done = subprocess.run([sys.executable, "-c", KILLED], cwd=root, env={**_path(), spool.EXECUTION: "killed"})
    assert done.returncode == -signal.SIGKILL
    observe.sync(root)
    observe.sync(root)
    assert counted(client) == {
        ("parent", "FINISHED"): 3,
        ("child", "FINISHED"): 3,
        ("parent", "KILLED"): 1,
        ("child", "KILLED"): 1,
    }
    monkeypatch.setenv(spool.EXECUTION, "again")
    stage(root, "rl")
    observe.sync(root)
    assert counted(client)["child", "FINISHED"] == 4 and counted(client).total() == 10


def test_the_janitor_closes_runs_of_dead_processes_and_no_others(root):
    """As a checkout leaves them that was deleted while it ran: no spool tells of them."""
    stage(root)
    observe.sync(root)
    client = observe.client(root)
    me = process.look(os.getpid())

    def begin(host=socket.gethostname(), about=f"{2**22 + 1} 1", parent="", **more):
        tags = (
            {"mlflow.parentRunId": parent}
            if parent
            else {"espalier.host": host, "espalier.process": about, "espalier.spool": "/gone", **more}
        )
        return client.create_run(client.get_experiment_by_name(observe.EXPERIMENT).experiment_id, tags=tags).info.run_id

    dead = begin()
    below = begin(parent=dead)
    others = [
        begin(host="elsewhere"),
        begin(about=f"{me.pid} {me.started}"),
        begin(**{"espalier.spool": str(root)}),
        begin(about=""),
    ]
    observe.sync(root)
    assert [client.get_run(r).info.status for r in (dead, below)] == ["KILLED", "KILLED"]
    assert {client.get_run(r).info.status for r in others} == {"RUNNING"}


def evaluated(root, weights, rate, held_out="h1", **others):
    """A trained and evaluated model: `rate` of every ten questions right, and of `others` theirs."""
    (root / "artifacts/rl/model").mkdir(parents=True, exist_ok=True)
    (root / "artifacts/rl/model/model.safetensors").write_text(weights)
    (root / "artifacts/evaluate").mkdir(parents=True, exist_ok=True)
    (root / "artifacts/evaluate/card.json").write_text(json.dumps({"held_out": held_out}))
    rates = {"rl": rate, **others}
    rows = [
        {"run": n, "problem": f"p{i:03d}", "score": float(i % 10 < r)} for n, r in rates.items() for i in range(200)
    ]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), root / "artifacts/evaluate/scores.parquet")
    seal(root)


def test_a_model_that_answers_nothing_is_no_first_champion(root):
    stage(root)
    evaluated(root, "none", 0)
    (root / "dvc.lock").write_text("schema: '2.0'\nstages: {}\n")
    message = promote(root)
    assert "there is still no champion" in message and "includes 0" in message
    evaluated(root, "some", 3)
    assert "version 2 (rl) is now the champion: the first" in promote(root)


def test_no_champion_is_made_of_a_model_that_is_no_better_than_its_base(root):
    stage(root)
    evaluated(root, "same", 3, base=3, sft=1)
    (root / "dvc.lock").write_text("schema: '2.0'\nstages: {}\n")
    message = promote(root)
    assert "there is still no champion" in message and "the model base that it started from +0.000" in message
    evaluated(root, "better", 4, base=3)
    assert "is now the champion: the first" in promote(root)
    evaluated(root, "best", 6, base=8)
    message = promote(root)
    assert "version 2 stays the champion" in message and "base that it started from -0.200" in message
    assert "moved by --force" in promote(root, force=True)
    evaluated(root, "of sft", 7, sft=7)
    assert "the model sft that it started from +0.000" in promote(root), (
        "without a base: the model that it learned from"
    )


def test_promotion_decides_by_interval(root):
    stage(root)
    evaluated(root, "one", 5)
    (root / "dvc.lock").write_text("schema: '2.0'\nstages: {}\n")
    assert "version 1 (rl) is now the champion: the first, on 200 held-out questions it scores 0.500" in promote(root)
    (root / "dvc.lock").write_text("schema: '2.0'\nstages: {later: {}}\n")
    assert "is the champion already" in promote(root), "the same digest is registered once"
    evaluated(root, "two", 5)
    assert "version 1 stays the champion" in promote(root)
    known = [registered(root, name) for name in ("champion", "v1", "challenger")]
    assert [(r.version, r.stage, r.lock.endswith("{}\n")) for r in known] == [("1", "rl", True)] * 2 + [
        ("2", "rl", False)
    ]
    with pytest.raises(UserError, match="no model 'v9'"):
        registered(root, "v9")
    evaluated(root, "three", 7)
    message = promote(root)
    assert "version 3 (rl) is now the champion" in message and "+0.200" in message
    evaluated(root, "four", 9, held_out="h2")
    assert "another held-out set" in promote(root)
    assert "moved by --force" in promote(root, force=True)
    client = observe.client(root)
    assert client.get_model_version_by_alias("espalier", "champion").version in (4, "4")
    parent = client.search_runs(
        [client.get_experiment_by_name(observe.EXPERIMENT).experiment_id], filter_string="tags.`espalier.key` = 'e1'"
    )[0]
    assert parent.info.status == "FINISHED" and "espalier.promotion" in parent.data.tags


@contextlib.contextmanager
def hurried(root, monkeypatch, name="mlflow.db"):
    """A connection of another program to the project's database, which MLflow waits for a twentieth of a second where
    it is locked, not five seconds, or the twenty that each of its sessions asks for."""

    def sooner(connection, cursor, statement, parameters, *_):
        return statement.replace("busy_timeout = 20000", "busy_timeout = 50"), parameters

    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{root}/{name}?timeout=0.05")
    sqlalchemy.event.listen(sqlalchemy.Engine, "before_cursor_execute", sooner, retval=True)
    try:
        with contextlib.closing(sqlite3.connect(root / name, isolation_level=None)) as other:
            yield other
    finally:
        sqlalchemy.event.remove(sqlalchemy.Engine, "before_cursor_execute", sooner)


def test_a_locked_database_is_a_sentence_and_loses_nothing(root, monkeypatch):
    """Another program holds mlflow.db: a backup, a browser of databases, a run that writes for long."""
    with hurried(root, monkeypatch) as other:
        stage(root)
        evaluated(root, "one", 5)
        other.execute("BEGIN EXCLUSIVE")
        message = observe.sync(root)
        assert (
            f"{EVENTS} events wait" in message
            and "is locked: another process writes to it" in message
            and "SELECT" not in message
        )
        for command in (
            lambda: promote(root),
            lambda: registered(root, "champion"),
            lambda: list(garbage.old_runs(root)),
        ):
            with pytest.raises(UserError, match="is locked: another process") as e:
                command()
            assert "\n" not in str(e.value)
        other.execute("ROLLBACK")
        assert observe.sync(root).startswith(f"{EVENTS} events shipped")
        assert "version 1 (rl) is now the champion" in promote(root)
        evaluated(root, "two", 1)  # worse: a champion that cannot be read must not be taken for none
        other.execute("BEGIN EXCLUSIVE")
        from mlflow.exceptions import MlflowException

        with pytest.raises(MlflowException):
            promotion._champion(observe.client(root))
        other.execute("ROLLBACK")


def test_a_database_that_is_made_while_it_is_locked_or_is_none(root, monkeypatch):
    with hurried(root, monkeypatch, "new.db") as other:
        stage(root)
        other.execute("BEGIN EXCLUSIVE")
        assert f"{EVENTS} events wait" in observe.sync(root)
        other.execute("ROLLBACK")
    (root / "broken.db").write_bytes(b"no database, " * 1000)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{root}/broken.db")
    assert f"{EVENTS} events wait" in observe.sync(root)
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    assert observe.sync(root).startswith(f"{EVENTS} events shipped")


TALK = [
    {"role": "user", "content": "What is the capital of <b>Norvia</b>?"},
    {"role": "assistant", "content": "<search>capital of Norvia</search>"},
    {"role": "tool", "content": "The capital of Norvia is Zelton."},
    {"role": "assistant", "content": "<answer>Zelton</answer>"},
]


def test_artifacts_that_were_deleted_are_said_and_force_goes_on(root):
    stage(root)
    evaluated(root, "one", 5)
    (root / "dvc.lock").write_text("schema: '2.0'\nstages: {}\n")
    promote(root)
    shutil.rmtree(root / "mlartifacts")
    with pytest.raises(UserError, match="dvc.lock of version 1 cannot be had .* name its commit instead, `COMMIT` "):
        registered(root, "champion")
    evaluated(root, "two", 9)
    assert "stays the champion: held_out-h1.json of version 1 cannot be had" in promote(root)
    assert "moved by --force" in promote(root, force=True)


def write_episodes(path, n=3):
    with path.open("w") as f:
        for run in ("sft", "rl"):
            for i in range(n):
                e = {
                    "run": run,
                    "model": run,
                    "problem": f"p{i}",
                    "sample": 0,
                    "family": "f",
                    "hops": 1,
                    "outcome": "right",
                    "score": 1.0,
                }
                f.write(
                    json.dumps(
                        {
                            **e,
                            "calls": 1,
                            "turns": 2,
                            "tokens": 9,
                            "said": "Zelton",
                            "answer": "Zelton",
                            "messages": TALK,
                        }
                    )
                    + "\n"
                )


@pytest.mark.parametrize("project", ["first", "second"])  # in one process: MLflow makes the way of traces once
def test_episodes_become_traces_that_open_turn_by_turn_and_are_sent_once(root, project):
    s = stage(root, "evaluate")
    write_episodes(s.target / "episodes.jsonl")
    path = root / ".espalier/spool/e1/evaluate.jsonl"
    with spool.recording(s):
        took = [0.0, 0.25, 0.5, 0.125]  # of each message of TALK
        s.episodes(s.out / "episodes.jsonl", 4, {"sft/p0": took, "sft/p1": took, "sft/p2": took})
    with observe.shipping(root, 60.0) as ship:
        client = ship.all().client
        assert ship.problem == "" and ship.left == 0
        traces = client.search_traces(locations=[ship.experiment])
        assert len(traces) == 4 and {t.info.tags["run"] for t in traces} == {"sft", "rl"}
        spans = sorted(traces[0].data.spans, key=lambda x: x.start_time_ns)
        assert [x.span_type for x in spans] == ["AGENT", "LLM", "TOOL", "LLM"] and [x.name for x in spans[1:]] == [
            "turn 1",
            "search",
            "turn 2",
        ]
        assert (
            spans[0].outputs["answer"] == "Zelton"
            and spans[2].outputs == TALK[2]["content"]
            and len(spans[3].inputs["messages"]) == 3
        )
        for t in traces:
            spans = sorted(t.data.spans, key=lambda x: x.start_time_ns)
            lengths = [x.end_time_ns - x.start_time_ns for x in spans[1:]]
            if t.info.tags["run"] == "sft":
                assert lengths == [250_000_000, 500_000_000, 125_000_000] and "wall" in spans[0].attributes["durations"]
            else:
                assert lengths == [0, 0, 0] and spans[0].attributes["durations"] == "none were measured"
        run = next(
            r for r in client.search_runs([ship.experiment]) if r.data.tags.get("espalier.stage") == "evaluate"
        ).info.run_id
        assert {t.info.request_metadata.get("mlflow.sourceRun") for t in traces} == {run}
        table = json.loads(Path(client.download_artifacts(run, "episodes.json", str(root))).read_text())
        assert len(table["data"]) == 4 and "question" in table["columns"]
    mark = path.with_suffix(".sent")
    # As after a crash before the offset was written.
    mark.write_text(json.dumps({**json.loads(mark.read_text()), "offset": 0}))
    with observe.shipping(root, 60.0) as ship:
        ship.all()
        assert len(ship.client.search_traces(locations=[ship.experiment])) == 4, "each trace counts once"
    assert "MLFLOW_TRACKING_URI" not in os.environ, "another project of this process would follow it"


def test_spans_of_several_policies_name_who_spoke():
    names, last = [], SimpleNamespace(trace_id="t", span_id="s")
    client = SimpleNamespace(
        start_trace=lambda *a, **k: last,
        start_span=lambda name, *a, **k: names.append(name) or last,
        end_span=lambda *a, **k: None,
        end_trace=lambda *a, **k: None,
    )
    e = {"run": "rl", "model": "rl", "problem": "p", "outcome": "right", "score": 1.0, "answer": "a"}
    talk = [{"role": r, "content": "x"} for r in ("user", "assistant", "user", "assistant")]
    trace(client, "1", "run", {**e, "messages": talk, "speakers": ["pioneer: one", "observer: other"]}, 0)
    trace(client, "1", "run", {**e, "messages": talk}, 0)
    assert names == ["turn 1, pioneer: one", "turn 2, observer: other", "turn 1", "turn 2"]


def test_spans_show_the_pictures_that_the_model_saw():
    """As parts of a chat, which MLflow draws; text alone stays text."""
    spans, ends, last = [], [], SimpleNamespace(trace_id="t", span_id="s")
    client = SimpleNamespace(
        start_trace=lambda *a, **k: spans.append(k["inputs"]) or last,
        start_span=lambda name, *a, **k: spans.append(k["inputs"]) or last,
        end_span=lambda *a, **k: spans.append(k["outputs"]),
        end_trace=lambda *a, **k: ends.append(k["outputs"]),
    )
    e = {"run": "rl", "model": "rl", "problem": "p", "outcome": "right", "score": 1.0, "answer": "a"}
    url = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    request = {"role": "user", "content": "<image>Where?", "pictures": ["data:image/png;base64,AA=="]}
    talk = [request, {"role": "assistant", "content": "click"}, {**request, "role": "tool", "content": "<image>"}]
    trace(client, "1", "run", {**e, "messages": talk}, 0)
    chat = {"role": "user", "content": [url, {"type": "text", "text": "<image>Where?"}]}
    assert spans[0] == {"question": "<image>Where?", "messages": [chat]}
    assert spans[1] == {"messages": [chat]} and spans[2] == "click"
    assert spans[3] == {"query": "click"} and spans[4] == [url, {"type": "text", "text": "<image>"}]
    spans.clear()
    trace(client, "1", "run", {**e, "messages": [{"role": "user", "content": "x"}, talk[1]]}, 0)
    assert spans == [{"question": "x"}, {"messages": [{"role": "user", "content": "x"}]}, "click"]
    assert all("messages" not in out for out in ends)
    ring = {"role": "assistant", "content": "a ring", "pictures": request["pictures"]}
    trace(client, "1", "run", {**e, "messages": [{"role": "user", "content": "x"}, ring]}, 0)
    chat = {"role": "assistant", "content": [url, {"type": "text", "text": "a ring"}]}
    assert spans[-3] == {"question": "x"}, "what was made is no input"
    assert spans[-1] == chat["content"] and ends[-1]["messages"] == [chat]


def flip(path, word):
    """Damage one byte of the first line that holds `word`."""
    data = bytearray(path.read_bytes())
    data[data.index(word.encode())] ^= 4
    path.write_bytes(data)


@pytest.mark.parametrize("kind", ["begin", "metrics", "card", "end"])
def test_a_damaged_line_of_the_spool_costs_itself_alone(root, capsys, kind):
    stage(root)
    path = root / ".espalier/spool/e1/kb.jsonl"
    flip(path, f'"{kind}"')
    assert f"{EVENTS - 1} events shipped" in observe.sync(root)
    assert "is damaged and is not shipped" in capsys.readouterr().err
    assert path.with_suffix(".lost.jsonl").read_bytes().count(b"\n") == 1
    client = observe.client(root)
    (experiment,) = [e.experiment_id for e in client.search_experiments() if e.name == observe.EXPERIMENT]
    runs = client.search_runs([experiment])
    child = next(r for r in runs if "mlflow.parentRunId" in r.data.tags)
    assert len(runs) == 2 and "loss" in child.data.metrics
    assert observe.sync(root).startswith("0 events"), "the line is passed over once"


@pytest.mark.parametrize("how", [b"", b'{"key": "e1"', b'{"version": 9}', None])
@pytest.mark.parametrize("name", ["execution.json", "kb.sent"])
def test_a_damaged_side_file_of_the_spool_is_made_anew(root, capsys, name, how):
    """Each of these ended `sync`, `gc` and `promote` in a traceback."""
    stage(root)
    observe.sync(root)
    stage(root, "questions")
    path = root / ".espalier/spool/e1" / name
    path.unlink()
    if how is None:
        path.mkdir()
    else:
        path.write_bytes(how)
    assert "events shipped" in observe.sync(root)
    assert f"{name} is damaged" in capsys.readouterr().err
    client = observe.client(root)
    (experiment,) = [e.experiment_id for e in client.search_experiments() if e.name == observe.EXPERIMENT]
    assert len(client.search_runs([experiment])) == 3, "a parent and two children, found again by their keys"
    assert not list(garbage.shipped(root)) and observe.sync(root).startswith("0 events")
    assert spool.latest(root).name == "e1"


def test_an_execution_made_anew_keeps_its_place(root):
    for i, key in enumerate(("first", "run-20260101-000000-99999999", "last")):
        path = spool.open_execution(root, key) / "kb.jsonl"
        path.write_bytes(b'{"time": %d, "kind": "end", "status": "FINISHED"}\n' % (2 * 10**12 + i))
    times = {folder: facts for folder, facts in spool.executions(root)}
    for i, (folder, facts) in enumerate(times.items()):
        state.write(folder / "execution.json", {**facts, "time": 2 * 10**12 + i})
    (spool.spool(root) / "run-20260101-000000-99999999/execution.json").write_bytes(b"")
    assert [folder.name for folder, _ in spool.executions(root)] == ["first", "run-20260101-000000-99999999", "last"]
    execution = dict(spool.executions(root))[spool.spool(root) / "run-20260101-000000-99999999"]
    assert execution["pid"] == 99999999 and not process.alive(execution["pid"], execution["started"])


def test_a_damaged_plan_of_the_run_does_not_keep_a_run_from_beginning(root):
    (root / "artifacts/plan/_run.json").write_text('{"recipe": "grpo"}')
    seal(root)
    (root / "artifacts/plan/_run.json").write_text("")
    folder = spool.open_execution(root, "e1")
    assert "recipe" not in dict(spool.executions(root))[folder]
    with pytest.raises(UserError, match="`espalier run`$") as e:
        load("_run", root)
    assert "repro _run" not in str(e.value)
