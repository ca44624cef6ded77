"""The only file that runs DVC. DVC always runs as a separate process, on our own interpreter, so that stages find our
packages.

Commands that write run through tasks/runtime/process.py, which ends DVC when this process ends: otherwise DVC would
continue, and write into a checkout that another run has taken over.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

from tasks.core.errors import TRANSIENT, StageError, UserError, killed
from tasks.core.config import read_yaml
from tasks.runtime import process
from tasks.runtime.stage import OUT, graph
from tasks.storage import state

BUSY = re.compile(
    r"Unable to acquire lock|rwlock|is busy, it is being blocked by"
)  # another dvc command touches the same files right now
KEPT = "params.before.json"
OURS = "tasks.runtime.dvc_process"  # DVC with the exit code of its stages


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Our environment variables, with the folder of our interpreter first in PATH: stages are written `python -P -m
    flows.<stage>` in dvc.yaml."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    return {**os.environ, "PATH": path, "PYTHONUNBUFFERED": "1", **(extra or {})}


def configured(root: Path) -> Mapping[str, Any]:
    """DVC's settings of the project by section, those of `.dvc/config.local` over those of `.dvc/config`. Raises
    UserError if they cannot be read: DVC itself would end with the error of a library."""
    from configobj import ConfigObj, ConfigObjError

    settings = ConfigObj()
    for name, remedy in (
        ("config", "`git checkout -- .dvc/config` takes them from the last commit"),
        ("config.local", "fix the file or remove it"),
    ):
        path = root / ".dvc" / name
        try:
            if path.exists():
                settings.merge(ConfigObj(str(path), file_error=True))
        except (ConfigObjError, OSError, UnicodeDecodeError) as e:
            why = getattr(e, "strerror", None) or str(e)
            raise UserError(f"DVC's settings {path} cannot be read ({why}): {remedy}") from None
    return settings


def run(args: Sequence[str], root: Path, extra: Mapping[str, str] | None = None, module: str = "dvc") -> int:
    """Run `dvc <args>` in `root`, its output on ours, and return its exit code. DVC is ended when we are: its stage
    then ends itself. `module`: what is run as DVC. Raises UserError if its settings cannot be read."""
    configured(root)
    child = subprocess.Popen(process.ending_with_us(module, *args), cwd=root, env=environment(extra))
    try:
        return child.wait()
    finally:
        if child.poll() is None:
            child.terminate()
            child.wait()


def ask(args: Sequence[str], root: Path) -> Any:
    """The JSON that `dvc <args> --json` prints. Raises UserError if a run holds DVC's locks, and with DVC's own last
    message if it fails."""
    configured(root)
    done = subprocess.run(
        [sys.executable, "-P", "-m", "dvc", *args, "--json"],
        cwd=root,
        env=environment(),
        capture_output=True,
        text=True,
    )
    if done.returncode and BUSY.search(done.stderr):
        raise UserError(
            f"another run is under way in {root}, and DVC answers no questions until it ends: ask again then, or in a second clone"
        )
    if done.returncode:
        raise UserError(f"`dvc {' '.join(args)}` failed: {' '.join(done.stderr.split()) or 'no message'}")
    return json.loads(done.stdout or "{}")


def reproduce(root: Path, extra: Mapping[str, str] | None = None, targets: Sequence[str] = ()) -> int:
    """`dvc repro` of all stages, or of `targets` and what they read. Returns DVC's exit code, or TRANSIENT where a stage
    may succeed if it is tried again."""
    return run(["repro", *_quietly(), *targets], root, extra, module=OURS)


def _quietly() -> list[str]:
    """Options that make DVC print only errors, if ESPALIER_QUIET is set."""
    return ["-q"] if os.environ.get("ESPALIER_QUIET") else []


def experiment(
    overrides: Mapping[str, Any], root: Path, extra: Mapping[str, str] | None = None, targets: Sequence[str] = ()
) -> int:
    """`dvc exp run -S ...`: overrides are dotted keys of params.yaml and their values; `targets` and the exit code are
    those of `reproduce`."""
    committed(root)
    changes = [arg for text in _grammar(overrides, root) for arg in ("-S", text)]
    return run(["exp", "run", *_quietly(), *changes, *targets], root, extra, module=OURS)


def damaged_index(root: Path) -> str:
    """A sentence on what is wrong with git's index of the project and how to rebuild it; "" if nothing is.

    git itself reads a damaged index silently, and DVC's experiments end with the error of a library.
    """
    done = subprocess.run(["git", "rev-parse", "--git-path", "index"], cwd=root, capture_output=True, text=True)
    path = root / done.stdout.strip()
    if done.returncode or not done.stdout.strip() or not path.exists():
        return ""  # no repository, or nothing was ever added
    fix = f"`rm -r {path} && git reset` makes it anew from the last commit, and changes none of your files"
    try:
        data = path.read_bytes()
    except OSError as e:
        return f"git's index {path} cannot be read ({(e.strerror or str(e)).lower()}): {fix}"
    sums = (data[-20:] == hashlib.sha1(data[:-20]).digest(), data[-32:] == hashlib.sha256(data[:-32]).digest())
    if data[:4] == b"DIRC" and (any(sums) or not any(data[-20:])):  # zeros: index.skipHash
        return ""
    return f"git's index {path} is damaged ({'it is empty' if not data else 'it is not what git wrote'}): {fix}"


def warn_of_index(root: Path) -> None:
    """Warns on stderr if git's index is damaged."""
    if wrong := damaged_index(root):
        print(f"warning: {wrong}", file=sys.stderr)


