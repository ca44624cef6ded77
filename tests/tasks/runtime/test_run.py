"""`flow` and `task`: plain functions unless the pipeline is the parent, and never at the mercy of its server."""

import subprocess
import sys
import types

import pytest

from tasks import run
from tasks.core.paths import CODE
from tasks.runtime import prefect_shim, termination, threads


def test_plain_without_the_parent(monkeypatch):
    monkeypatch.delenv(prefect_shim.PARENT, raising=False)

    def f(x):
        return x + 1

    assert prefect_shim.flow(f) is f and prefect_shim.task(name="other")(f) is f


def test_a_stage_flow_does_not_import_prefect():
    script = "import sys, flows.plan, tasks.run; print('prefect' in sys.modules, 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], cwd=CODE, capture_output=True, text=True)
    assert done.stdout == "False False\n"


@pytest.mark.parametrize(
    "used, own, spin",
    [
        (10.0, {}, None),  # free cores
        (60.0, {}, threads.SHORT_SPIN),  # another program has more than half a core of the two that are wanted
        (100.0, {"OMP_WAIT_POLICY": "ACTIVE"}, None),  # the user's word
        (100.0, {"GOMP_SPINCOUNT": "7"}, "7"),
    ],
)
def test_threads_that_wait_spin_shortly_where_others_use_the_cores(monkeypatch, used, own, spin):
    monkeypatch.delitem(sys.modules, "torch", raising=False)  # a stage asks before it loads torch
    monkeypatch.setattr(threads.psutil, "cpu_percent", lambda interval: used)
    monkeypatch.setattr(threads.psutil, "cpu_count", lambda: 2)
    monkeypatch.setattr(threads.os, "environ", dict(own))
    threads.set_threads(2)
    assert threads.os.environ.get("GOMP_SPINCOUNT") == spin and threads.os.environ["OMP_NUM_THREADS"] == "2"
    monkeypatch.setattr(threads.os, "environ", {})
    threads.set_threads(1)  # one thread waits for nobody
    assert "GOMP_SPINCOUNT" not in threads.os.environ


def test_threads_are_not_looked_at_once_torch_is_loaded(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", types.ModuleType("torch"))
    monkeypatch.setattr(threads.psutil, "cpu_percent", lambda interval: pytest.fail("it is settled"))
    monkeypatch.setattr(threads.os, "environ", {})
    threads.set_threads(2)
    assert threads.os.environ == {"OMP_NUM_THREADS": "2"}


@pytest.fixture
def prefect(monkeypatch):
    """A stand-in for Prefect that records what it watched and fails where it is told to."""
    seen = types.SimpleNamespace(calls=[], fail="")

    def watch(kind):
        def decorate(body, **options):
            def call():
                seen.calls.append((kind, options))
                if seen.fail == "before":
                    raise ConnectionError("no server")
                result = body()
                if seen.fail == "after":
                    raise ConnectionError("server lost")
                return result

            return call

        return decorate

    policies = types.ModuleType("prefect.cache_policies")
    policies.NO_CACHE = "no cache"
    module = types.ModuleType("prefect")
    module.flow, module.task = watch("flow"), watch("task")
    monkeypatch.setitem(sys.modules, "prefect", module)
    monkeypatch.setitem(sys.modules, "prefect.cache_policies", policies)
    monkeypatch.setenv(prefect_shim.PARENT, "1")
    monkeypatch.setattr(prefect_shim, "_lost", [])
    return seen


def test_watched_under_the_parent(prefect):
    assert prefect_shim.task(lambda x, y=1: x + y)(2, y=3) == 5

    @prefect_shim.flow(name="the-flow")
    def f(x):
        return x

    assert f(4) == 4
    assert prefect.calls == [("task", {"name": "<lambda>", "cache_policy": "no cache"}), ("flow", {"name": "the-flow"})]


@pytest.mark.parametrize("fail", ["before", "after"])
def test_a_lost_server_is_a_warning(prefect, fail):
    prefect.fail, ran = fail, []
    with pytest.warns(UserWarning, match="could not watch"):
        assert prefect_shim.task(lambda x: ran.append(x) or x)(7) == 7
    assert ran == [7], "the work is done once"
    assert prefect_shim.task(lambda: 8)() == 8 and len(prefect.calls) == 1, "Prefect is asked no more"


def test_errors_of_the_work_are_raised_as_they_are(prefect):
    def broken():
        raise ValueError("ours")

    with pytest.raises(ValueError, match="ours"):
        prefect_shim.flow(broken)()


@pytest.mark.parametrize(
    ("sentence", "output"),
    [
        ("no rows left", "error: rl: no rows left\n"),
        ("rl: temperature is 0.0", "error: rl: temperature is 0.0\n"),
        ("rl.judge: url is missing", "error: rl.judge: url is missing\n"),
        ("rlhf.csv holds no row", "error: rl: rlhf.csv holds no row\n"),
    ],
)
def test_a_stage_is_named_once(capsys, monkeypatch, sentence, output):
    def fails(name):
        raise ValueError(sentence)

    monkeypatch.setattr(run, "_run", fails)
    monkeypatch.setattr(termination, "on_sigterm", lambda name: None)
    with pytest.raises(SystemExit) as ended:
        run._guarded("rl")
    assert ended.value.code == 2 and capsys.readouterr().err == output
