"""The spool: every event of a run is first written as a line to local disk.

    .espalier/spool/<execution>/execution.json    key, process, recipe, commit; the parent run once it exists
    .espalier/spool/<execution>/<stage>.jsonl     one event per line, written by the stage
    .espalier/spool/<execution>/<stage>.sent      how many bytes of it have been shipped, and to which child run

Importing mlflow takes longer than most stages, so a stage never does: `tasks.tracking.observe` ships the spool in a
process of its own, one beside an `espalier run` or `pipeline`, under a plain `dvc repro` one beside each stage that
lasts and after the last stage of the graph; `promote`, `sync` and `ui` ship too. No stage waits for it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tasks.core.config import read_yaml
from tasks.runtime import process
from tasks.runtime.stage import Stage, graph, load
from tasks.storage import commit, faults, state

EXECUTION = "ESPALIER_EXECUTION"  # set by `espalier run` and `pipeline`: what belongs to one parent run
SHIPPED = "ESPALIER_SHIPPED"  # set by them for their stages: a process beside the whole run ships
ENDED = "ended"  # file in the folder of an execution whose stages have all ended
FACTS = ("key", "pid", "started", "time", "commit")  # what every execution.json holds
LIVE_AFTER = 15.0  # seconds: a stage that lasts longer is shown while it runs


def execution() -> str:
    """The name of this execution: given by the environment, or, below a plain `dvc repro`, made from the dvc process,
    or from this one."""
    if os.environ.get(EXECUTION):
        return os.environ[EXECUTION]
    chain = process.starters() if "DVC_ROOT" in os.environ else []
    head = chain[-1] if chain else process.look(os.getpid())
    assert head is not None  # this process, and the one that runs it, are alive
    return f"{head.pid}-{head.started}".replace(" ", "_")


def spool(root: Path) -> Path:
    return root / ".espalier" / "spool"


def open_execution(root: Path, key: str, head: process.Process | None = None) -> Path:
    """The spool folder of an execution; its execution.json is written once, by the first process that opens it. `head` is the
    process whose end ends it."""
    folder = spool(root) / key
    about = folder / "execution.json"
    if state.read(about, else_="it is made anew", needs=FACTS) is None:
        chain = process.starters()
        head = head or (
            chain[-1]
            if chain and (os.environ.get(EXECUTION) or "DVC_ROOT" in os.environ)
            else process.look(os.getpid())
        )
        try:
            run = load("_run", root) if (root / "artifacts/plan/_run.json").exists() else {}
        except commit.Damaged:
            run = {}  # the run that begins here makes the plan anew, and its stages name their recipe themselves
        facts = {
            "key": key,
            "pid": head.pid if head else 0,
            "started": head.started if head else "",
            "time": _now(),
            "order": max((a.get("order", 0) for _, a in executions(root)), default=0) + 1,
            "commit": _commit(root),
            **run,
        }
        state.write(about, facts)
    return folder


def latest(root: Path) -> Path:
    """The spool folder of the execution that began last; a new one where there is none."""
    folders = executions(root)
    return folders[-1][0] if folders else open_execution(root, execution())


def executions(root: Path) -> list[tuple[Path, dict[str, Any]]]:
    """Folder and execution.json of every execution, in the order in which they began. Clock times do not give the
    order: a clock can be set back."""
    folders, lost = [], []
    for folder in sorted(p for p in spool(root).glob("*") if p.is_dir()):
        facts = state.read(folder / "execution.json", else_="it is made anew from the events beside it", needs=FACTS)
        if facts is not None:
            folders.append((folder, facts))
        elif streams(folder):
            lost.append(folder)
    for folder in lost:
        facts = _facts(folder)
        before = (a.get("order", 0) for _, a in folders if a["time"] <= facts["time"])
        facts["order"] = max(before, default=0)
        state.write(folder / "execution.json", facts)
        folders.append((folder, facts))
    return sorted(folders, key=lambda pair: (pair[1].get("order", 0), pair[1]["time"]))


def _facts(folder: Path) -> dict[str, Any]:
    """What execution.json of a folder of events held, as far as it can be worked out from the folder. MLflow knows its
    runs by the key, so what was shipped is found again."""
    times = [e["time"] for path in streams(folder) for e in events(path.read_bytes()) if e]
    first, _, last = folder.name.partition("-")
    pid = folder.name.rpartition("-")[2] if first == "run" else first
    head = process.look(int(pid)) if pid.isdigit() else None
    started = (head.started if head else "") if first == "run" else last
    return {
        "key": folder.name,
        "pid": int(pid) if pid.isdigit() else 0,
        "started": started,
        "time": min(times, default=int(folder.stat().st_mtime * 1000)),
        "commit": "",
    }


def events(data: bytes) -> Iterator[dict[str, Any] | None]:
    """The events of whole lines of a stream, None for a line that is not what was written."""
    for line in data.split(b"\n")[:-1]:
        text = line if line.startswith(b"{") else state.opened(line + b"\n")  # older streams have no checksums
        try:
            event = None if text is None else json.loads(text)
        except ValueError:
            event = None
        yield event if isinstance(event, dict) and {"time", "kind"} <= event.keys() else None


def _now() -> int:
    return int(time.time() * 1000)


def _commit(root: Path) -> str:
    done = subprocess.run(["git", "rev-parse", "HEAD"], cwd=root, capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else ""


def tracking(root: Path, changes: Mapping[str, Any] | None = None) -> bool:
    """False where params.yaml says `tracking: off`, or `changes` to it do, which a run has not written yet."""
    path = root / "params.yaml"
    return path.exists() and {"tracking": "local", **read_yaml(path), **(changes or {})}["tracking"] != "off"


@contextmanager
def recording(stage: Stage) -> Iterator[None]:
    """Spool the events of `stage`, and ship them from a process beside it where the stage lasts, or where it is the
    last of the graph, and no process beside the whole run does."""
    faults.stage = stage.name
    path = open_execution(stage.root, execution()) / f"{stage.name}.jsonl"
    beside = _Beside(stage.root)
    writing = threading.Lock()
    _whole(path)
    with path.open("ab") as lines:

        def emit(event: dict[str, Any]) -> None:
            with writing:
                lines.write(state.line(json.dumps({"time": _now(), **event}, ensure_ascii=False).encode()))
                lines.flush()

        stage.emit = emit
        params = dict(flat({"seed": stage.seed, **stage.params, **stage.place}))
        emit(
            {
                "kind": "begin",
                "identity": stage.identity,
                "params": params,
                "recipe": stage.recipe,
                "flow_run": os.environ.get("PREFECT__FLOW_RUN_ID", ""),
            }
        )
        status, reason = "FAILED", ""
        shown = tracking(stage.root) and SHIPPED not in os.environ
        if shown:
            beside.later(LIVE_AFTER)
        try:
            yield
            status = "FINISHED"
        except BaseException as e:
            if isinstance(e, KeyboardInterrupt | SystemExit):  # Ctrl-C, SIGTERM
                status = "KILLED"
            reason = f"{type(e).__name__}: {e}"
            raise
        finally:
            emit({"kind": "end", "status": status, "reason": reason[:500]})
            os.fsync(lines.fileno())  # what is said to have ended is on disk, and its name too
            commit.flush(path.parent)
            stage.emit = lambda event: None
            if shown and _last(stage):
                beside.start()
            beside.close()


def _whole(path: Path) -> None:
    """Cut off the half line that a full disk or a kill has left: what is appended to it could never be read."""
    try:
        data = path.read_bytes()
        os.truncate(path, data.rfind(b"\n") + 1)
    except FileNotFoundError:
        pass
    except OSError as e:
        state.quarantine(path, (e.strerror or str(e)).lower(), "its events are lost, later ones are not")


def _last(stage: Stage) -> bool:
    """Whether no other stage reads this stage's output."""
    mine = str(stage.target.relative_to(stage.root))
    edges = graph(stage.root)
    return stage.name in edges and not any(
        d == mine or d.startswith(mine + "/") for s in edges.values() for d in s.get("deps", [])
    )