def versioned(root: Path) -> None:
    """Raises UserError if DVC would refuse the folder because it is not in a git repository."""
    alone = str(configured(root).get("core", {}).get("no_scm", "")).lower() == "true"
    if not alone and subprocess.run(["git", "rev-parse", "--git-dir"], cwd=root, capture_output=True).returncode:
        raise UserError(
            f"{root} is not in a git repository, in which DVC keeps what was run: `git init && dvc init -q -f`"
        )


def committed(root: Path) -> None:
    """Raises UserError if git has no commit that an experiment could start from, and if its index is damaged."""
    if wrong := damaged_index(root):
        raise UserError(wrong)
    if subprocess.run(["git", "rev-parse", "--verify", "-q", "HEAD"], cwd=root, capture_output=True).returncode:
        raise UserError(
            f"an experiment is kept in git, and {root} has no commit yet: `git init && git add -A && git commit -m start`"
        )


def _grammar(overrides: Mapping[str, Any], root: Path) -> list[str]:
    current = read_yaml(root / "params.yaml")
    out: list[str] = []
    for key, value in overrides.items():
        if isinstance(value, dict) and _holds(current, key.split(".")):
            out.append(f"~{key}")  # a mapping would be merged into the one that is there; ours replaces it
        out.append(f"++{key}={_value(value)}")
    return out


@contextmanager
def overridden(overrides: Mapping[str, Any], root: Path) -> Iterator[None]:
    """Writes the overrides into params.yaml as `dvc exp run -S` would, and restores the file at the end.

    If the process is killed in between, `alone` restores it the next time. Changes that a user has made meanwhile are
    kept.
    """
    if not overrides:
        yield
        return
    path, kept = root / "params.yaml", root / ".espalier" / KEPT
    before = path.read_text(encoding="utf-8")
    script = "import sys; from pathlib import Path; from dvc.utils.hydra import apply_overrides; apply_overrides(Path(sys.argv[1]), sys.argv[2:])"
    trial = kept.with_suffix(".yaml")
    state.replace(trial, before.encode())
    done = subprocess.run(
        [sys.executable, "-c", script, str(trial), *_grammar(overrides, root)], capture_output=True, text=True
    )
    if done.returncode:
        raise UserError(f"params.yaml cannot take {dict(overrides)}: {done.stderr.strip().splitlines()[-1]}")
    after = trial.read_text(encoding="utf-8")
    state.write(kept, {"before": before, "after": after})
    state.replace(path, after.encode())
    trial.unlink()
    try:
        yield
    finally:
        _put_back(root)


