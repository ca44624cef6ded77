"""Schedules fire: a real Prefect server and worker on a free port, over a project of toy stages (tests/support/toy.py).

Prefect's own test harness runs no scheduler, and a deployment that is only registered proves nothing: with SQLAlchemy
2.1 every registration succeeds and no run is ever created (ARCHITECTURE.md, "Pins"). So these tests wait for what the
scheduler makes.
"""

import base64
import json
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import browser
import foreign
import pytest
import toy
from ports import free_port

from tasks.storage import state
from tasks.schedule import server

pytestmark = pytest.mark.slow
PATIENCE = 900.0  # seconds: a bound on waiting that only a failure reaches
QUICK = {  # polling, which is all that is changed of the server and the worker
    "PREFECT_WORKER_QUERY_SECONDS": "2",
    "PREFECT_SERVER_SERVICES_SCHEDULER_RECENT_DEPLOYMENTS_LOOP_SECONDS": "2",
    "PREFECT_SERVER_SERVICES_SCHEDULER_LOOP_SECONDS": "5",
    "PREFECT_RUNNER_POLL_FREQUENCY": "2",
}


class Served:
    """A project under `espalier schedule`."""

    def __init__(self, root):
        self.root = root
        self.env = {**toy.environment(), **QUICK, "PYTHONPATH": str(root), "PYTHONUNBUFFERED": "1"}
        self.process, self.url, self.sent = None, "", {}

    def start(self):
        command = [
            sys.executable,
            "-c",
            "import sys; from flows.cli import main; sys.exit(main())",
            "schedule",
            "--port",
            str(free_port()),  # 0 would leave the system's choice free until the server is up
        ]
        with (self.root / "serve.log").open("wb") as log:
            self.process = subprocess.Popen(command, cwd=self.root, env=self.env, stdout=log, stderr=log)
        self.until(lambda: "Prefect: http" in self.log("serve.log"))
        self.url = state.read(server.home(self.root) / "server.json", else_="the test fails")["url"]
        self.sent = {}

    def end(self):
        self.process.terminate()
        self.process.wait(PATIENCE)

    def espalier(self, *args, code=0):
        command = [sys.executable, "-c", "import sys; from flows.cli import main; sys.exit(main())", *args]
        done = subprocess.run(command, cwd=self.root, env=self.env, capture_output=True, text=True)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    def api(self, path, **body):
        end = time.monotonic() + PATIENCE
        while True:
            try:
                request = urllib.request.Request(f"{self.url}/{path}", json.dumps(body).encode(), self.headers())
                with urllib.request.urlopen(request, timeout=60) as reply:
                    return json.load(reply)
            except (TimeoutError, urllib.error.HTTPError) as e:
                # SQLite is busy: Prefect's own client tries again too.
                if time.monotonic() > end or getattr(e, "code", 503) != 503:
                    raise
                time.sleep(1.0)

    def link(self):
        """The address that `espalier schedule` prints."""
        return re.search(r"Prefect: (http\S+)", self.log("serve.log"))[1]

    def headers(self):
        """What a request needs that changes something: the password, and a token against forged requests. The token
        is asked for once: the next one for the same client would end it."""
        if not self.sent:
            basic = base64.b64encode(server.password(self.root).encode()).decode()
            sent = {"Authorization": f"Basic {basic}", "Prefect-Csrf-Client": "tests"}
            request = urllib.request.Request(f"{self.url}/csrf-token?client=tests", headers=sent)
            with urllib.request.urlopen(request, timeout=60) as reply:
                sent["Prefect-Csrf-Token"] = json.load(reply)["token"]
            self.sent = {**sent, "Content-Type": "application/json"}
        return self.sent

    def runs(self, flow="pipeline"):
        return self.api("flow_runs/filter", flows={"name": {"any_": [flow]}}, sort="EXPECTED_START_TIME_ASC")

    def run(self, id):
        return self.api("flow_runs/filter", flow_runs={"id": {"any_": [id]}})[0]

    def begin(self, **parameters):
        """Start a run of the deployment `nightly` now; its id."""
        (deployment,) = self.api("deployments/filter", deployments={"name": {"any_": ["nightly"]}})
        # A reply that is lost must not begin it twice.
        return self.api(
            f"deployments/{deployment['id']}/create_flow_run", parameters=parameters, idempotency_key=uuid4().hex
        )["id"]

    def ended(self, id):
        self.until(lambda: self.run(id)["state"]["type"] in ("COMPLETED", "FAILED", "CRASHED", "CANCELLED"))
        return self.run(id)

    def tasks(self, id):
        task_runs = self.api("task_runs/filter", flow_runs={"id": {"any_": [id]}}, sort="EXPECTED_START_TIME_ASC")
        return {t["name"].rpartition("-")[0] or t["name"]: t for t in task_runs}

    def states(self, id):
        task_runs = self.api("task_runs/filter", flow_runs={"id": {"any_": [id]}})
        return {t["name"]: t["state"]["name"] for t in task_runs if t["state"]}

    def said(self, id):
        lines = self.api("logs/filter", logs={"flow_run_id": {"any_": [id]}}, limit=200)
        return "\n".join(line["message"] for line in lines)

    def log(self, name):
        path = self.root / name
        return path.read_text() if path.exists() else ""

    def until(self, true):
        end = time.monotonic() + PATIENCE
        while not true():
            if time.monotonic() > end or self.process.poll() is not None:
                pytest.fail(
                    "\n".join(
                        self.log(n)[-3000:]
                        for n in ("serve.log", ".espalier/prefect/server.log", ".espalier/prefect/worker.log")
                    )
                )
            time.sleep(1.0)  # each question costs the server what a poll of its worker costs


