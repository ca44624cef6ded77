"""What a Prefect server is told of a sweep, and what happens to the sweep if it cannot be told."""

import itertools
from contextlib import nullcontext
from types import SimpleNamespace
from uuid import UUID, uuid4

import pytest
from ports import free_port

from tasks.core.errors import UserError
from tasks.schedule import server, sweeps


class Api:
    """A server that fails the first requests with these errors."""

    def __init__(self, errors=()):
        self.errors, self.made, self.states = iter(errors), {}, []

    def _answers(self):
        for error in self.errors:
            raise error

    def create_flow(self, flow):
        return uuid4()

    def create_task_run(self, task, run, dynamic_key, name, state):
        self._answers()
        return SimpleNamespace(id=UUID(int=run.int + 1000))

    def request(self, method, path, json):
        id = self.made.setdefault(json["idempotency_key"], (UUID(int=len(self.made)), json))[0]
        self._answers()  # after the work: a reply that is lost
        return SimpleNamespace(json=lambda: {"id": str(id)})

    def set_flow_run_state(self, id, state, force):
        self._answers()
        self.states.append((id.int, state.name, state.message.partition(" (")[0]))

    def read_flow_runs(self, **_):
        return []


def away():
    import httpx

    return httpx.ConnectError("refused")


@pytest.fixture
def show(monkeypatch, tmp_path):
    """Runs a block as a sweep of one value on a server; what the user was told."""
    monkeypatch.setattr(sweeps, "AGAIN", 0.01)
    monkeypatch.setattr(sweeps, "LAST", 0.2)
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    monkeypatch.setattr(server, "find", lambda root: "http://127.0.0.1:1/api")

    def of(api, block=lambda runs: runs.end("a-0", "Completed", "done")):
        lines = []
        monkeypatch.setattr(sweeps, "_connected", lambda *_: nullcontext(api))
        with sweeps.shown(tmp_path, "a", {"workers": 2}, lines.append) as runs:
            runs.begin("a-0", "seed=1", {"seed": 1})
            block(runs)
        return lines

    return of


def test_each_value_is_a_run_below_that_of_the_sweep(show):
    def block(runs):
        runs.again("a-0", "its worker was ended")
        runs.end("a-0", "Crashed", "three times")

    assert show(api := Api(), block) == []
    sweep, value = (json for _, json in api.made.values())
    assert sweep["name"].startswith("sweep-a-") and sweep["tags"] == ["sweep", "a"]
    assert sweep["parameters"] == {"workers": 2} and sweep["parent_task_run_id"] is None
    assert (value["name"], value["parameters"]) == ("seed=1", {"seed": 1}) and value["tags"] == ["sweep", "a", "a-0"]
    assert UUID(value["parent_task_run_id"]).int == 1000 and value["state"]["type"] == "RUNNING"
    assert api.states == [
        (1, "Retrying", "its worker was ended"),
        (1, "Crashed", "three times"),
        (0, "Failed", "1 of 1 values failed"),
    ]


def test_a_server_that_comes_back_is_told_everything_once(show):
    assert show(api := Api(away() for _ in range(4))) == []
    assert len(api.made) == 2 and api.states == [(1, "Completed", "done"), (0, "Completed", "1 values ran")]


def test_a_server_that_stays_away_and_one_that_refuses_end_nothing(show):
    (warning,) = show(api := Api(away() for _ in itertools.count()))
    assert "Prefect does not show all of this sweep, which goes on (ConnectError: refused)" in warning
    assert api.states == []
    assert len(show(api := Api([ValueError("no such run")]))) == 1, "of a sweep that was refused nothing is shown"
    assert api.states == []


@pytest.mark.parametrize(
    ("error", "state"),
    [(KeyboardInterrupt(), "Cancelled"), (UserError("disk is full"), "Failed"), (KeyError("x"), "Crashed")],
)
def test_a_sweep_that_ends_by_an_error_says_how(show, error, state):
    def block(_):
        raise error

    api = Api()
    with pytest.raises(type(error)):
        show(api, block)
    assert [(id, name) for id, name, _ in api.states] == [(0, state)]


def test_without_a_server_the_sweep_goes_on(tmp_path, monkeypatch):
    monkeypatch.setenv("PREFECT_API_URL", f"http://127.0.0.1:{free_port()}/api")
    lines = []
    with sweeps.shown(tmp_path, "a", {}, lines.append) as runs:
        runs.begin("a-0", "seed=1", {})
        runs.end("a-0", "Completed", "done")
    assert len(lines) == 1 and "goes on without Prefect: no Prefect server answers at PREFECT_API_URL" in lines[0]


def test_stopping_a_sweep_whose_server_ends_with_it(tmp_path):
    class Gone(Api):
        def read_flow_run(self, id):
            raise away()

    api, running = Gone(), SimpleNamespace(is_final=lambda: False, is_scheduled=lambda: False)
    run = SimpleNamespace(id=UUID(int=7), name="sweep-a", state=running, deployment_id=None)
    assert "sweep-a is cancelled" in server.stop(api, tmp_path, run)
    assert [(i, name) for i, name, _ in api.states] == [(7, "Cancelling")]
