"""prefect.yaml is checked before it is deployed: a mistake is a sentence now, not a schedule that never fires."""

import shutil
import subprocess
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from uuid import uuid4

import pytest
import yaml

from tasks.core.errors import StageError, UserError
from tasks.core.paths import CODE
from tasks.runtime import dvc
from tasks.schedule import deployments, server
from tasks.tracking import spool


def test_the_project_s_own():
    entries = deployments.read(CODE)
    assert [e["flow"].name for e in entries] == ["pipeline", "champion", "leaderboard"]
    assert [(s.schedule.cron, s.active) for e in entries for s in e["schedules"]] == [
        ("0 2 * * *", True),
        ("30 1 * * 1", True),
        ("0 4 * * *", False),
    ]
    ours, theirs = ((p / "prefect.yaml").read_text(encoding="utf-8") for p in (CODE, CODE / "flows/template"))
    assert ours.partition("- name: leaderboard")[0] == theirs, (
        "`espalier init` gives the same, but for what needs this checkout"
    )


def test_prefect_s_form_says_what_each_parameter_is():
    from prefect.utilities.callables import parameter_schema

    from flows.elsewhere import elsewhere

    for flow in (*(e["flow"] for e in deployments.read(CODE)), elsewhere):
        for name, field in parameter_schema(flow.fn).properties.items():
            assert field.get("description") and ("type" in field or "anyOf" in field), (flow.name, name)


def test_the_leaderboard_runs_for_the_minutes_it_is_given(tmp_path, monkeypatch):
    """Its command, what it says last as the run's message, a sentence where it fails; without a server: the flow's own
    function."""
    from flows import leaderboard

    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks/__init__.py").touch()
    monkeypatch.chdir(tmp_path)
    heard = []
    monkeypatch.setattr(leaderboard, "get_run_logger", lambda: SimpleNamespace(info=heard.append))
    with pytest.raises(UserError, match="the leaderboard runs in a checkout"):
        leaderboard.leaderboard.fn()
    script = tmp_path / "benchmarks/leaderboard.py"
    script.write_text("import sys\nprint('one run'); print(*sys.argv[1:], 'are over')\n")
    assert leaderboard.leaderboard.fn(minutes=7.5).message == "--minutes 7.5 are over" and heard[0] == "one run"
    script.write_text("import sys\nsys.exit('it broke')\n")
    with pytest.raises(StageError, match="ended with code 1: it broke"):
        leaderboard.leaderboard.fn()


GOOD = {
    "name": "nightly",
    "entrypoint": "flows.pipeline.pipeline",
    "parameters": {"stage_minutes": 5},
    "schedules": [{"cron": "0 2 * * *"}],
}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"entrypoint": "flows/pipeline.py:pipeline"}, "is a file path"),
        ({"entrypoint": "flows.pipeline.pipelin"}, "cannot be imported"),
        ({"entrypoint": "flows.pipeline.watch"}, "is not a flow"),
        ({"schedule": {"cron": "0 2 * * *"}}, "unknown key 'schedule': did you mean 'schedules'"),
        ({"name": None}, "name is missing"),
        ({"parameters": {"stage_minutes": -1}}, "stage_minutes"),
        ({"parameters": {"promote": "perhaps"}}, "promote"),
        ({"parameters": {"stage_hours": 1}}, "stage_hours"),
        ({"schedules": [{"cron": "99 2 * * *"}]}, "schedule {'cron': '99 2 * * *'}: "),
        (
            {"schedules": [{"rrule": "DTSTART:20200101T000000Z\nRRULE:FREQ=DAILY;COUNT=3"}]},
            "lies in the past and would never fire",
        ),
    ],
)
def test_mistakes_are_sentences(tmp_path, change, words):
    (tmp_path / "prefect.yaml").write_text(yaml.safe_dump({"deployments": [{**GOOD, **change}]}))
    with pytest.raises(UserError, match="prefect.yaml, deployment") as e:
        deployments.read(tmp_path)
    assert words in str(e.value) and "\n" not in str(e.value), str(e.value)


def test_a_schedule_that_is_off_may_lie_in_the_past(tmp_path):
    over = {"rrule": "DTSTART:20200101T000000Z\nRRULE:FREQ=DAILY;COUNT=3", "active": False}
    (tmp_path / "prefect.yaml").write_text(yaml.safe_dump({"deployments": [{**GOOD, "schedules": [over]}]}))
    assert not deployments.read(tmp_path)[0]["schedules"][0].active


def test_nothing_to_deploy(tmp_path):
    with pytest.raises(UserError, match="prefect.yaml does not exist"):
        deployments.read(tmp_path)
    (tmp_path / "prefect.yaml").write_text("deployments: []\n")
    with pytest.raises(UserError, match="holds no deployments"):
        deployments.read(tmp_path)


def test_a_working_directory_that_is_gone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    place = tmp_path / "project"
    place.mkdir()
    assert deployments.enter(str(place)) == {"directory": str(place)}
    monkeypatch.chdir(tmp_path)
    shutil.rmtree(place)
    with pytest.raises(
        UserError,
        match="the working directory of this deployment is gone: .*project; put it back, or `espalier deploy`",
    ):
        deployments.enter(str(place))