def deployments(**schedule):
    """A prefect.yaml whose nightly run has this schedule."""
    listed = f"[{json.dumps(schedule)}]" if schedule else "[]"
    return (
        "deployments:\n- name: nightly\n  entrypoint: flows.pipeline.pipeline\n"
        f"  parameters: {{promote: false, retry_seconds: [0.1]}}\n  schedules: {listed}\n"
    )


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    root = tmp_path_factory.mktemp("schedules") / "repo"
    shutil.copytree(toy.pristine(tmp_path_factory), root, symlinks=True)
    (root / "prefect.yaml").write_text(deployments())
    it = Served(root)
    it.start()
    try:
        yield it
    finally:
        if it.process.poll() is None:
            it.end()
        keep("serve.log", it.log("serve.log"))


def keep(name, text):
    """Leave it to be looked at."""
    (kept() / name).write_text(text)


def kept():
    """A folder that git ignores; pictures also go where ESPALIER_PICTURES says."""
    folder = toy.CODE / ".espalier/test-artifacts"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def test_a_schedule_fires_and_shows_what_was_cached_and_every_step(served):
    """One change, of a number of the RL stage: the run that the scheduler makes runs `plan`, `rl` and what reads it."""
    commit = toy.git(served.root, "rev-parse", "HEAD")
    (served.root / "params.yaml").write_text(
        "recipe: grpo\nprofile: cpu\ntracking: off\nset: {rl: {optimizer: {lr: 0.0101}}}\n"
    )
    for seconds in (5, 20, 80, 320):  # ahead; where deploying took longer, the scheduler was too late for the day
        soon = datetime.now(UTC) + timedelta(seconds=seconds)
        (served.root / "prefect.yaml").write_text(deployments(interval=86400, anchor_date=soon.isoformat()))
        assert "pipeline/nightly: every 1 day" in served.espalier("deploy")
        served.until(served.runs)
        if min(datetime.fromisoformat(r["expected_start_time"]) for r in served.runs()) < soon + timedelta(hours=1):
            break
    served.until(lambda: any(r["state"]["type"] in ("COMPLETED", "FAILED", "CRASHED") for r in served.runs()))
    run = next(r for r in served.runs() if r["state"]["type"] != "SCHEDULED")
    assert run["auto_scheduled"] and run["state"]["type"] == "COMPLETED", served.said(run["id"])
    served.until(lambda: len(served.states(run["id"])) == 13)
    states = served.states(run["id"])
    assert {n for n, s in states.items() if s == "Completed"} == {"plan", "rl", "evaluate", "report"}
    assert {s for n, s in states.items() if n not in ("plan", "rl", "evaluate", "report")} == {"Cached"}
    # The steps of `rl` are tasks of its own flow run, which is shown below the task `rl` of the pipeline.
    # On a busy machine Prefect's client may send the request for that flow run twice: the second record has no task.
    task = served.tasks(run["id"])["rl"]["id"]

    def below():
        return [served.states(r["id"]) for r in served.runs("rl") if r["parent_task_run_id"] == task]

    served.until(lambda: any("Completed" in states.values() for states in below()))
    assert [n.rpartition("-")[0] for states in below() for n in states] == ["steps"]
    assert "rl: at work" in served.said(run["id"]), "the stage's lines are in the run's log"
    assert f"run-{run['name']}" in toy.sh(served.root, "exp", "list", "--all"), "the run is kept as an experiment"
    assert toy.git(served.root, "rev-parse", "HEAD") == commit, "the branch stays where it was"
    output = served.espalier("status")
    assert "nightly" in output and "4 Completed, 9 Cached" in output
    keep("status.txt", output)
    keep("run.log", served.said(run["id"]))