def _put_back(root: Path) -> None:
    path, kept = root / "params.yaml", root / ".espalier" / KEPT
    lost = "params.yaml stays as it is; where it holds settings of a run that died, `git diff params.yaml` shows them"
    text = state.read(kept, else_=lost, needs=("before", "after"))
    if text is not None:
        if path.read_bytes() == text["after"].encode():
            state.replace(path, text["before"].encode())
        kept.unlink()


def order(root: Path) -> dict[str, set[str]]:
    """Stage -> the stages whose outputs it reads, in the order of their dependencies."""
    stages = graph(root)
    outs = {name: [o if isinstance(o, str) else next(iter(o)) for o in s.get("outs", [])] for name, s in stages.items()}
    above = {
        name: {
            other
            for other, path in outs.items()
            for o in path
            for d in s.get("deps", [])
            if d == o or d.startswith(o + "/")
        }
        for name, s in stages.items()
    }
    return {name: above[name] for name in TopologicalSorter(above).static_order()}


class Busy(StageError):
    """Another DVC process holds the lock that a stage needs."""


def stage(
    name: str,
    root: Path,
    extra: Mapping[str, str],
    each: Callable[[str], None],
    seconds: float | None = None,
    stopped: Callable[[], bool] | None = None,
) -> str:
    """`dvc repro -s NAME` in a process group of its own: "ran", "restored" from DVC's cache of runs, or "unchanged".

    `each` gets every line. Raises StageError with the last words of the stage and whether trying again is of use (Busy
    where nothing has begun because another DVC is at work), and InterruptedError once `stopped` says so.
    """
    output: list[str] = []

    def hear(line: str) -> None:
        output.append(line)
        each(line)

    configured(root)
    command = process.ending_with_us("dvc", "repro", "-s", name)
    try:
        code = process.run_group(command, cwd=root, env=environment(extra), each=hear, seconds=seconds, stopped=stopped)
    except TimeoutError as e:
        raise StageError(f"the stage {name} failed: {e}", transient=False) from None
    text = "\n".join(output)
    if code:
        words = [w for w in output if w.strip() and not w.startswith("Running stage")]
        ours = [w.strip().removeprefix("error: ") for w in words if w.startswith("error: ")]
        exited = re.search(r"exited with (-?\d+)", text)
        busy = bool(BUSY.search(text))
        kind = Busy if busy and not ours and exited is None else StageError
        own = int(exited[1]) if exited else 0
        said = ours[-1] if ours else words[-1] if words else f"dvc ended with code {code}"
        if killed(own) and not ours:
            said = "it was ended by SIGKILL, as the kernel does where memory is short"
        raise kind(
            f"the stage {name} failed: {said}",
            transient=busy or own == TRANSIENT or (killed(own) and _goes_on(name, root)),
            code=own,
        )
    return (
        "ran"
        if f"Running stage '{name}'" in text
        else "restored"
        if "is cached - skipping run" in text
        else "unchanged"
    )


def _goes_on(name: str, root: Path) -> bool:
    """Whether a stage has left checkpoints or finished rows: killed without any, it would die at the same place again."""
    return any(path.name != "out" for path in (root / ".espalier" / "work" / name).glob("*/*"))


def save(name: str, message: str, root: Path) -> None:
    """`dvc exp save`: the state of the checkout becomes an experiment of this name in git; the branch does not
    change."""
    configured(root)
    done = subprocess.run(
        [sys.executable, "-P", "-m", "dvc", "exp", "save", "-q", "-f", "-n", name, "-m", message, "-I", "dvc.lock"],
        cwd=root,
        env=environment(),
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise UserError(f"`dvc exp save` failed: {' '.join(done.stderr.split()) or 'no message'}")


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
                    f"{path} ({what})"
                    for kind in report.values()
                    if isinstance(kind, dict)
                    for path, what in kind.items()
                )
            else:
                out.setdefault(stage, []).append(str(report))
    return out


def downstream(stages: set[str], root: Path) -> list[str]:
    """The stages that depend on `stages`, directly or not, in the order of dvc.yaml, without `stages` themselves."""
    edges = graph(root)
    reached = set(stages)
    while more := {
        n
        for n, s in edges.items()
        if n not in reached and any(_reads(d, r) for d in s.get("deps", []) for r in reached)
    }:
        reached |= more
    return [n for n in edges if n in reached - stages]


