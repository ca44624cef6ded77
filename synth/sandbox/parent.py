"""Runs a function of untrusted Python source on given inputs, in a process that can only compute.

Every run is a fresh process in a group and session of its own, with an empty environment, an empty working directory, no
standard input, and limits on CPU time, address space, processes (none), file size (none), open files and output. It is
killed with its group when the wall clock runs out, and always at the end. In addition it uses the strongest layer that
works here:

    bubblewrap   bwrap makes namespaces (users, mounts, network, processes, IPC, names) and a root directory that holds
                 the interpreter alone, read-only
    namespaces   the child makes the same itself (`enter` in the child)

and in both of them: no capabilities, a user who owns nothing where root started it (one that no file of the machine
belongs to), Landlock (reading the interpreter's own files, nothing else), and a filter of system calls that allows what
a computation needs and denies every other (`ALLOWED` in the child): chmod, chown, utimensat, setxattr and their
relatives, forks, threads, programs, sockets, shared memory, files in memory, locks and whatever a later kernel adds.

A layer counts as working when a probe in it can do none of the named things of `synth/sandbox/probe.py`. If no layer
works, `run` refuses, unless `unisolated=True` is given, which leaves only the limits and the clock. Every outcome names
its layer.

The program never sees the expected outputs: it is given inputs, and the caller compares what comes back, so patching
builtins, exiting early or writing a forged result can at best produce an answer that is right.

The same program gives the same results in every process: strings hash with the seed 0, addresses are not random, the
clock starts at 2024-01-01 and moves by 0.1 ms at each look (a sleep takes its time and moves it too), and random numbers
are those of one seed.

Not covered: bugs of the kernel; side channels through time and caches; reading the interpreter's own files; a program
that reads the processor's clock by machine code is not repeatable; neither is one that needs about as much CPU time or
memory as the limit. The limits bound one run: it is for the caller to bound how many run at once.
"""

from __future__ import annotations

import ctypes
import json
import marshal
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

BOX = Path(__file__).with_name("child.py")
PROBE = Path(__file__).with_name("probe.py")
LAYERS = ("bubblewrap", "namespaces")  # strongest first
TICK = 0.05  # seconds between two looks at a program that has not ended
NOBODYS = 2_147_400_000  # a user that no system gives to anyone (systemd's table of users calls these unused)
_START = "import marshal; code, job = marshal.load(open(0, 'rb', closefd=False)); exec(code); main(job)"