def test_overlapping_runs_queue_and_a_failed_stage_fails_with_its_log(served):
    (served.root / "slow-report").write_text("1")
    (served.root / "fail-report").write_text("2 1")  # with code 2, once
    both = [served.begin(settings=[f"report.episodes={n}"]) for n in (21, 22)]
    failed, good = sorted(map(served.ended, both), key=lambda r: r["start_time"])
    assert failed["end_time"] <= good["start_time"], "one after the other"
    assert failed["state"]["type"] == "FAILED" and good["state"]["type"] == "COMPLETED", served.said(good["id"])
    assert "the stage report failed: report: no rows left: lower `least`" in failed["state"]["message"]
    assert "error: report: no rows left: lower `least`" in served.said(failed["id"])
    served.until(lambda: "report" in served.states(failed["id"]))
    assert served.tasks(failed["id"])["report"]["run_count"] == 1, "an error of the work is not tried again"
    assert "episodes" not in (served.root / "params.yaml").read_text(), "settings hold for their run only"
    (served.root / "slow-report").unlink()


def test_a_stage_that_sigkill_ends_is_tried_again_where_it_can_go_on(served):
    """As where the kernel ends a process for its memory: with a checkpoint the run is whole, without one it has failed."""
    (served.root / "fail-report").write_text("-9 1")  # SIGKILL, once
    run = served.ended(served.begin(settings=["report.episodes=24"]))
    assert run["state"]["type"] == "FAILED" and "it was ended by SIGKILL" in run["state"]["message"]
    served.until(lambda: "report" in served.states(run["id"]))
    assert served.tasks(run["id"])["report"]["run_count"] == 1, "it would die at the same place again"
    (served.root / "fail-report").write_text("-9 1")
    kept = served.root / ".espalier/work/report/1/checkpoints"
    kept.mkdir(parents=True)
    run = served.ended(served.begin(settings=["report.episodes=24"]))
    assert run["state"]["type"] == "COMPLETED", served.said(run["id"])
    served.until(lambda: len(served.states(run["id"])) == 13)
    assert served.tasks(run["id"])["report"]["run_count"] == 2 and not (served.root / "fail-report").exists()
    assert toy.processes(served.root) == []
    shutil.rmtree(kept.parents[1])


def test_polls_of_the_worker_do_not_fail_at_once(served):
    """The database is SQLite: who finds it locked waits (`app.lock_first`), for up to a minute."""
    failed = re.findall(r"ERROR .*\[ *(\d+)ms\] mark_deployments_ready", served.log(".espalier/prefect/server.log"))
    assert not [ms for ms in failed if int(ms) < 10_000]


def test_a_stopped_run_leaves_no_process_and_a_state_to_go_on_from(served):
    (served.root / "slow-report").write_text("600")
    id = served.begin(settings=["report.episodes=23"])
    served.until(lambda: toy.processes(served.root) or served.run(id)["state"]["type"] == "FAILED")
    assert toy.processes(served.root), served.said(id)
    assert "is cancelled" in served.espalier("stop", id[:8])
    assert served.run(id)["state"]["type"] == "CANCELLED" and toy.processes(served.root) == []
    assert "episodes" not in (served.root / "params.yaml").read_text()
    (served.root / "slow-report").unlink()


