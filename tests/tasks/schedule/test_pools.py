"""A stage that is sent to a work pool: waited for with a limit, and not left behind."""

from types import SimpleNamespace

import pytest
from tasks.core.errors import StageError, UserError
from tasks.core.paths import CODE


def state(kind, **fields):
    """A state of Prefect's. Prefect takes a second to load: here and not by every worker that collects this file."""
    from prefect import states

    return getattr(states, kind)(**fields)


class Api:
    """A server that tells these states of a run, one after the other, and then the last."""

    def __init__(self, *states):
        self.states, self.set = [s if not isinstance(s, str) else state(s) for s in states], []

    def read_flow_run(self, id):
        state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        return SimpleNamespace(id=id, state=state)

    def set_flow_run_state(self, id, state, force):
        self.set.append(state.name)


@pytest.fixture
def ask(monkeypatch, tmp_path):
    from flows import elsewhere

    sent = []

    def run_deployment(name, **how):
        sent.append((name, how["parameters"]))
        return SimpleNamespace(id="1", state=state("Scheduled"))

    monkeypatch.setattr("prefect.deployments.run_deployment", run_deployment)
    monkeypatch.setattr(elsewhere, "ASKED", 0.0)

    def of(*states, patience=60.0):
        api = Api(*states)
        try:
            return elsewhere.asked(api, "gpu-1", tmp_path, "rl", {"A": "1"}, None, patience), api
        except StageError as e:
            return e, api

    of.sent = sent
    return of


def test_what_a_worker_says_comes_back(ask):
    how, api = ask("Scheduled", "Pending", "Running", state("Completed", message="restored"))
    assert how == "restored" and api.set == []
    assert ask.sent == [("elsewhere/gpu-1", {"name": "rl", "env": {"A": "1"}, "limit": None})]


@pytest.mark.parametrize(
    ("kind", "fields", "words", "again"),
    [
        ("Failed", {"message": "the stage rl failed: no rows"}, "the stage rl failed: no rows", False),
        ("Failed", {"name": "Transient", "message": "the stage rl failed: busy"}, "the stage rl failed: busy", True),
        ("Crashed", {"message": "its process is gone"}, "the stage rl failed: its process is gone", True),
    ],
)
def test_what_fails_there_fails_here(ask, kind, fields, words, again):
    error, api = ask("Running", state(kind, **fields))
    assert isinstance(error, StageError) and str(error) == words and error.transient is again and api.set == []


def test_a_pool_without_a_worker_is_waited_for_with_a_limit(ask):
    error, api = ask("Scheduled", patience=0.0)
    assert "no worker of the pool gpu-1 took the stage rl within 0 minutes" in str(error) and not error.transient
    assert "espalier worker gpu-1" in str(error) and api.set == ["Cancelled"], "nor does a later worker take it"


def test_a_run_that_ends_cancels_what_it_sent(ask, monkeypatch):
    from flows import elsewhere

    def interrupted(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(elsewhere.time, "sleep", interrupted)
    api = Api("Running")
    monkeypatch.setattr(
        "prefect.deployments.run_deployment", lambda *_, **__: SimpleNamespace(id="1", state=state("Running"))
    )
    with pytest.raises(KeyboardInterrupt):
        elsewhere.asked(api, "gpu-1", CODE, "rl", {}, None, 60.0)
    assert api.set == ["Cancelling"]


def test_an_unknown_name_of_a_machine_is_refused_before_anything_starts(monkeypatch):
    from flows import pipeline

    monkeypatch.chdir(CODE)
    with pytest.raises(UserError, match="pools names 'gpuu': did you mean 'gpu'"):
        pipeline.pipeline.fn(pools={"gpuu": "gpu-1"})
