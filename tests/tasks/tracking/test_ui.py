"""`espalier ui`: MLflow answers on this machine, knows what was shipped, and ends when it is asked to. (What its pages
show: tests/tasks/pages/test_browser.py)"""

import json
import os
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import foreign
import pytest
from ports import free_port

from tasks.core.paths import CODE
from tasks.runtime.stage import Stage
from tasks.tracking import spool, ui

pytestmark = pytest.mark.slow
PATIENCE = 240.0  # seconds: a bound on waiting that only a failure reaches


@contextmanager
def mlflow(root: Path, env: dict[str, str]):
    """`espalier ui` for the project `root`; its address."""
    port = free_port()
    command = [
        sys.executable,
        "-c",
        "import sys; from flows.cli import main; sys.exit(main())",
        "ui",
        "--port",
        str(port),
    ]
    with (root / "ui.log").open("wb") as log:
        child = subprocess.Popen(command, cwd=root, env=env, stdout=log, stderr=log)
    try:
        until = time.monotonic() + PATIENCE
        while not answers(f"http://127.0.0.1:{port}/health"):
            assert child.poll() is None and time.monotonic() < until, (root / "ui.log").read_text()
            time.sleep(0.25)
        yield f"http://127.0.0.1:{port}"
    finally:
        child.terminate()
        child.wait(PATIENCE)


def answers(url):
    try:
        with urllib.request.urlopen(url, timeout=60) as reply:
            return reply.status == 200
    except OSError:
        return False


def test_what_was_shipped_is_shown(tmp_path, monkeypatch):
    (tmp_path / "params.yaml").write_text("seed: 0\n")
    monkeypatch.setenv(spool.EXECUTION, "e1")
    stage = Stage("questions", plan={"params": {"rows": 3}}, root=tmp_path)
    with spool.recording(stage), stage.running():
        stage.log({"loss": 0.5}, step=0)
        stage.card({"produced": 3, "accepted": 3, "quarantined": 0})
    env = {k: v for k, v in os.environ.items() if not k.startswith(("MLFLOW_", "ESPALIER_"))} | {
        "PYTHONPATH": str(CODE)
    }
    with mlflow(tmp_path, env) as address:
        query = json.dumps({"experiment_ids": ["1"]}).encode()
        token = (tmp_path / ui.TOKEN).read_text().strip()
        assert f"{address}/?token={token} " in (tmp_path / "ui.log").read_text()
        known = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
        request = urllib.request.Request(f"{address}/api/2.0/mlflow/runs/search", query, known)
        with urllib.request.urlopen(request, timeout=60) as reply:
            assert "questions" in {r["info"]["run_name"] for r in json.load(reply)["runs"]}
        # Other sites and other users. Its assistant runs commands for whoever reaches it.
        port = int(address.rpartition(":")[2])
        about = {"get": "/ajax-api/3.0/mlflow/assistant/config", "post": "/api/2.0/mlflow/experiments/create"}
        about["body"] = b'{"name": "taken"}'
        assert foreign.accepted(port, **about, Authorization=f"Bearer {token}") == []
        for path in (about["get"], "/", "/get-artifact?path=card.json&run_uuid=x", "/version", "/graphql"):
            assert foreign.ask(port, "GET", path, {})[0] == 401
        assert foreign.ask(port, "POST", about["post"], {"Content-Type": "application/json"}, about["body"])[0] == 401
        # A client of Python's: the variables that docs/operations.md names.
        script = "import mlflow; print([e.name for e in mlflow.MlflowClient().search_experiments()])"
        told = {**env, "MLFLOW_TRACKING_URI": address, "MLFLOW_TRACKING_TOKEN": token}
        done = subprocess.run([sys.executable, "-c", script], env=told, capture_output=True, text=True)
        assert "espalier" in done.stdout and "taken" not in done.stdout, done.stderr[-2000:]
    until = time.monotonic() + PATIENCE
    while answers(f"{address}/health"):
        assert time.monotonic() < until, "the server outlives who asked for it"
        time.sleep(0.25)
