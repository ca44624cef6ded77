"""A project whose stages are toys: the real dvc.yaml and the real plan over a copy of the code; the other stages are
played by a script that writes what it was told, and that fails or lingers where a file beside it says so."""

import contextlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from filelock import FileLock

from tasks.runtime import dvc

CODE = Path(__file__).parents[2]
WHO = {
    k: "test@example.org" for k in ("GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL")
}
STAGES = """
import json, os, pathlib, sys, time
import yaml
from tasks.runtime import process
from tasks.runtime.prefect_shim import flow, task
from tasks.storage import commit

name = sys.argv[1]
process.end_with_starters()  # as a real stage does

@task(name="steps")
def steps():
    print(f"{name}: at work", flush=True)

def play():
    if name in ("sft", "rl"):
        steps()
    for slow in pathlib.Path(".").glob(f"slow-{name}"):
        time.sleep(float(slow.read_text()))
    for broken in pathlib.Path(".").glob(f"fail-{name}"):
        code, *times = map(int, broken.read_text().split())
        if times:  # fails that often
            broken.write_text(f"{code} {times[0] - 1}") if times[0] > 1 else broken.unlink()
        if code < 0:
            os.kill(os.getpid(), -code)
        print(f"error: {name}: no rows left: lower `least`", file=sys.stderr)
        sys.exit(code)
    out = pathlib.Path("reports" if name == "report" else f"artifacts/{name}")
    out.mkdir(parents=True, exist_ok=True)
    plan = json.loads(pathlib.Path(f"artifacts/plan/{name}.json").read_text())
    out.joinpath("card.json").write_text(json.dumps(plan))
    out.joinpath("curve.csv").write_text("step,loss,reward\\n" + "".join(f"{i},{1 / (i + 1)},{i}\\n" for i in range(5)))
    for stage in yaml.safe_load(pathlib.Path("dvc.yaml").read_text())["stages"].values():  # single files that others read
        for dep in stage["deps"]:
            if dep.startswith(f"{out}/") and not pathlib.Path(dep).exists():
                pathlib.Path(dep).write_text("toy")
    if name == "evaluate":
        size = len(pathlib.Path("artifacts/rl/card.json").read_text())
        out.joinpath("metrics.json").write_text(json.dumps({"models": {"rl": {"pass@1": {"mean": size / 1e4}}}}))
    if name == "report":
        out.joinpath("summary.json").write_text(pathlib.Path("artifacts/evaluate/metrics.json").read_text())
    commit.seal(out)

# Prefect, where `pipeline` is the parent, takes longer to import than all else here: for stages with steps, and those of
# whose end something is to be seen.
odd = any(pathlib.Path(f"{how}-{name}").exists() for how in ("slow", "fail"))
(flow(name=name)(play) if odd or name in ("sft", "rl") else play)()
"""


def pristine(paths: pytest.TempPathFactory) -> Path:
    """A project that tests copy and never change: the files of tests that want one share it, whichever worker of
    pytest-xdist comes to them first makes it."""
    base = paths.getbasetemp()
    root = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "toy" / "repo"
    root.parent.mkdir(exist_ok=True)
    with FileLock(root.with_suffix(".lock")):
        if not root.exists():
            begun = root.with_suffix(".part")
            shutil.rmtree(begun, ignore_errors=True)
            project(begun).rename(root)
    return root


def project(root: Path) -> Path:
    """A reproduced and committed repository at `root`."""
    for package in ("flows", "tasks", "synth", "training"):
        shutil.copytree(CODE / package, root / package, ignore=shutil.ignore_patterns("__pycache__"))
    (root / "data").mkdir()
    (root / "data" / "facts.csv").write_text("a,b,c\n")
    (root / ".dvc").mkdir()
    for name in (".gitignore", ".dvcignore", ".dvc/config", ".dvc/.gitignore"):
        shutil.copy(CODE / name, root / name)
    (root / "params.yaml").write_text("# kept\nrecipe: grpo  # which\nprofile: cpu\nset: {}\n")
    (root / "toy.py").write_text(STAGES)
    graph = (CODE / "dvc.yaml").read_text()
    graph = re.sub(r"python -P -m flows\.(?!plan\b)(\w+)", r"python toy.py \1", graph)
    (root / "dvc.yaml").write_text(graph.replace("python -P -m", "python -m"))  # the code here is that of this folder
    git(root, "init", "-q")
    sh(root, "repro", "-q")
    git(root, "add", "-A")
    git(root, "commit", "-qm", "start")
    return root


def environment() -> dict[str, str]:
    return {
        **{
            k: v for k, v in dvc.environment().items() if not k.startswith(("DVC_", "ESPALIER_", "PREFECT_", "MLFLOW_"))
        },
        **WHO,
    }


def git(root: Path, *args: str) -> str:
    return subprocess.run(
        ["git", *args], cwd=root, check=True, env=environment(), capture_output=True, text=True
    ).stdout


def sh(root: Path, *args: str) -> str:
    """Output of `dvc <args>`, which must succeed."""
    done = subprocess.run(
        [sys.executable, "-m", "dvc", *args], cwd=root, env=environment(), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def processes(root: Path) -> list[int]:
    """Ids of the processes that work on stages of `root`."""
    pids = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if "toy.py" in " ".join(process.cmdline()) and Path(process.cwd()) == root:
                pids.append(process.pid)
    return pids
