"""The team server of docs/operations.md on the loopback address: MLflow and Prefect on PostgreSQL, artifacts and DVC's
remote on S3."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from ports import free_port
from sealed import seal

from tasks.results.promote import promote, registered
from tasks.results.snapshots import snapshot
from tasks.tracking import observe, spool
from tests.tasks.tracking.test_observe import evaluated, stage, write_episodes

BIN = next(
    (
        Path(p).parent
        for p in (shutil.which("initdb"), *map(str, Path("/usr/lib/postgresql").glob("*/bin/initdb")))
        if p
    ),
    None,
)
LACKING = [m for m in ("psycopg2", "asyncpg", "boto3", "moto", "dvc_s3") if importlib.util.find_spec(m) is None]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BIN is None, reason="needs PostgreSQL: apt-get install postgresql"),
    pytest.mark.skipif(
        bool(LACKING),
        reason=f"needs {', '.join(LACKING)}: pip install psycopg2-binary asyncpg boto3 'moto[server]' 'dvc[s3]'",
    ),
]
KEYS = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_DEFAULT_REGION": "us-east-1"}


def until_it_answers(url, child, log):
    until = time.monotonic() + 900  # seconds: a bound that only a failure reaches
    while time.monotonic() < until:
        assert child.poll() is None, log.read_text()[-2000:]
        try:
            with urllib.request.urlopen(url, timeout=60):
                return
        except urllib.error.HTTPError:
            return
        except OSError:
            time.sleep(0.1)
    raise AssertionError(f"no answer at {url}: {log.read_text()[-2000:]}")


@pytest.fixture(scope="module")
def services(tmp_path_factory):
    """PostgreSQL with two databases, and an S3 with two buckets: (address of the database without its name, address of
    S3)."""
    import boto3
    import psycopg2

    folder = tmp_path_factory.mktemp("services")
    user = "postgres" if os.getuid() == 0 else None  # PostgreSQL refuses to run as root
    data = Path(tempfile.mkdtemp())  # not below pytest's folders: the other user could not reach it there
    if user:
        shutil.chown(data, user)
    as_user = {"user": user} if user else {}

    def postgres(*command):
        env = os.environ | {"PGHOST": "127.0.0.1"}
        subprocess.run(
            [BIN / command[0], *command[1:]], check=True, cwd=data, stdout=subprocess.DEVNULL, env=env, **as_user
        )

    postgres("initdb", "-D", str(data), "-U", "team", "-A", "trust", "-E", "UTF8")
    port, log = free_port(), data / "log"
    postgres(
        "pg_ctl",
        "-D",
        str(data),
        "-w",
        "-l",
        str(log),
        "-o",
        f"-p {port} -k '' -c listen_addresses=127.0.0.1 -c fsync=off",
        "start",
    )
    s3 = free_port()
    with (folder / "s3.log").open("w") as log_file:
        moto = subprocess.Popen(
            [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(s3)], stdout=log_file, stderr=log_file
        )
    try:
        first = psycopg2.connect(f"postgresql://team@127.0.0.1:{port}/postgres")
        first.autocommit = True
        for name in ("mlflow", "prefect"):
            first.cursor().execute(f"create database {name}")
        first.close()
        until_it_answers(f"http://127.0.0.1:{s3}/", moto, folder / "s3.log")
        keys = dict(zip(("aws_access_key_id", "aws_secret_access_key", "region_name"), KEYS.values(), strict=True))
        store = boto3.client("s3", endpoint_url=f"http://127.0.0.1:{s3}", **keys)
        store.create_bucket(Bucket="team")
        yield f"team@127.0.0.1:{port}", f"http://127.0.0.1:{s3}", store
    finally:
        moto.terminate()
        moto.wait(300)
        postgres("pg_ctl", "-D", str(data), "-m", "immediate", "stop")
        shutil.rmtree(data, ignore_errors=True)


@pytest.fixture
def mlflow(services, tmp_path):
    """MLflow's server as the guide starts it."""
    base, s3, _ = services
    port = free_port()
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    command += ["--backend-store-uri", f"postgresql://{base}/mlflow", "--artifacts-destination", "s3://team/mlflow"]
    env = {**os.environ, **KEYS, "MLFLOW_S3_ENDPOINT_URL": s3, "MLFLOW_DISABLE_TELEMETRY": "true"}
    env["MLFLOW_SERVER_ENABLE_JOB_EXECUTION"] = "false"  # or it starts six more processes
    with (tmp_path / "mlflow.log").open("w") as log:
        child = subprocess.Popen(command, cwd=tmp_path, stdout=log, stderr=log, env=env, start_new_session=True)
    try:
        until_it_answers(f"http://127.0.0.1:{port}/health", child, tmp_path / "mlflow.log")
        yield f"http://127.0.0.1:{port}"
    finally:
        os.killpg(child.pid, 15)
        child.wait(300)


