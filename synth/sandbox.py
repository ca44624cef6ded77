"""Run a function of Python source that nobody trusts, on given inputs, in a process that can do nothing but compute.

Every run is a fresh process in a group and session of its own, with an empty environment, a read-only working directory, no standard input,
and limits on CPU time, address space, processes (none), file size (none), open files and output. It is killed with its group when the wall
clock runs out, and always at the end. On top of that comes the strongest layer that works here, found by running a probe once:

    bubblewrap   namespaces for users, mounts, network, processes and IPC; nothing but the interpreter and the job is mounted, and
                 read-only; and Landlock and a filter of system calls (seccomp) inside
    namespaces   the same namespaces but mounts by unshare(1), Landlock and the filter: files outside the interpreter's own cannot be
                 opened. Run by root, the program becomes the user 65534: of this machine, or where the interpreter's files are closed to others (below
                 /root, say), of a namespace of users of its own.

The filter denies forks, threads, other programs, sockets, tracing, io_uring, userfaultfd, bpf, keys, mounts and namespaces.

Where neither works, `run` refuses, unless it is told `unisolated=True`, which leaves the limits and the clock alone. The layer used is in
every outcome.

The program never sees the expected outputs: it is given inputs, and the caller compares what comes back, so patching builtins, exiting
early or writing a forged result can at best produce an answer that is right.

Not covered: bugs of the kernel; side channels through time and caches; that a program can learn which files exist (`stat`) in the layer
`namespaces`, and read the interpreter's own files in both; on processors that are neither x86_64 nor aarch64, what the filter of system
calls denies and no other layer does (UDP and raw sockets inside the empty network namespace, io_uring). The limits bound one run: it is
for the caller to bound how many run at once.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

BOX = Path(__file__).with_name("_box.py")
LAYERS = ("bubblewrap", "namespaces")  # strongest first


@dataclass(frozen=True, kw_only=True)
class Limits:
    """seconds: CPU time of the whole run; wall: seconds on the clock; memory_mb: address space; output: bytes of the result as JSON."""

    seconds: int = 2
    wall: float = 10.0
    memory_mb: int = 512
    output: int = 65_536


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a run came to.

    status   "ok": `results` holds {"value": v} or {"error": text} for every input; "error": the source does not load, or the process ended
             without a result; "timeout": its CPU time ran out; "stalled": the clock ran out first, because the program sleeps or the
             machine is too busy to tell; "output": it wrote too much; "refused": no layer isolates here
    layer    the layer it ran in, "none" for an unisolated run
    """

    status: Literal["ok", "error", "timeout", "stalled", "output", "refused"]
    results: tuple[dict[str, Any], ...] = ()
    detail: str = ""
    layer: str = "none"


def run(source: str, function: str, inputs: Sequence[Sequence[Any]], *, limits: Limits | None = None, unisolated: bool = False) -> Outcome:
    """Call `function` of `source` on every list of arguments (JSON values), in one process. Works in any thread.

    unisolated: run with limits alone where no layer works; without it such a run is refused.
    """
    layer = strongest()
    if layer is None and not unisolated:
        hint = "neither bubblewrap nor unshare with Landlock works here: install bubblewrap, or allow unisolated runs"
        return Outcome(status="refused", detail=hint)
    return _run(layer or "none", source, function, inputs, limits or Limits())


def strongest() -> str | None:
    """The strongest layer that works on this machine, or None. Probed once, by running a program in it that tries to get out."""
    return next((layer for layer in LAYERS if works(layer)), None)


_PROBE = """
def probe():
    import os
    import colorsys  # the interpreter's own files can be read
    out = []
    for attempt in (lambda: os.listdir("/home"), lambda: open("/etc/passwd").read(1), lambda: open("/tmp/espalier-probe", "w"), os.fork):
        try:
            attempt()
            out.append(1)
        except OSError:
            out.append(0)
    with_net = 0
    try:
        with open("/proc/net/dev") as f:
            with_net = sum(":" in line for line in f) > 1
    except OSError:
        pass
    return [sum(out), int(with_net), len(os.environ)]
"""


@cache
def works(layer: str) -> bool:
    """Whether a probe starts in a layer and can neither list, read, write, fork, see a network device nor an environment variable."""
    outcome = _run(layer, _PROBE, "probe", [[]], Limits())
    if outcome.status != "ok":
        return False
    value = outcome.results[0].get("value")
    return isinstance(value, list) and value[:2] == [0, 0] and value[2] <= 3  # PWD, SHLVL and _ may be the starter's own