@dataclass(frozen=True, kw_only=True)
class Limits:
    """seconds: CPU time of the whole run; wall: seconds on the clock; memory_mb: address space; output: bytes of the
    result as JSON."""

    seconds: int = 2
    wall: float = 10.0
    memory_mb: int = 512
    output: int = 65_536


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The outcome of a run.

    status   "ok": `results` holds {"value": v} or {"error": text} for every input; "error": the source does not load,
             or the process ended without a result; "timeout": its CPU time ran out, or it slept until the clock did;
             "stalled": the clock ran out because the machine is too busy to tell; "output": it wrote too much;
             "refused": no layer isolates here
    layer    the layer it ran in, "none" for an unisolated run
    """

    status: Literal["ok", "error", "timeout", "stalled", "output", "refused"]
    results: tuple[dict[str, Any], ...] = ()
    detail: str = ""
    layer: str = "none"


def run(
    source: str,
    function: str,
    inputs: Sequence[Sequence[Any]],
    *,
    limits: Limits | None = None,
    unisolated: bool = False,
) -> Outcome:
    """Call `function` of `source` on every list of arguments (JSON values), in one process. Works in any thread.

    unisolated: run with limits alone where no layer works; without it such a run is refused.
    """
    layer = strongest()
    if layer is None and not unisolated:
        why = "; ".join(f"{name}: {fault(name)}" for name in LAYERS)
        return Outcome(
            status="refused", detail=f"no sandbox works here ({why}): install bubblewrap (docs/reliability.md)"
        )
    return run_in(layer or "none", source, function, inputs, limits or Limits())


def strongest() -> str | None:
    """The strongest layer that works on this machine, or None. Probed once in a process."""
    return next((layer for layer in LAYERS if works(layer)), None)


def works(layer: str) -> bool:
    """Whether a probe starts in a layer and can do none of the things that it tries there."""
    return not fault(layer)


@cache
def fault(layer: str) -> str:
    """Why a layer cannot be used here; "" if it can. The probe gets a file of this user and this process as targets."""
    if layer == "bubblewrap" and not shutil.which("bwrap"):
        return "bwrap is not installed"
    with tempfile.TemporaryDirectory(prefix="espalier-probe-") as folder:
        canary = Path(folder, "canary")
        canary.write_text("nothing")
        given = [[str(canary), os.getpid(), os.uname().nodename]]
        outcome = run_in(layer, PROBE.read_text(), "probe", given, Limits(seconds=10, wall=60))
    if outcome.status != "ok" or "error" in outcome.results[0]:
        return outcome.detail or str(outcome.results)
    done = outcome.results[0].get("value")
    return (
        f"a program in it can still {', '.join(map(str, done))}"
        if isinstance(done, list) and done
        else ("" if done == [] else "the probe gave no answer")
    )


def run_in(layer: str, source: str, function: str, inputs: Sequence[Sequence[Any]], limits: Limits) -> Outcome:
    """`run` in a named layer (or "none"), whether that isolates or not: for the probe and for tests."""
    readable, others = _readable()
    user = NOBODYS if os.getuid() == 0 and others and layer != "none" else None
    job = {
        "source": source,
        "function": function,
        "inputs": json.loads(json.dumps([list(i) for i in inputs])),
        "readable": readable,
        "layer": layer,
        "user": user,
        "rlimits": {
            "RLIMIT_CPU": limits.seconds,
            "RLIMIT_AS": limits.memory_mb << 20,
            "RLIMIT_FSIZE": 0,
            "RLIMIT_NOFILE": 32,
            "RLIMIT_CORE": 0,
            "RLIMIT_MEMLOCK": 0,
            "RLIMIT_MSGQUEUE": 0,
        },
    }
    with os.fdopen(os.memfd_create("job"), "w+b") as f:
        marshal.dump((_code(), job), f)
        f.seek(0)
        return _watch(_command(layer, readable, user), f.fileno(), layer, limits)


@cache
def _code() -> Any:
    """The child's file, compiled once: it runs in the same interpreter."""
    return compile(BOX.read_text(encoding="utf-8"), BOX.name, "exec")


@cache
def _readable() -> tuple[list[str], bool]:
    """The directories that the interpreter itself needs, and whether users other than their owner can read them where
    they are mounted (what lies above them may be closed)."""
    library = sysconfig.get_path("stdlib")
    own = {sys.base_prefix, library, "/usr", "/lib", "/lib64"}
    chain = [Path(library).resolve()]
    while chain[-1] != Path(sys.base_prefix).resolve() and chain[-1].parent != chain[-1]:
        chain.append(chain[-1].parent)
    below = chain if chain[-1].parent != chain[-1] else chain[:1]
    files = (Path(library, "os.py"), Path(os.path.realpath(sys.executable)))
    others = all(p.stat().st_mode & 0o005 == 0o005 for p in below) and all(p.stat().st_mode & 0o004 for p in files)
    return sorted(p for p in own if os.path.isdir(p)), others


def _command(layer: str, readable: Sequence[str], user: int | None) -> list[str]:
    python = [os.path.realpath(sys.executable), "-s", "-P", "-S", "-B", "-c", _START]
    if layer != "bubblewrap":
        return python
    command = [shutil.which("bwrap") or "bwrap", "--die-with-parent", "--new-session"]
    if user is None:
        command += ["--unshare-all", "--cap-drop", "ALL", "--uid", "65534", "--gid", "65534"]
    else:  # root needs no namespace of users; the child becomes another user and drops the capabilities itself
        command += ["--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try"]
    for path in readable:
        for parent in reversed(Path(path).parents[:-1]):  # bwrap would close those that are closed outside
            command += ["--dir", str(parent)]
        command += ["--symlink", os.readlink(path), path] if os.path.islink(path) else ["--ro-bind", path, path]
    return [
        *command,
        *("--hostname", "box", "--dev-bind", os.devnull, os.devnull, "--dir", "/box", "--chdir", "/box"),
        *("--remount-ro", "/", *python),
    ]