def test_runs_traces_and_models_live_in_postgresql_and_s3(services, mlflow, tmp_path, monkeypatch):
    """A machine has the server's address and no key of S3."""
    _, _, store = services
    root = tmp_path / "project"
    (root / "artifacts/plan").mkdir(parents=True)
    monkeypatch.chdir(root)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", mlflow)
    monkeypatch.setenv(spool.EXECUTION, "e1")
    for name in KEYS:
        monkeypatch.delenv(name, raising=False)
    (root / "params.yaml").write_text("seed: 0\n")
    s = stage(root, "evaluate")
    write_episodes(s.target / "episodes.jsonl", 2)
    with spool.recording(s):
        s.episodes(s.out / "episodes.jsonl", 2)
    seal(root)
    assert f"shipped to MLflow at {mlflow}" in observe.sync(root)
    with observe.shipping(root, 10.0) as ship:
        client, experiment = ship.client, ship.experiment
    assert len(client.search_runs([experiment])) == 2 and not (root / "mlflow.db").exists()
    trace = client.search_traces(locations=[experiment])[0]
    assert [s.name for s in trace.data.spans][1:3] == ["turn 1", "search"]
    evaluated(root, "one", 5)
    (root / "dvc.lock").write_text("schema: '2.0'\nstages: {}\n")
    assert "is now the champion" in promote(root)
    evaluated(root, "two", 9)
    assert "version 2 (rl) is now the champion" in promote(root), "the scores of the first came back from S3"
    assert registered(root, "v1").lock.endswith("{}\n") and snapshot(root, "champion").name == "champion"
    kept = [o["Key"] for o in store.list_objects_v2(Bucket="team", Prefix="mlflow/")["Contents"]]
    assert sum(k.endswith("model.safetensors") for k in kept) == 2 and any(k.endswith("card.json") for k in kept)


def test_dvc_pushes_to_s3_and_another_clone_pulls(services, tmp_path):
    """The commands of the guide; the endpoint is that of a server of your own."""
    _, s3, store = services
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    env = {k: v for k, v in os.environ.items() if not k.startswith(("DVC_", "AWS_"))} | KEYS
    env |= {f"GIT_{who}_{what}": "t@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}

    def do(*command, cwd=one):
        done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True)
        assert done.returncode == 0, f"{command}: {done.stderr[-1500:]}"

    dvc = (sys.executable, "-m", "dvc")
    do("git", "init", "-q")
    do(*dvc, "init", "-q")
    (one / "dvc.yaml").write_text("stages:\n  a: {cmd: mkdir a && echo made > a/x, outs: [a]}\n")
    do(*dvc, "repro", "-q")
    do(*dvc, "remote", "add", "-d", "team", "s3://team/espalier")
    do(*dvc, "remote", "modify", "team", "endpointurl", s3)
    do("git", "add", "-A")
    do("git", "commit", "-qm", "made")
    do(*dvc, "push", "-q")
    do("git", "clone", "-q", str(one), str(two))
    do(*dvc, "pull", "-q", cwd=two)
    assert (two / "a/x").read_text() == "made\n"
    assert any(
        o["Key"].startswith("espalier/files/md5/")
        for o in store.list_objects_v2(Bucket="team", Prefix="espalier/")["Contents"]
    )


def test_prefect_keeps_its_runs_in_postgresql(services, tmp_path):
    base, _, _ = services
    port = free_port()
    env = {
        **os.environ,
        "PREFECT_HOME": str(tmp_path),
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "DO_NOT_TRACK": "1",
    }
    env["PREFECT_SERVER_DATABASE_CONNECTION_URL"] = f"postgresql+asyncpg://{base}/prefect"
    env.pop("PREFECT_API_URL", None)
    command = [sys.executable, "-m", "prefect", "server", "start", "--host", "127.0.0.1", "--port", str(port)]
    with (tmp_path / "prefect.log").open("w") as log:
        child = subprocess.Popen(command, cwd=tmp_path, stdout=log, stderr=log, env=env, start_new_session=True)
    url = f"http://127.0.0.1:{port}/api"
    try:
        until_it_answers(f"{url}/health", child, tmp_path / "prefect.log")
        request = urllib.request.Request(
            f"{url}/flows/", json.dumps({"name": "pipeline"}).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=60) as reply:
            assert reply.status == 201
    finally:
        os.killpg(child.pid, 15)
        child.wait(300)
    import psycopg2

    with psycopg2.connect(f"postgresql://{base}/prefect") as database, database.cursor() as cursor:
        cursor.execute("select name from flow")
        assert cursor.fetchall() == [("pipeline",)]
    assert not list(tmp_path.glob("*.db"))
