"""The graph, end to end: the real dvc.yaml and the real plan over a copy of the code; the other stages are played by
a script that writes what it was told.

Each test works in a copy of one reproduced and committed repository.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tasks import dvc
from tasks.errors import UserError

CODE = Path(__file__).parents[1]
pytestmark = pytest.mark.slow

TOY = """
import json, pathlib, sys
name = sys.argv[1]
out = pathlib.Path("reports" if name == "report" else f"artifacts/{name}")
out.mkdir(parents=True, exist_ok=True)
plan = json.loads(pathlib.Path(f"artifacts/plan/{name}.json").read_text())
out.joinpath("card.json").write_text(json.dumps(plan))
out.joinpath("curve.csv").write_text("step,loss,reward\\n" + "".join(f"{i},{1 / (i + 1)},{i}\\n" for i in range(5)))
if name == "evaluate":
    size = len(pathlib.Path("artifacts/rl/card.json").read_text())
    out.joinpath("metrics.json").write_text(json.dumps({"models": {"rl": {"pass@1": {"mean": size / 1e4}}}}))
if name == "report":
    out.joinpath("summary.json").write_text(pathlib.Path("artifacts/evaluate/metrics.json").read_text())
"""


@pytest.fixture(scope="module")
def pristine(tmp_path_factory):
    root = tmp_path_factory.mktemp("graph") / "repo"
    for package in ("flows", "tasks", "synth", "training"):
        shutil.copytree(CODE / package, root / package, ignore=shutil.ignore_patterns("__pycache__"))
    (root / "data").mkdir()
    (root / "data" / "facts.csv").write_text("a,b,c\n")
    (root / ".dvc").mkdir()
    for name in (".gitignore", ".dvcignore", ".dvc/config", ".dvc/.gitignore"):
        shutil.copy(CODE / name, root / name)
    (root / "params.yaml").write_text("# kept\nrecipe: grpo  # which\nprofile: cpu\nset: {}\n")
    (root / "toy.py").write_text(TOY)
    graph = (CODE / "dvc.yaml").read_text()
    (root / "dvc.yaml").write_text(re.sub(r"python -m flows\.(?!plan\b)(\w+)", r"python toy.py \1", graph))
    git(root, "init", "-q")
    sh(root, "repro", "-q")
    git(root, "add", "-A")
    git(root, "commit", "-qm", "start")
    return root


@pytest.fixture
def repo(pristine, tmp_path):
    return shutil.copytree(pristine, tmp_path / "repo", symlinks=True)


def git(root, *args):
    who = {k: "test@example.org" for k in ("GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL")}
    subprocess.run(["git", *args], cwd=root, check=True, env={**os.environ, **who})


def sh(root, *args):
    """Output of `dvc <args>`, which must succeed."""
    who = {k: "test@example.org" for k in ("GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL")}
    env = {**{k: v for k, v in dvc.environment().items() if not k.startswith(("DVC_", "ESPALIER_"))}, **who}
    done = subprocess.run([sys.executable, "-m", "dvc", *args], cwd=root, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def ran(root, *args):
    """Stages that a command ran, in order."""
    return re.findall(r"Running stage '(\w+)'", sh(root, *(args or ("repro",))))


def test_what_runs_again(repo):
    assert ran(repo) == [], "nothing changed"
    (repo / "training/advantage/brand_new.py").write_text('"""New."""\ndef brand_new(groups, rewards, state, rng): ...\n')
    assert ran(repo) == ["plan"], "a new piece"
    with (repo / "training/advantage/grpo.py").open("a") as f:
        f.write("# the piece in use\n")
    assert ran(repo) == ["plan", "rl", "evaluate", "report"]
    with (repo / "training/advantage/quantile.py").open("a") as f:
        f.write("# a piece that is not in use\n")
    assert ran(repo) == ["plan"]
    (repo / "data/facts.csv").write_text("a,b,d\n")
    assert ran(repo) == ["kb"], "what the toy writes does not depend on data, so nothing follows"


def test_recipes_are_experiments(repo):
    before = json.loads((repo / "artifacts/plan/rl.json").read_text())["params"]
    assert ran(repo, "exp", "run", "-S", "recipe=qae", "-n", "try-qae")[:2] == ["plan", "rl"]
    after = json.loads((repo / "artifacts/plan/rl.json").read_text())["params"]
    assert before["advantage"]["piece"] == "grpo" and after["advantage"] == {"piece": "quantile", "k": 0.4, "eps": 1e-8}
    assert "# kept" in (repo / "params.yaml").read_text() and "recipe: qae" in (repo / "params.yaml").read_text()
    (metric,) = json.loads(sh(repo, "metrics", "diff", "--json"))["artifacts/evaluate/metrics.json"].values()
    assert metric["old"] != metric["new"]
    assert "try-qae" in sh(repo, "exp", "show", "--csv")
    assert "index.html" in sh(repo, "plots", "diff", "HEAD")
    sh(repo, "exp", "apply", "try-qae")
    assert ran(repo) == [], "what an experiment computed is not computed again"


def test_settings_reach_the_plan_through_dvc(repo, monkeypatch):
    for name in ("GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL"):
        monkeypatch.setenv(name, "test@example.org")
    changes = {"set.rl.advantage": {"piece": "quantile", "k": 0.25}, "set.rl.lr": 1e-05, "seed": 3}
    assert dvc.experiment(changes, repo) == 0
    plan = json.loads((repo / "artifacts/plan/rl.json").read_text())
    assert plan["params"]["advantage"] == {"piece": "quantile", "k": 0.25, "eps": 1e-8}
    assert plan["params"]["lr"] == 1e-05 and plan["seed"] == 3
    assert dvc.experiment({"set.rl.advantage": {"piece": "rloo"}}, repo) == 0
    assert "k: " not in (repo / "params.yaml").read_text(), "a piece is replaced whole, in params.yaml too"


def test_a_remote_round_trips(repo, tmp_path):
    sh(repo, "remote", "add", "-d", "store", str(tmp_path / "store"))
    sh(repo, "push", "-q")
    before = (repo / "artifacts/rl/card.json").read_bytes()
    shutil.rmtree(repo / ".dvc/cache")
    shutil.rmtree(repo / "artifacts")
    shutil.rmtree(repo / "reports")
    sh(repo, "pull", "-q")
    assert (repo / "artifacts/rl/card.json").read_bytes() == before
    assert ran(repo) == []


def test_a_refusal_of_the_plan_stops_the_run_and_loses_nothing(repo):
    (repo / "params.yaml").write_text("recipe: gpro\n")
    done = subprocess.run([sys.executable, "-m", "dvc", "repro"], cwd=repo, env=dvc.environment(), capture_output=True, text=True)
    assert done.returncode != 0 and "error: plan: there is no recipe 'gpro': did you mean 'grpo'?" in done.stderr
    assert "Traceback" not in done.stderr and (repo / "artifacts/rl/card.json").exists()


def test_two_runs_in_one_checkout(tmp_path):
    with dvc.alone(tmp_path), pytest.raises(UserError, match="another run is under way"), dvc.alone(tmp_path):
        pass


def test_an_experiment_without_a_commit(tmp_path):
    with pytest.raises(UserError, match="no commit yet: `git init"):
        dvc.experiment({"recipe": "qae"}, tmp_path)


def test_downstream_follows_the_graph():
    assert dvc.downstream({"rl"}, CODE) == ["evaluate", "report"]
    assert dvc.downstream({"clean"}, CODE) == ["reward", "prefer", "evaluate", "report"]
    assert dvc.downstream({"kb"}, CODE)[0] == "questions" and "problems" not in dvc.downstream({"kb"}, CODE)