def upstream(stage: str, root: Path) -> set[str]:
    """The stage and all that it reads, directly or not."""
    above, reached = order(root), {stage}
    while more := {a for n in reached for a in above[n]} - reached:
        reached |= more
    return reached


def _reads(dep: str, stage: str) -> bool:
    out = OUT.get(stage, f"artifacts/{stage}")
    return stage != "plan" and (dep == out or dep.startswith(out + "/"))


def lock_digest(root: Path) -> str:
    """SHA-256 of dvc.lock: the name of the state of everything. "" where nothing has been reproduced."""
    path = root / "dvc.lock"
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else ""


@contextmanager
def alone(root: Path, queue: Callable[[], None] | None = None) -> Iterator[None]:
    """Hold `.espalier/lock`: two pipelines in one checkout would move each other's outputs. A dead process holds no
    lock.

    If another run holds it, raises UserError, or, with `queue`, calls `queue` once and waits.
    """
    (root / ".espalier").mkdir(exist_ok=True)
    path = root / ".espalier" / "lock"
    _put_aside(path, "a new one is made")
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if queue is None:
                raise UserError(f"another run is under way in {root}: wait for it, or work in a second clone") from None
            queue()
            while not _locked(lock):
                time.sleep(1.0)  # not a blocking flock: a signal must be able to end the wait
        _put_back(root)
        _repair(root)
        yield


def _repair(root: Path) -> None:
    """Repairs DVC's lock files. A DVC that was killed while it wrote its file of locks leaves half of it, which every
    later DVC refuses to read; nor does DVC start if a file that it only locks cannot be opened."""
    for name in ("rwlock", "rwlock.lock", "lock"):
        _put_aside(root / ".dvc" / "tmp" / name, "DVC makes it anew")
    _forget_dead(root / ".dvc" / "tmp" / "rwlock")


def _forget_dead(path: Path) -> None:
    """Removes the file of locks if all holders are dead: DVC would do it too, with a warning for each stage."""
    if not _holders(path):
        return
    with path.with_name("rwlock.lock").open("a") as lock, suppress(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # DVC holds it while it reads and writes
        if not any(map(_alive, _holders(path))):
            path.unlink()


def _holders(path: Path) -> list[int]:
    try:
        held = json.loads(path.read_bytes())
        places = [at for mode in held.values() for at in mode.values()]
        return [int(h["pid"]) for at in places for h in (at if isinstance(at, list) else [at])]
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return []


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # it is another user's
        pass
    return True


def _put_aside(path: Path, else_: str) -> None:
    """Renames a file of locks that cannot be opened, or has invalid content."""
    try:
        with path.open("r+b") as f:
            held = json.load(f) if path.name == "rwlock" else {}
            sound = isinstance(held, dict) and held.keys() <= {"read", "write"}
    except FileNotFoundError:
        return
    except (OSError, ValueError):
        sound = False
    if not sound:
        state.quarantine(path, "it is no file of locks", else_)


def _locked(file: Any) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def unnamed(root: Path) -> list[Path]:
    """Objects of the cache that neither the working directory, a commit nor an experiment names."""
    configured(root)
    done = subprocess.run(
        [sys.executable, "-P", "-m", "dvc", *_gc(root), "--dry"],
        cwd=root,
        env=environment(),
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise UserError(f"`dvc gc` failed: {' '.join(done.stderr.split()) or 'no message'}")
    return [
        p
        for line in (done.stdout + done.stderr).splitlines()
        if line.startswith("Removing ") and (p := Path(line[9:])).exists()
    ]


def collect(root: Path) -> None:
    """Removes the unnamed objects. Raises UserError if DVC refuses."""
    if code := run([*_gc(root), "-q"], root):
        raise UserError(f"`dvc gc` ended with code {code}; the lines above say why")


def _gc(root: Path) -> list[str]:
    """`dvc gc` that keeps what any commit or experiment names; in a repository without a commit, what the working
    directory names."""
    known = (
        subprocess.run(["git", "rev-parse", "--verify", "-q", "HEAD"], cwd=root, capture_output=True).returncode == 0
    )
    return ["gc", "--workspace", "--force", *(["--all-commits", "--all-experiments"] if known else [])]
