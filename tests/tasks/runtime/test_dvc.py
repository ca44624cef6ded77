"""The graph, end to end: the real dvc.yaml and the real plan over a copy of the code; the other stages are played by
a script that writes what it was told.

Each test works in a copy of one reproduced and committed repository.
"""

import json
import re
import shutil
import subprocess
import sys

import pytest
import toy
import yaml

from tasks.core.errors import StageError, UserError
from tasks.runtime import dvc

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def pristine(tmp_path_factory):
    return toy.pristine(tmp_path_factory)


@pytest.fixture
def repo(pristine, tmp_path):
    return shutil.copytree(pristine, tmp_path / "repo", symlinks=True)


def ran(root, *args):
    """Stages that a command ran, in order."""
    return re.findall(r"Running stage '(\w+)'", toy.sh(root, *(args or ("repro",))))


def test_what_runs_again(repo):
    assert ran(repo) == [], "nothing changed"
    (repo / "training/rl/advantage/brand_new.py").write_text(
        '"""New."""\ndef brand_new(groups, rewards, state, rng): ...\n'
    )
    assert ran(repo) == ["plan"], "a new piece"
    with (repo / "training/rl/advantage/grpo.py").open("a") as f:
        f.write("# the piece in use\n")
    assert ran(repo) == ["plan", "rl", "evaluate", "report"]
    with (repo / "training/rl/advantage/quantile.py").open("a") as f:
        f.write("# a piece that is not in use\n")
    assert ran(repo) == ["plan"]
    (repo / "data/facts.csv").write_text("a,b,d\n")
    assert ran(repo) == ["kb", "problems", "demonstrations", "preferences", "clean", "evaluate"], (
        "they read files of the user's; what the toy writes does not depend on data, so nothing follows"
    )


def test_quiet_says_nothing_but_errors(repo, monkeypatch, capfd):
    monkeypatch.setenv("ESPALIER_QUIET", "1")
    with (repo / "training/rl/advantage/grpo.py").open("a") as f:
        f.write("# the piece in use\n")
    assert dvc.reproduce(repo) == 0
    assert capfd.readouterr() == ("rl: at work\n", ""), "four stages ran; what one says itself is its own affair"
    (repo / "params.yaml").write_text("recipe: gprp\n")
    assert dvc.reproduce(repo) != 0
    assert "gprp" in capfd.readouterr().err


def test_recipes_are_experiments(repo):
    before = json.loads((repo / "artifacts/plan/rl.json").read_text())["params"]
    assert ran(repo, "exp", "run", "-S", "recipe=qae", "-n", "try-qae")[:2] == ["plan", "rl"]
    after = json.loads((repo / "artifacts/plan/rl.json").read_text())["params"]
    assert before["advantage"]["piece"] == "grpo" and after["advantage"] == {"piece": "quantile", "k": 0.4, "eps": 1e-8}
    assert "# kept" in (repo / "params.yaml").read_text() and "recipe: qae" in (repo / "params.yaml").read_text()
    (metric,) = json.loads(toy.sh(repo, "metrics", "diff", "--json"))["artifacts/evaluate/metrics.json"].values()
    assert metric["old"] != metric["new"]
    assert "try-qae" in toy.sh(repo, "exp", "show", "--csv")
    assert "index.html" in toy.sh(repo, "plots", "diff", "HEAD")
    toy.sh(repo, "exp", "apply", "try-qae")
    assert ran(repo) == [], "what an experiment computed is not computed again"


def test_settings_reach_the_plan_through_dvc(repo, monkeypatch, capfd):
    for name, value in toy.WHO.items():
        monkeypatch.setenv(name, value)
    lock = yaml.safe_load((repo / "dvc.lock").read_text())
    del lock["stages"]["rl"]  # as in a new project, where no stage has an output yet
    (repo / "dvc.lock").write_text(yaml.safe_dump(lock))
    shutil.rmtree(repo / "artifacts/rl")
    changes = {"set.rl.advantage": {"piece": "quantile", "k": 0.25}, "set.rl.optimizer.lr": 1e-05, "seed": 3}
    assert dvc.experiment(changes, repo) == 0
    output = capfd.readouterr()
    assert "rl: at work" in output.out and "No file hash info" not in output.out + output.err
    plan = json.loads((repo / "artifacts/plan/rl.json").read_text())
    assert plan["params"]["advantage"] == {"piece": "quantile", "k": 0.25, "eps": 1e-8}
    assert plan["params"]["optimizer"]["lr"] == 1e-05 and plan["seed"] == 3
    assert dvc.experiment({"set.rl.advantage": {"piece": "rloo"}}, repo) == 0
    assert "k: " not in (repo / "params.yaml").read_text(), "a piece is replaced whole, in params.yaml too"