def test_a_restarted_server_knows_what_was_and_goes_on_from_it(served):
    def known():
        """What has begun, and when the scheduler means to begin others: runs that have not begun are made anew by the
        deployment."""
        runs = served.runs()
        begun = {r["id"]: r["state"]["type"] for r in runs if r["state"]["type"] != "SCHEDULED"}
        return begun, sorted(r["expected_start_time"] for r in runs if r["id"] not in begun)

    before = known()
    served.end()
    assert toy.processes(served.root) == []
    served.start()
    assert known()[0] == before[0]
    served.until(lambda: known()[1] == before[1])
    # What the test before this one has stopped.
    (served.root / "fail-report").write_text("75 1")  # with the code of a transient failure, once
    again = served.ended(served.begin(settings=["report.episodes=23"]))
    assert again["state"]["type"] == "COMPLETED", served.said(again["id"])
    served.until(lambda: len(served.states(again["id"])) == 13)
    assert served.tasks(again["id"])["report"]["run_count"] == 2, "which is tried again"


def test_a_deployment_whose_working_directory_is_gone(served):
    (known,) = served.api("deployments/filter", deployments={"name": {"any_": ["nightly"]}})
    gone = str(served.root.parent / "moved-away")
    step = {"tasks.schedule.deployments.enter": {"directory": gone}}
    kept = {k: known[k] for k in ("flow_id", "entrypoint", "work_pool_name", "parameter_openapi_schema")}
    deployment = served.api("deployments/", name="elsewhere", pull_steps=[step], **kept)
    run = served.ended(served.api(f"deployments/{deployment['id']}/create_flow_run", parameters={})["id"])
    assert run["state"]["type"] in ("FAILED", "CRASHED")
    assert (
        f"the working directory of this deployment is gone: {gone}; put it back, or `espalier deploy`"
        in served.said(run["id"])
    )


def attack(served, headers):
    """What a page or a user who can reach the port would do: make a deployment whose run executes a command, and start
    it. Returns the statuses."""
    port, told, statuses = int(served.url.split(":")[2].removesuffix("/api")), {"id": "x"}, []
    steps = [{"prefect.deployments.steps.run_shell_script": {"script": f"touch {served.root}/taken"}}]
    pool = {
        "name": "taken",
        "work_pool_name": server.POOL,
        "entrypoint": "flows.pipeline.pipeline",
        "pull_steps": steps,
    }
    for path, body in (
        ("/api/flows/", lambda: {"name": "taken"}),
        ("/api/deployments/", lambda: {**pool, "flow_id": told["id"]}),
        ("/api/deployments/{id}/create_flow_run", lambda: {}),
    ):
        sent = {"Content-Type": "application/json", **headers}
        data = json.dumps(body()).encode()
        status, _, text = foreign.ask(port, "POST", path.replace("{id}", told["id"]), sent, data)
        told = json.loads(text) if status in (200, 201) else told
        statuses.append(status)
    return statuses


def test_whoever_reaches_the_port_runs_nothing(served):
    """The first is what any web page could do while `espalier schedule` was up, the second what another user could."""
    port = int(served.url.split(":")[2].removesuffix("/api"))
    known = {k: v for k, v in served.headers().items() if k != "Content-Type"}
    assert attack(served, {"Origin": "https://evil.example", "Host": "evil.example"}) == [421] * 3
    forged = {k: v for k, v in known.items() if k != "Authorization"}
    assert attack(served, {}) == [403] * 3 and attack(served, forged) == [401] * 3, "no password"
    assert foreign.ask(port, "GET", "/api/admin/settings", {})[0] == 401
    assert attack(served, {"Authorization": known["Authorization"]}) == [403] * 3, "a forged request: no CSRF token"
    assert attack(served, {**known, "Origin": "https://evil.example"}) == [403] * 3
    wrong = {**known, "Authorization": "Basic " + base64.b64encode(b"espalier:guess").decode()}
    assert attack(served, wrong) == [401] * 3
    about = {"get": "/api/flows/paginate", "post": "/api/flows/", "body": b'{"name": "taken"}'}
    assert foreign.accepted(port, **about, **known) == []
    assert [f["name"] for f in served.api("flows/filter", flows={"name": {"any_": ["taken"]}})] == []
    assert not (served.root / "taken").exists()
    token = server.home(served.root) / "token"
    assert token.stat().st_mode & 0o777 == 0o600 and token.parent.stat().st_mode & 0o777 == 0o700
    assert token.read_text().strip() in served.link() and known["Authorization"] not in served.log("serve.log")
    for name in ("server.log", "worker.log"):
        assert token.read_text().strip() not in served.log(f".espalier/prefect/{name}")