def test_no_server(tmp_path, monkeypatch):
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    with pytest.raises(UserError, match="has no commit yet: `git init && git add -A && git commit -m start`"):
        server.connect(tmp_path)  # what `espalier schedule` would say next comes first
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org"]
    subprocess.run([*git, "init", "-q"], cwd=tmp_path, check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "start"], cwd=tmp_path, check=True)
    with pytest.raises(UserError, match="no Prefect server runs .*: `espalier schedule` starts one"):
        server.connect(tmp_path)
    # A note of a server that has died is no server.
    server._note(server.home(tmp_path) / "server.json", 2**22 + 1, url="http://127.0.0.1:1/api")
    assert server.find(tmp_path) is None
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:1/api")
    with pytest.raises(UserError, match="no Prefect server answers at PREFECT_API_URL=http://127.0.0.1:1/api"):
        server.find(tmp_path)


def test_a_port_in_use(monkeypatch):
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        with pytest.raises(UserError, match="is in use: name another with --port"):
            server._port(taken.getsockname()[1])
    assert server._port(0) > 0


def test_parameters_are_put_back(tmp_path):
    """Settings of one run are written into params.yaml for DVC to see, and taken out again, after a kill by the next
    run."""
    path = tmp_path / "params.yaml"
    path.write_text(before := "# mine\nrecipe: grpo  # which\nset:\n  rl:\n    advantage: {piece: quantile, k: 0.4}\n")
    with dvc.alone(tmp_path):
        with dvc.overridden({"recipe": "qae", "set.rl.advantage": {"piece": "rloo"}}, tmp_path):
            now = yaml.safe_load(path.read_text())
            assert (
                now == {"recipe": "qae", "set": {"rl": {"advantage": {"piece": "rloo"}}}}
                and "# mine" in path.read_text()
            )
        assert path.read_text() == before
        killed = dvc.overridden({"recipe": "qae"}, tmp_path)
        killed.__enter__()
    assert "qae" in path.read_text()
    with dvc.alone(tmp_path):
        assert path.read_text() == before
    # What the user writes meanwhile is the user's.
    with dvc.alone(tmp_path), dvc.overridden({"recipe": "qae"}, tmp_path):
        path.write_text("recipe: dapo\n")
    assert path.read_text() == "recipe: dapo\n"


def test_the_clock_does_not_say_which_run_was_the_last(tmp_path, monkeypatch):
    # Set back, forth and back.
    for key, now in (
        ("first", 2000.0),
        ("second", 1000.0),
        ("third", 3000.0),
        ("fourth", 10.0),
    ):
        monkeypatch.setattr(spool.time, "time", lambda now=now: now)
        spool.open_execution(tmp_path, key)
        assert spool.latest(tmp_path).name == key
    assert [folder.name for folder, _ in spool.executions(tmp_path)] == ["first", "second", "third", "fourth"]


class Api:
    """What `tidy` asks of a server, which has these runs; `told` is what it was told of them."""

    def __init__(self, *runs):
        self.runs, self.told = runs, {}

    def read_flow_runs(self, flow_run_filter, sort, limit):
        if above := flow_run_filter.parent_flow_run_id:
            return [r for r in self.below if r.above in above.any_]
        return [r for r in self.runs if r.state in {t.value for t in flow_run_filter.state.type.any_}]

    def set_flow_run_state(self, id, state, force):
        self.told[id] = state.name


def run(id, state, hours=0.0, deployment="nightly"):
    due = datetime.now(UTC) + timedelta(hours=hours)
    return SimpleNamespace(id=id, name=id, state=state, expected_start_time=due, deployment_id=deployment)


def test_of_missed_runs_the_last_of_each_deployment_is_still_to_be_run(tmp_path):
    """As after a night without power, or where the clock was set 400 days forward."""
    late = [
        run("a", "SCHEDULED", -9600),
        run("c", "SCHEDULED", -2),
        run("b", "SCHEDULED", -24),
        run("d", "SCHEDULED", -30, "champion"),
    ]
    api = Api(*late, run("e", "SCHEDULED", 22), run("f", "COMPLETED", -50))
    assert server.tidy(api, tmp_path) == [f"{n}: missed while no worker ran; a later one runs instead" for n in "ab"]
    assert api.told == {"a": "Cancelled", "b": "Cancelled"}
    # Where the clock was set back, all are still to come.
    api = Api(*(run(n, "SCHEDULED", 9600 + i) for i, n in enumerate("abc")))
    assert server.tidy(api, tmp_path) == [] and api.told == {}


def test_runs_of_dead_processes_have_crashed(tmp_path):
    """Prefect would show them as running for ever, and they would hold the place of the next."""
    dead, other, value = uuid4(), uuid4(), uuid4()
    api = Api(run(dead, "RUNNING"), run("alive", "RUNNING"), run("elsewhere", "RUNNING"))
    api.below = [SimpleNamespace(id=value, above=dead), SimpleNamespace(id="x", above=other)]
    server._note(server.home(tmp_path) / f"runs/{dead}.json", 2**22 + 1)
    server.note(tmp_path, "alive")
    assert len(server.tidy(api, tmp_path)) == 1
    assert api.told == {dead: "Crashed", value: "Crashed"}
