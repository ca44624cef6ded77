"""The only file that runs DVC: always as a process of its own, on the interpreter that runs us, so that stages find our packages."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tasks.config import read_yaml
from tasks.errors import UserError
from tasks.stage import OUT, graph


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Ours, with the folder of our interpreter first in PATH: stages are written `python -m flows.<stage>` in dvc.yaml."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    return {**os.environ, "PATH": path, "PYTHONUNBUFFERED": "1", **(extra or {})}


def run(args: Sequence[str], root: Path, extra: Mapping[str, str] | None = None) -> int:
    """Run `dvc <args>` in `root`, its output on ours, and return its exit code. DVC is ended when we are: its stage then ends itself."""
    child = subprocess.Popen([sys.executable, "-m", "dvc", *args], cwd=root, env=environment(extra))
    try:
        return child.wait()
    finally:
        if child.poll() is None:
            child.terminate()
            child.wait()


def ask(args: Sequence[str], root: Path) -> Any:
    """The JSON that `dvc <args> --json` prints. Raises UserError with DVC's own last words."""
    done = subprocess.run([sys.executable, "-m", "dvc", *args, "--json"], cwd=root, env=environment(), capture_output=True, text=True)
    if done.returncode:
        raise UserError(f"`dvc {' '.join(args)}` failed: {' '.join(done.stderr.split()) or 'no message'}")
    return json.loads(done.stdout or "{}")


def reproduce(root: Path, extra: Mapping[str, str] | None = None) -> int:
    return run(["repro"], root, extra)


def experiment(overrides: Mapping[str, Any], root: Path, extra: Mapping[str, str] | None = None) -> int:
    """`dvc exp run -S ...`: overrides are dotted keys of params.yaml and their values."""
    if subprocess.run(["git", "rev-parse", "--verify", "-q", "HEAD"], cwd=root, capture_output=True).returncode:
        raise UserError(f"an experiment is kept in git, and {root} has no commit yet: `git init && git add -A && git commit -m start`")
    current = read_yaml(root / "params.yaml")
    settings: list[str] = []
    for key, value in overrides.items():
        if isinstance(value, dict) and _holds(current, key.split(".")):
            settings += ["-S", f"~{key}"]  # a mapping would be merged into the one that is there; ours replaces it
        settings += ["-S", f"++{key}={_value(value)}"]
    return run(["exp", "run", *settings], root, extra)


def _holds(value: Any, path: list[str]) -> bool:
    return not path or (isinstance(value, dict) and path[0] in value and _holds(value[path[0]], path[1:]))


def _value(value: Any) -> str:
    """A value in the override grammar of Hydra, which `-S` reads."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{k}:{_value(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_value, value)) + "]"
    if isinstance(value, str):
        quoted = value.replace("\\", "\\\\").replace("'", "\\'")
        return f"'{quoted}'"
    return json.dumps(value)


def changed_data(root: Path) -> dict[str, list[str]]:
    """Stage -> paths whose content is not what dvc.lock says (dependencies and outputs), as `dvc status` sees it."""
    out: dict[str, list[str]] = {}
    for stage, reports in ask(["status"], root).items():
        for report in reports:
            if isinstance(report, dict):
                out.setdefault(stage, []).extend(
                    f"{path} ({what})" for kind in report.values() if isinstance(kind, dict) for path, what in kind.items()
                )
            else:
                out.setdefault(stage, []).append(str(report))
    return out


def downstream(stages: set[str], root: Path) -> list[str]:
    """The stages that depend on `stages`, directly or not, in the order of dvc.yaml, without `stages` themselves."""
    edges = graph(root)
    reached = set(stages)
    while more := {n for n, s in edges.items() if n not in reached and any(_reads(d, r) for d in s.get("deps", []) for r in reached)}:
        reached |= more
    return [n for n in edges if n in reached - stages]


def _reads(dep: str, stage: str) -> bool:
    out = OUT.get(stage, f"artifacts/{stage}")
    return stage != "plan" and (dep == out or dep.startswith(out + "/"))


def lock_digest(root: Path) -> str:
    """SHA-256 of dvc.lock: the name of the state of everything. "" where nothing has been reproduced."""
    path = root / "dvc.lock"
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else ""


@contextmanager
def alone(root: Path) -> Iterator[None]:
    """Hold `.espalier/lock`: two pipelines in one checkout would move each other's outputs. Raises UserError where one runs already."""
    (root / ".espalier").mkdir(exist_ok=True)
    with (root / ".espalier" / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(f"another run is under way in {root}: wait for it, or work in a second clone") from None
        yield