@cache
def _personality() -> Any:
    return ctypes.CDLL(None, use_errno=True).personality


def _start(command: Sequence[str], given: int) -> subprocess.Popen:
    """Start the child with addresses that are not random: results that depend on them are the same in every process."""
    change, fixed = _personality(), 0x0040000
    before = change(ctypes.c_ulong(0xFFFFFFFF))  # of this thread alone; the child inherits it
    change(ctypes.c_ulong(before | fixed))
    try:
        return subprocess.Popen(
            command,
            cwd="/",
            env={"PYTHONHASHSEED": "0"},
            stdin=given,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    finally:
        change(ctypes.c_ulong(before))


def _watch(command: Sequence[str], given: int, layer: str, limits: Limits) -> Outcome:
    """Start, read until the end, the clock or the cap, kill the group, and say what came of it.

    At every TICK it looks whether the program sleeps. A machine that stands still, or is too busy to run this process or
    the program, gives fewer such looks, so a program is blamed for the clock only where it was seen asleep half the
    time."""
    try:
        process = _start(command, given)
    except OSError as e:
        return Outcome(status="error", detail=f"{command[0]} does not start: {e}", layer=layer)
    data, end, over, asleep = b"", time.monotonic() + limits.wall, "", 0
    fd = process.stdout.fileno()  # type: ignore[union-attr]
    while not over:
        left = end - time.monotonic()
        if left <= 0:
            over = "timeout" if 2 * asleep * TICK >= limits.wall else "stalled"
        elif not select.select([fd], [], [], min(TICK, left))[0]:
            asleep += _sleeps(process.pid)
        elif not (piece := os.read(fd, 65_536)):
            break
        elif len(data := data + piece) > limits.output:
            over = "output"
    cpu = _reap(process, 0.0 if over else end)
    if cpu is None and not over:
        over = "stalled"
    if over:
        clock = f"over {limits.wall} s on the clock"
        details = {
            "output": f"over {limits.output} bytes",
            "timeout": f"{clock}, asleep",
            "stalled": f"{clock}, the machine is busy",
        }
        detail = details[over]
        return Outcome(status=over, detail=detail, layer=layer)  # type: ignore[arg-type]
    try:
        answer = json.loads(data)
        results = answer.get("results")
    except (ValueError, RecursionError, AttributeError):
        answer, results = {}, None
    if isinstance(results, list) and all(isinstance(r, dict) for r in results):
        return Outcome(status="ok", results=tuple(results), layer=layer)
    killed = process.returncode == 128 + signal.SIGKILL  # the wrapper's word for it
    if killed or (
        cpu is not None and cpu > 0.75 * limits.seconds
    ):  # the kernel counts by ticks, and stops a little early
        return Outcome(status="timeout", detail=f"over {limits.seconds} s of CPU", layer=layer)
    if "refused" in answer:
        return Outcome(status="refused", detail=str(answer["refused"]), layer=layer)
    return Outcome(status="error", detail=str(answer.get("error", "the process ended without a result")), layer=layer)


def _reap(process: subprocess.Popen, end: float) -> float | None:
    """Wait until `end` for a process to exit and kill its group in any case; the CPU seconds that it and its children
    used, None where it had to be killed."""
    pid, cpu = 0, None
    while not pid and time.monotonic() < end:
        pid, status, used = os.wait4(process.pid, os.WNOHANG)
        if pid:
            cpu = used.ru_utime + used.ru_stime
        else:
            time.sleep(0.0002)
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    if not pid:
        _, status, _ = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    process.stdout.close()  # type: ignore[union-attr]
    return cpu


def _sleeps(pid: int) -> bool:
    """Whether the youngest descendant of a process waits for something that is neither a processor nor a disk.

    Read from /proc and not by psutil, which lists every process of the machine to find children: 2.5 ms beside 0.03 ms
    where 140 run, at every TICK. The layers need Linux anyway; where /proc is missing the answer is False."""
    try:
        while children := Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            pid = int(children[-1])
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "S"
    except (OSError, IndexError):
        return False
