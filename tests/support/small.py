"""A project in miniature, and its stages run as processes of their own that a test may kill.

Children are forked from a server that has imported everything and computed nothing, so that each costs a fraction of a
second.
"""

import contextlib
import itertools
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Mapping, Sequence
from multiprocessing import forkserver
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tasks.runtime.stage import OUT
from tasks.storage import faults
from tasks.storage.commit import MANIFEST

MODEL = {"hidden": 16, "layers": 1, "heads": 2, "kv_heads": 1, "intermediate": 32, "vocab_size": 400, "max_length": 256}
SIZES = {  # stage -> knobs; the whole project is made in seconds
    "kb": {"sources": [], "world_countries": 12},
    "questions": {"n_train": 30, "n_valid": 3, "n_test": 3},
    "problems": {"families": [{"piece": "countdown", "levels": [1]}], "n_train": 12, "n_valid": 2, "n_test": 2},
    "demonstrations": {"n": 16, "n_valid": 2, "n_family": 4},
    "sft": {
        **MODEL,
        "base_steps": 5,
        "base_lists_steps": 1,
        "base_rows": 4,
        "steps": 7,
        "rows_per_step": 4,
        "checkpoint_every": 2,
    },
    "preferences": {
        "n_family": 10,
        "n_valid": 2,
        "sampled_problems": 6,
        "sampled_valid": 2,
        "samples_per_prompt": 2,
        "sampling": {"max_turn_tokens": 4},
    },
    "clean": {"cleaners": [{"piece": "duplicates"}]},
    "reward": {"steps": 5, "pairs_per_step": 4, "checkpoint_every": 2},
    "prefer": {"steps": 6, "pairs_per_step": 4, "checkpoint_every": 2, "leave_out": []},  # a toy answers nothing right
    "rl": {
        "steps": 6,
        "prompts_per_step": 2,
        "samples_per_prompt": 2,
        "sampling": {"max_turn_tokens": 4},
        "checkpoint_every": 2,
        "curriculum": {"piece": "success_band"},
        "advantage": {"piece": "reinforce", "decay": 0.5},
        "regularisers": [{"piece": "kl", "coef": 0.01}],
    },
    "evaluate": {
        "questions": 3,
        "samples": 2,
        "per_family": 2,
        "family_samples": 1,
        "blanked_samples": 1,
        "sampling": {"max_turn_tokens": 4},
        "batch_size": 2,
        "metrics": [{"piece": "pass_at_k", "ks": [1, 2]}],
    },
    "report": {"episodes": 4},
}
STAGES = tuple(SIZES)


def write_project(root: Path, seed: int = 3) -> None:
    """params.yaml and the plan of every stage; on one thread, for two wait for each other on a busy machine."""
    import yaml

    from tasks.planning import plan

    own = root / "pieces/profiles/small.yaml"
    own.parent.mkdir(parents=True, exist_ok=True)
    own.write_text("title: small\nthreads: 1\n")
    params = {"seed": seed, "recipe": "grpo", "profile": "small", "tracking": "off", "set": SIZES}
    (root / "params.yaml").write_text(yaml.safe_dump(params))
    with contextlib.chdir(root):
        plan.write(root)


def run(
    root: Path,
    stage: str,
    fault: str = "",
    log: Path | None = None,
    expect: int = 0,
    clock: float = 0.0,
    env: Mapping[str, str] | None = None,
) -> str:
    """Run a stage in a process of its own, `fault` armed, its clock set `clock` seconds forward (back) and back
    (forward) again by turns, with these variables in its environment; what it said on stderr. A stage in several
    processes forks them. AssertionError where it ends with another code."""
    stderr = Path(tempfile.mkdtemp()) / "stderr.txt"
    child = begun(root, stage, stderr, fault, log, clock, env)
    child.join(900)
    text = stderr.read_text()
    shutil.rmtree(stderr.parent)
    assert child.exitcode == expect, (
        f"{stage} with the fault {fault!r} ended with {child.exitcode}, not {expect}:\n{text}"
    )
    return text


def begun(
    root: Path,
    stage: str,
    stderr: Path,
    fault: str = "",
    log: Path | None = None,
    clock: float = 0.0,
    env: Mapping[str, str] | None = None,
) -> Any:
    """The process of a stage (`run`), which has just begun; what it says on stderr goes to the file `stderr`."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.support.preloaded"])
    with contextlib.chdir(Path(__file__).parents[2]):  # where it finds that; it says nothing where it does not
        forkserver.ensure_running()
    child = context.Process(
        target=_child, args=(str(root), stage, fault, str(log or ""), str(stderr), clock, dict(env or {}))
    )
    child.start()
    return child


def _child(root: str, stage: str, fault: str, log: str, stderr: str, clock: float, env: dict[str, str]) -> None:
    from tasks.runtime import ranks

    sys.stderr = open(stderr, "w", buffering=1)  # noqa: SIM115 (open until the process ends)
    os.chdir(root)
    os.environ.update(env)
    ranks.subprocess = SimpleNamespace(Popen=Forked, TimeoutExpired=subprocess.TimeoutExpired)
    for name, value in ((faults.ARM, fault), (faults.LOG, log)):
        if value:
            os.environ[name] = value
        else:
            os.environ.pop(name, None)
    if clock:
        steps, now = itertools.cycle((clock, -clock)), time.time
        time.time = lambda: now() + next(steps)
    if stage == "plan":
        from flows.plan import plan

        plan()
    else:
        from tasks.run import run_stage

        run_stage(stage)


class Forked:
    """A process of a stage in several, in the place of `subprocess.Popen([..., "flows.<stage>"])`: a fork, which has
    imported everything already."""

    def __init__(self, command: Sequence[str], *, env: Mapping[str, str], stdout: Any, stderr: Any):
        self.code: int | None = None
        self.pid = os.fork()
        if self.pid == 0:
            os._exit(_as_main(command[-1].removeprefix("flows."), env, stderr))

    def poll(self) -> int | None:
        if self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.code = os.waitstatus_to_exitcode(status) if pid else None
        return self.code

    def wait(self, timeout: float = 900) -> int:
        until = time.monotonic() + timeout
        while self.poll() is None:
            if time.monotonic() > until:
                raise subprocess.TimeoutExpired("fork", timeout)
            time.sleep(0.02)
        return self.code  # type: ignore[return-value]

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    def terminate(self) -> None:
        self._signal(signal.SIGTERM)

    def _signal(self, which: signal.Signals) -> None:
        if self.poll() is None:
            os.kill(self.pid, which)


def _as_main(stage: str, env: Mapping[str, str], log: Any) -> int:
    """Run a stage as `python -m flows.<stage>` does, and say its exit code; with a `log`, everything is written there."""
    from tasks.run import run_stage

    os.environ.clear()
    os.environ.update(env)
    if log is not None:
        sys.stdout = sys.stderr = os.fdopen(os.dup(log.fileno()), "w", buffering=1)
    try:
        run_stage(stage)
        return 0
    except SystemExit as e:
        return e.code if isinstance(e.code, int) else 0
    except BaseException:
        traceback.print_exc()
        return 1


def outputs(root: Path, stage: str) -> dict[str, bytes]:
    """Name -> bytes of every output of a stage."""
    folder = root / OUT.get(stage, f"artifacts/{stage}")
    assert (folder / MANIFEST).exists()
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}
