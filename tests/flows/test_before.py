"""What `espalier run` and `espalier sweep` refuse before a stage runs, though it is a late stage that needs it."""

import shutil
import socket
import threading
from pathlib import Path

import pytest
import toy
import yaml
from stub_server import stub

from flows import cli
from flows.cli._before import check
from tasks.core.errors import UserError
from tasks.models import beforehand
from tasks.planning import plan
from tasks.runtime import dvc
from tasks.runtime.stage import OUT, graph

ABOUT = {"dtype": "float32", "vocab_size": 64, "hidden_size": 128, "num_hidden_layers": 4, "max_model_len": 4096}


@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    root = tmp_path_factory.mktemp("before") / "mine"
    assert cli.main(["init", str(root)]) == 0
    return root


@pytest.fixture
def root(begun, tmp_path, monkeypatch):
    root = shutil.copytree(begun, tmp_path / "mine", symlinks=True)
    monkeypatch.chdir(root)
    monkeypatch.delenv("ESPALIER_PATH", raising=False)
    for key, value in toy.WHO.items():
        monkeypatch.setenv(key, value)
    beforehand._check_server.cache_clear()
    return root


@pytest.fixture
def nothing_runs(monkeypatch):
    """Fails where anything is begun."""

    def begun(*args, **kw):
        raise AssertionError("it ran")

    monkeypatch.setattr("flows.cli.run._run", begun)
    monkeypatch.setattr("tasks.results.sweep.run", begun)


@pytest.fixture
def server():
    """A stand-in of a vLLM server with the shape of the small model."""
    params = plan.plans(Path())["sft"]["params"]
    about = ABOUT | {"hidden_size": params["hidden"], "num_hidden_layers": params["layers"]}
    port = stub(3, about)
    threading.Thread(target=port.serve_forever, daemon=True).start()
    yield port, f"http://127.0.0.1:{port.server_port}"
    port.shutdown()
    port.server_close()


def nobody():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{s.getsockname()[1]}"


def refused(capsys, *words):
    """The one sentence of a command that runs nothing."""
    capsys.readouterr()
    assert cli.main(list(words)) == 2
    errors = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("warning: ")]
    assert len(errors) == 1 and errors[0].startswith("error: "), errors
    return errors[0]


COMMANDS = [("run",), ("sweep", "seed=1,2", "--no-watch", "--workers", "1")]


@pytest.mark.parametrize("command", COMMANDS, ids=["run", "sweep"])
def test_what_a_late_stage_lacks_is_said_before_the_first_begins(root, nothing_runs, capsys, monkeypatch, command):
    place = nobody()
    said = refused(capsys, *command, "--set", f"rl.engine.name=http://{place}")
    assert f"rl.engine.name: no server answers at http://{place}" in said and "espalier run --stage sft" in said
    monkeypatch.setattr(beforehand, "find_spec", lambda name: None)
    said = refused(capsys, *command, "--set", "rl.engine.name=vllm", "--set", "rl.samplers=2")
    assert "rl.engine.name is vllm, which is not installed" in said
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("flows.cli.run._free", lambda wanted: 1e12)
    said = refused(capsys, *command, "--set", "rl.device=cuda", "--set", "rl.learners=4")
    has = "this machine has 2" if command == ("run",) else "a stage has 1"
    assert "rl.learners is 4, which takes 4 devices" in said and has in said and "lower rl.learners" in said
    if command[0] == "sweep":
        pytest.importorskip("ray")
        assert f"rl.ray: nobody answers at {place}" in refused(capsys, *command, "--set", f"rl.ray={place}")


def test_a_server_with_something_else_is_refused(root, nothing_runs, server, capsys):
    port, url = server
    with pytest.raises(AssertionError, match="it ran"):
        cli.main(["run", "--set", f"rl.engine.name={url}"])
    for name, value, words in (
        ("hidden_size", 999, "runs a model with hidden_size 999, and the policy has"),
        ("dtype", "bfloat16", "runs a model with dtype bfloat16, and the policy has float32"),
        ("max_model_len", 8, "takes conversations of 8 tokens"),
    ):
        beforehand._check_server.cache_clear()
        old, port.about[name] = port.about[name], value
        assert words in refused(capsys, "run", "--set", f"rl.engine.name={url}")
        port.about[name] = old
    beforehand._check_server.cache_clear()
    old, port.release = port.release, "0.33.0"
    assert "runs vLLM 0.33.0, and this version of espalier works with 0.32" in refused(
        capsys, "run", "--set", f"rl.engine.name={url}"
    )
    port.release = old
    assert "no server answers at" in refused(capsys, "run", "--set", f"rl.engine.name={url},http://{nobody()}")


def test_a_stage_that_is_up_to_date_is_not_asked(root, monkeypatch):
    monkeypatch.setattr(dvc, "changed_data", lambda root: {})  # as after a run of all
    params = yaml.safe_load((root / "params.yaml").read_text()) or {}
    (root / "params.yaml").write_text(
        yaml.safe_dump({**params, "set": {"rl": {"engine": {"name": f"http://{nobody()}"}}}})
    )
    plan.write(root)
    for name in graph(root):
        (root / OUT.get(name, f"artifacts/{name}")).mkdir(parents=True, exist_ok=True)
    plans = plan.plans(root)
    check(root, [plans])
    (root / "artifacts/sft/model").mkdir(parents=True)
    (root / "artifacts/rl").rmdir()
    with pytest.raises(UserError, match="no server answers") as e:
        check(root, [plans])
    assert "--stage sft" not in str(e.value), "the model is there"
    check(root, [plans], "sft")