@pytest.mark.skipif(
    browser.BROWSER is None, reason="there is no Chromium here: install one to see a page of another site"
)
def test_a_page_of_another_site_reaches_nothing(served, tmp_path):
    port = int(served.url.split(":")[2].removesuffix("/api"))
    with foreign.site() as elsewhere, browser.page(tmp_path) as page:
        page.open(served.link(), until="location.search == '' && localStorage.getItem('prefect-password')")
        about = {"get": "/api/admin/version", "post": "/api/flows/", "body": '{"name": "taken"}'}
        outcomes = foreign.in_browser(page, elsewhere, port, **about, socket="/api/events/in", picture="/ico.svg")
    assert {what for _, what in map(tuple, outcomes)} == {"refused"}, outcomes
    assert served.api("flows/filter", flows={"name": {"any_": ["taken"]}}) == []


@pytest.mark.skipif(
    browser.BROWSER is None, reason="there is no Chromium here: install one to see Prefect's pages looked at"
)
def test_prefect_s_page_shows_the_stages(served, tmp_path):
    run = next(r for r in served.runs() if r["auto_scheduled"] and r["state"]["type"] == "COMPLETED")
    with browser.page(tmp_path, 1400, 1000) as page:
        page.open(served.link(), until="location.search == '' && localStorage.getItem('prefect-password')")
        page.open(
            f"{served.url.removesuffix('/api')}/runs/flow-run/{run['id']}",
            until=f"document.body.innerText.includes('{run['name']}')",
            seconds=240,
        )
        tab = (
            "[...document.querySelectorAll('*')].find(e => !e.childElementCount && e.textContent.trim() == 'Task Runs')"
        )
        page.wait(tab, 240)
        page.run(f"{tab}.click()")
        page.wait("document.body.innerText.split('Cached').length > 5", 240)
        for folder in filter(None, (kept(), os.environ.get("ESPALIER_PICTURES"))):
            page.picture(Path(folder) / "prefect.png")


def test_stages_go_to_the_pool_of_their_machine(served):
    """Two process pools: `rl`, whose model is said to be on a GPU, is run by the worker of the one, all else that has
    changed by that of the other, and `plan` by the run itself."""
    text = deployments().replace("promote: false,", "promote: false, pools: {cpu: cpu, gpu: gpu-1}, pool_minutes: 60,")
    (served.root / "prefect.yaml").write_text(text)
    served.espalier("deploy")
    output = served.espalier("worker", "gpu-2", code=2)
    assert "there is no work pool 'gpu-2' on the server: did you mean 'gpu-1'" in output
    run = [sys.executable, "-c", "import sys; from flows.cli import main; sys.exit(main())", "worker"]
    workers = [subprocess.Popen([*run, p], cwd=served.root, env=served.env) for p in ("cpu", "gpu-1")]
    try:
        run = served.ended(served.begin(settings=["rl.device=cuda"]))
    finally:
        for worker in workers:
            worker.terminate()
        for worker in workers:
            worker.wait(PATIENCE)
    assert run["state"]["type"] == "COMPLETED", served.said(run["id"])
    sent = served.runs("elsewhere")
    pools = {r["name"]: r["work_pool_name"] for r in sent}
    assert pools == {"rl": "gpu-1", "evaluate": "cpu", "report": "cpu"}
    (rl,) = (r for r in sent if r["name"] == "rl")
    served.until(lambda: "rl: at work" in served.said(rl["id"]))
    assert toy.processes(served.root) == []