def test_a_remote_round_trips(repo, tmp_path):
    toy.sh(repo, "remote", "add", "-d", "store", str(tmp_path / "store"))
    toy.sh(repo, "push", "-q")
    before = (repo / "artifacts/rl/card.json").read_bytes()
    shutil.rmtree(repo / ".dvc/cache")
    shutil.rmtree(repo / "artifacts")
    shutil.rmtree(repo / "reports")
    toy.sh(repo, "pull", "-q")
    assert (repo / "artifacts/rl/card.json").read_bytes() == before
    assert ran(repo) == []


def test_a_refusal_of_the_plan_stops_the_run_and_loses_nothing(repo):
    (repo / "params.yaml").write_text("recipe: gpro\n")
    done = subprocess.run(
        [sys.executable, "-m", "dvc", "repro"], cwd=repo, env=dvc.environment(), capture_output=True, text=True
    )
    assert done.returncode != 0 and "error: plan: there is no recipe 'gpro': did you mean 'grpo'" in done.stderr
    assert "Traceback" not in done.stderr and (repo / "artifacts/rl/card.json").exists()


def test_a_stage_that_is_killed_is_tried_again_where_it_goes_on(repo):
    with (repo / "artifacts/plan/report.json").open("a") as f:
        f.write("\n")
    work = repo / ".espalier" / "work" / "report" / "1"
    (work / "out").mkdir(parents=True)
    by_itself, by_us = "the stage report failed: it was ended by SIGKILL", "lower `least`"
    for code, kept, again, words in (
        (-9, False, False, by_itself),
        (-9, True, True, by_itself),
        (137, True, True, by_us),
        (-15, True, False, "the stage report failed"),
        (143, True, False, by_us),
        (2, True, False, by_us),
    ):
        if kept:
            (work / "checkpoints").mkdir(exist_ok=True)
        (repo / "fail-report").write_text(str(code))
        with pytest.raises(StageError, match=words) as e:
            dvc.stage("report", repo, {}, print)
        assert (e.value.transient, e.value.code) in ((again, code), (again, 128 - code)), (
            "the code of a shell, or Python's"
        )


def test_two_runs_in_one_checkout(tmp_path):
    with dvc.alone(tmp_path), pytest.raises(UserError, match="another run is under way"), dvc.alone(tmp_path):
        pass


def test_an_experiment_without_a_commit(tmp_path):
    with pytest.raises(UserError, match="no commit yet: `git init"):
        dvc.experiment({"recipe": "qae"}, tmp_path)


def test_downstream_follows_the_graph():
    assert dvc.downstream({"rl"}, toy.CODE) == ["evaluate", "report"]
    assert dvc.downstream({"clean"}, toy.CODE) == ["reward", "prefer", "evaluate", "report"]
    assert dvc.downstream({"kb"}, toy.CODE)[0] == "questions" and "problems" not in dvc.downstream({"kb"}, toy.CODE)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        (lambda data: b"", "it is empty"),
        (lambda data: data[: len(data) // 2], "not what git wrote"),
        (lambda data: data[:40] + bytes([data[40] ^ 4]) + data[41:], "not what git wrote"),
        (None, "is a directory"),
    ],
)
def test_a_damaged_index_of_git_is_a_sentence_with_the_fix(tmp_path, how, message, capsys, monkeypatch):
    """`espalier run --set` ended in DVC's "unexpected error - unpack requires a buffer of 46 bytes"."""
    git = lambda *args: subprocess.run(["git", *args], cwd=tmp_path, check=True, capture_output=True)  # noqa: E731
    assert dvc.damaged_index(tmp_path) == ""
    git("init", "-q")
    (tmp_path / "params.yaml").write_text("recipe: grpo\n")
    (tmp_path / "dvc.yaml").write_text("stages: {}\n")
    git("add", "-A")
    git("-c", "user.name=t", "-c", "user.email=t@example.org", "commit", "-qm", "x")
    (tmp_path / "params.yaml").write_text("recipe: grpo\nseed: 4\n")
    path = tmp_path / ".git/index"
    assert dvc.damaged_index(tmp_path) == ""
    data = path.read_bytes()
    path.unlink()
    path.write_bytes(how(data)) if how else path.mkdir()
    wrong = dvc.damaged_index(tmp_path)
    assert message in wrong and str(path) in wrong and "\n" not in wrong
    with pytest.raises(UserError, match="git reset"):
        dvc.committed(tmp_path)
    from flows import cli

    monkeypatch.chdir(tmp_path)
    for command in (["run", "--dry-run"], ["compare", "HEAD", "workspace"], ["status"], ["doctor"]):
        cli.main(command)
        told = "".join(capsys.readouterr())
        assert told.count(message) == 1 and "git reset" in told, command
    subprocess.run(wrong.split("`")[1], shell=True, cwd=tmp_path, check=True, capture_output=True)
    assert dvc.damaged_index(tmp_path) == "" and "seed: 4" in (tmp_path / "params.yaml").read_text()