class _Beside:
    """The shipping process of a stage or a run: it ships while its standard input is open, and once more when that
    closes, however it closes."""

    def __init__(self, root: Path) -> None:
        self.root, self.child, self.timer, self.starting = root, None, None, threading.Lock()

    def later(self, seconds: float) -> None:
        self.timer = threading.Timer(seconds, self.start)
        self.timer.daemon = True
        self.timer.start()

    def start(self) -> subprocess.Popen[bytes]:
        with self.starting, (self.root / ".espalier" / "shipping.log").open("a") as log:
            self.child = self.child or subprocess.Popen(
                ["nice", sys.executable, "-P", "-m", "tasks.tracking.observe"],
                cwd=self.root,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
            return self.child

    def close(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer.join(1.0)
        if self.child is not None and self.child.stdin is not None:
            self.child.stdin.close()


@contextmanager
def shipped(
    root: Path,
    key: str,
    env: dict[str, str],
    say: Callable[[str], None],
    seconds: float = 3.0,
    changes: Mapping[str, Any] | None = None,
) -> Iterator[None]:
    """Ship what all stages of the execution `key` record from one process beside them: importing MLflow is expensive, and so
    it is done once.

    env: the environment that the stages run with; SHIPPED is set in it. At the end `say` gets how it went, or, after `seconds`, that it goes
    on: a tracking server that is slow or gone costs no more than that. `changes` to params.yaml, of this run alone, may
    turn it off or on.
    """
    if not tracking(root, changes):
        yield
        return
    beside = _Beside(root)
    beside.later(LIVE_AFTER)
    env[SHIPPED] = "1"
    try:
        yield
    finally:
        (spool(root) / key / ENDED).touch()
        child = beside.start()
        beside.close()
        try:
            child.wait(seconds)
            say((root / ".espalier" / "shipping.log").read_text(encoding="utf-8").rstrip().rpartition("\n")[2])
        except subprocess.TimeoutExpired:
            say("events are still being shipped to MLflow; `espalier sync` says how that went")


def flat(value: Any, at: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping) and value:
        for k, v in value.items():
            yield from flat(v, f"{at}.{k}" if at else str(k))
    else:
        yield at, value


def streams(folder: Path) -> list[Path]:
    """The files of events of an execution, one per stage that ran."""
    out = []
    for path in sorted(p for p in folder.glob("*.jsonl") if not p.name.endswith((".refused.jsonl", ".lost.jsonl"))):
        try:
            with path.open("rb"):
                out.append(path)
        except FileNotFoundError:
            pass
        except OSError as e:
            state.quarantine(path, (e.strerror or str(e)).lower(), "the events in it are not shipped")
    return out