def _run(layer: str, source: str, function: str, inputs: Sequence[Sequence[Any]], limits: Limits) -> Outcome:
    folder = Path(tempfile.mkdtemp(prefix="espalier-box-"))
    try:
        readable = _readable()
        job = {
            "source": source,
            "function": function,
            "inputs": [list(i) for i in inputs],
            "readable": [*readable, str(folder)],
            "landlock": layer != "none",
            "drop_root": layer == "namespaces" and _open_to_others(),
            "rlimits": {
                "RLIMIT_CPU": limits.seconds,
                "RLIMIT_AS": limits.memory_mb << 20,
                "RLIMIT_FSIZE": 0,
                "RLIMIT_NOFILE": 32,
                "RLIMIT_CORE": 0,
            },
        }
        (folder / "job.json").write_text(json.dumps(job))
        shutil.copyfile(BOX, folder / "_box.py")
        folder.chmod(0o555)
        return _watch(_command(layer, folder, readable), folder, layer, limits)
    finally:
        folder.chmod(0o755)
        shutil.rmtree(folder)


def _readable() -> list[str]:
    """The directories that the interpreter itself needs."""
    own = {sys.base_prefix, sysconfig.get_path("stdlib"), "/usr", "/lib", "/lib64"}
    return sorted(p for p in own if os.path.isdir(p))


def _open_to_others() -> bool:
    """Whether any user can read the standard library."""
    path = Path(sysconfig.get_path("stdlib")).resolve()
    return all(p.stat().st_mode & 0o001 for p in (path, *path.parents)) and bool(path.stat().st_mode & 0o004)


def _command(layer: str, folder: Path, readable: Sequence[str]) -> list[str]:
    python = [os.path.realpath(sys.executable), "-I", "-S", "-B", str(folder / "_box.py"), str(folder)]
    if layer == "bubblewrap":
        binds = [x for p in readable for x in ("--ro-bind", p, p)]
        return [
            *[shutil.which("bwrap") or "bwrap", "--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL", "--clearenv"],
            *["--uid", "65534", "--gid", "65534", *binds, "--dev", "/dev", "--ro-bind", str(folder), str(folder), "--chdir", str(folder)],
            *python,
        ]
    if layer == "namespaces":
        user = ["--user", "--map-current-user"]
        if os.getuid() == 0:
            user = [] if _open_to_others() else ["--user", "--map-user=65534", "--map-group=65534"]
        return [shutil.which("unshare") or "unshare", *user, "--net", "--ipc", "--pid", "--fork", "--kill-child", *python]
    return python


def _watch(command: Sequence[str], folder: Path, layer: str, limits: Limits) -> Outcome:
    """Start, read until the end, the clock or the cap, kill the group, and say what came of it."""
    try:
        process = subprocess.Popen(
            command, cwd=folder, env={}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
        )
    except OSError as e:
        return Outcome(status="error", detail=f"{command[0]} does not start: {e}", layer=layer)
    data, end, over = b"", time.monotonic() + limits.wall, ""
    fd = process.stdout.fileno()  # type: ignore[union-attr]
    while not over:
        if not select.select([fd], [], [], max(0.0, end - time.monotonic()))[0]:
            over = "stalled"
        elif not (piece := os.read(fd, 65_536)):
            break
        elif len(data := data + piece) > limits.output:
            over = "output"
    cpu = _reap(process, 0.0 if over else end)
    if cpu is None and not over:
        over = "stalled"
    if over:
        detail = f"over {limits.wall} s on the clock" if over == "stalled" else f"over {limits.output} bytes"
        return Outcome(status=over, detail=detail, layer=layer)  # type: ignore[arg-type]
    try:
        answer = json.loads(data)
        results = answer.get("results")
    except (ValueError, RecursionError, AttributeError):
        answer, results = {}, None
    if isinstance(results, list) and all(isinstance(r, dict) for r in results):
        return Outcome(status="ok", results=tuple(results), layer=layer)
    killed = layer == "bubblewrap" and process.returncode == 128 + signal.SIGKILL  # it does not pass on how much CPU time was used
    if killed or (cpu is not None and cpu > 0.75 * limits.seconds):  # the kernel counts by ticks, and stops a little early
        return Outcome(status="timeout", detail=f"over {limits.seconds} s of CPU", layer=layer)
    if "refused" in answer:
        return Outcome(status="refused", detail=str(answer["refused"]), layer=layer)
    return Outcome(status="error", detail=str(answer.get("error", "the process ended without a result")), layer=layer)


def _reap(process: subprocess.Popen, end: float) -> float | None:
    """Wait until `end` for a process to exit and kill its group in any case; the CPU seconds that it and its children used, None where it
    had to be killed. (The exit code of unshare says nothing: some versions exit with 1 when their child is killed.)"""
    pid, cpu = 0, None
    while not pid and time.monotonic() < end:
        pid, status, used = os.wait4(process.pid, os.WNOHANG)
        if pid:
            cpu = used.ru_utime + used.ru_stime
        else:
            time.sleep(0.001)
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    if not pid:
        _, status, _ = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    process.stdout.close()  # type: ignore[union-attr]
    return cpu
