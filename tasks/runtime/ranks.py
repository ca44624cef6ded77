"""A stage in several processes: the rank of this process, and the launcher that starts and ends the others.

`python -m flows.sft` with `sft.learners: 2` starts itself twice and waits. The processes find each other by a file of
this launch; the first (rank 0) is the stage, which holds the lock, writes, and prints; the others compute. If one
fails, all end, and one sentence says which. Under `torchrun` the processes are torchrun's, told apart by the same
variables RANK and WORLD_SIZE; there each looks by itself whether another one hangs (`watch`).
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tasks.core.errors import TRANSIENT, UserError, ended_by
from tasks.runtime.prefect_shim import PARENT
from tasks.runtime.termination import KEPT

MEET = "ESPALIER_MEET"  # where the processes of a launch of ours meet; under torchrun there is none
LOST = 76  # exit code of a process that ended because another one was gone
FIRST = 3.0  # seconds in which the first of torchrun's processes reports an error that all have
LEAST = 3600.0  # seconds that a process may compute without a beat
TIMES = 10.0  # or so often what took longest before, if that is more
SILENCE = "ESPALIER_SILENCE"  # seconds, in the place of LEAST
GRACE = 10.0  # seconds that the first process has to end by itself
_terminal = 2  # where a sentence is read that must be read: stderr as torchrun gave it


class Rank(NamedTuple):
    """rank of size processes; local: among those of this machine."""

    rank: int
    size: int
    local: int

    @property
    def meet(self) -> str:
        """Where the processes meet, as torch.distributed says it."""
        return os.environ.get(MEET, "env://")

    @property
    def beat(self) -> Path | None:
        """Where this process says that it is alive (training/learner/world.py) to a launcher of ours; None without one."""
        meet = os.environ.get(MEET, "").removeprefix("file://")
        return Path(meet).parent / f"{self.rank}.beat" if meet else None


def here() -> Rank:
    """The rank of this process; 0 of 1 if it is alone."""
    rank, size, local = (int(os.environ.get(k, d)) for k, d in (("RANK", 0), ("WORLD_SIZE", 1), ("LOCAL_RANK", 0)))
    return Rank(rank, size, local)


def started() -> bool:
    """Whether a launcher, ours or torchrun, has started this process as one of several."""
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ


@contextmanager
def once(stage: str, root: Path) -> Iterator[None]:
    """Lets only the first of torchrun's processes print; what another prints goes to .espalier/ranks/STAGE-RANK.log. (The
    launcher of this file does so by itself.)

    An error is printed again, but not before the first had time to report the same one: torchrun then ends the others.
    """
    rank = here().rank
    if not rank or MEET in os.environ:
        yield
        return
    log = root / ".espalier" / "ranks" / f"{stage}-{rank}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    global _terminal
    kept = [os.dup(1), os.dup(2)]
    _terminal = kept[1]
    _print_to(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666), kept=None)
    try:
        yield
    except Exception:
        time.sleep(FIRST)
        _terminal = 2
        _print_to(None, kept)
        raise
    else:
        _terminal = 2
        _print_to(None, kept)


def _print_to(file: int | None, kept: Sequence[int] | None) -> None:
    """Sends what this process prints to `file`, or back to where it went before."""
    sys.stdout.flush()
    sys.stderr.flush()
    for k, number in enumerate((1, 2)):
        os.dup2(kept[k] if kept else file, number)  # type: ignore[arg-type]
    for done in kept or [file]:
        os.close(done)  # type: ignore[arg-type]


def beats(stage: str, root: Path) -> list[Path]:
    """Where each of torchrun's processes says that it is alive; [] if there is one, or a launcher of ours watches them. Removes
    what an earlier run has left there, so it is called before they meet."""
    size = here().size
    if size == 1 or MEET in os.environ:
        return []
    _least()
    folder = root / ".espalier" / "ranks"
    folder.mkdir(parents=True, exist_ok=True)
    for left in folder.glob(f"{stage}-*.beat"):
        left.unlink(missing_ok=True)
    return [folder / f"{stage}-{rank}.beat" for rank in range(size)]


def watch(stage: str, files: Sequence[Path]) -> None:
    """Starts a thread that ends this process with the code TRANSIENT if one of torchrun's processes hangs (`_hung`), so that torchrun
    ends or restarts all. The first of the others says which; processes of a machine that shares no files are not seen."""
    if files:
        threading.Thread(target=_watch, args=(stage, files, here(), _least()), name="rank-watch", daemon=True).start()


def _watch(stage: str, files: Sequence[Path], me: Rank, least: float) -> None:
    near = range(me.rank - me.local, me.rank - me.local + int(os.environ.get("LOCAL_WORLD_SIZE", me.size)))
    looked, awake, every = time.monotonic(), 0.0, min(5.0, least / 4)
    far: dict[
        int, tuple[str, float]
    ] = {}  # rank of another machine, whose clock is another -> its words, since when here
    while True:
        time.sleep(every)
        now = time.monotonic()
        if now - looked > 2 * every:  # this process was stopped, or the machine asleep, and the others with it
            awake = now
        looked = now
        for rank, file in enumerate(files):
            if rank not in near and (said := _read(file)) != far.get(rank, ("", 0.0))[0]:
                far[rank] = said, now
        if hung := _hung(files, least, awake, {rank: since for rank, (_, since) in far.items()}):
            break
    if me.rank != (0 if hung[0] else 1):
        time.sleep(FIRST)  # torchrun ends this process sooner, unless it is on another machine, or the one that hangs
    else:
        os.write(_terminal, f"{_silent(stage, len(files), hung)}\n".encode())
    os._exit(TRANSIENT)


def _silent(stage: str, size: int, hung: tuple[int, float]) -> str:
    return (
        f"error: {stage}: process {hung[0]} of {size} has computed for {hung[1]:.0f} s without a sign while the others waited for it: "
        f"it was ended, and the others with it; {KEPT}"
    )


def launch(stage: str, size: int, env: Mapping[str, str]) -> int:
    """Runs a stage in `size` processes and returns its exit code. No process is left, however this ends."""
    least = _least()
    safe = ["-P"] if sys.flags.safe_path else []
    command = [sys.executable, *safe, "-m", f"flows.{stage}"]
    with tempfile.TemporaryDirectory(prefix="espalier-") as folder:
        children: list[subprocess.Popen[bytes]] = []
        logs = [Path(folder) / f"{rank}.txt" for rank in range(size)]
        try:
            for rank in range(size):
                with logs[rank].open("wb") as log:
                    quiet = None if rank == 0 else log
                    mine = _env(env, rank, size, f"file://{folder}/meet")
                    children.append(subprocess.Popen(command, env=mine, stdout=quiet, stderr=quiet))
            return _wait(stage, children, logs, least)
        finally:
            _end(children)


def _least() -> float:
    told = os.environ.get(SILENCE, "") or str(LEAST)
    try:
        least = float(told)
    except ValueError:
        least = 0.0
    if not least > 0:
        raise UserError(
            f"{SILENCE}={told} means nothing: write how many seconds a process may compute without a sign, as {LEAST:.0f}"
        )
    return least


def _env(env: Mapping[str, str], rank: int, size: int, meet: str) -> dict[str, str]:
    """The environment of one process. All are on this machine, so they talk over its loopback interface."""
    loopback = "lo0" if sys.platform == "darwin" else "lo"
    own = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": size, MEET: meet}
    out = {"GLOO_SOCKET_IFNAME": loopback, **env, **{k: str(v) for k, v in own.items()}}
    if rank:
        out.pop(PARENT, None)  # Prefect watches the first
    return out


def _wait(stage: str, children: Sequence[subprocess.Popen[bytes]], logs: Sequence[Path], least: float = LEAST) -> int:
    """Waits until the first has succeeded, or any has failed or hangs (`_hung`): it is ended. Returns the exit code."""
    hung: tuple[int, float] | None = None
    looked, awake, every = time.monotonic(), 0.0, min(5.0, least / 4)
    while True:
        codes = [c.poll() for c in children]
        if codes[0] == 0:
            return 0
        if any(codes):
            break
        if hung is None and (now := time.monotonic()) - looked > every:
            if now - looked > 2 * every:  # this process was stopped, or the machine asleep, and the others with it
                awake = now
            looked, hung = now, _hung([log.with_suffix(".beat") for log in logs], least, awake)
            if hung is not None:
                children[hung[0]].kill()
        time.sleep(0.1)
    # the failed process may be noticed after those that lost it, and the first may be about to report the same
    until = time.monotonic() + GRACE
    while time.monotonic() < until and (codes[0] is None or not _at_fault(codes) and None in codes):
        time.sleep(0.1)
        codes = [c.poll() for c in children]
    return _blame(stage, codes, logs, hung)


def _read(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:  # none yet
        return ""


def _hung(
    beats: Sequence[Path], least: float, awake: float = 0.0, far: Mapping[int, float] = {}
) -> tuple[int, float] | None:
    """The rank that computes without a beat for longer than all have needed before, and since how many seconds; the one that was heard
    first if there are several, since others of a split model wait for it within their own computation. awake: nobody could be heard before.
    far: of ranks with another clock, since when what they said has not changed."""
    found: list[tuple[float, int]] = []
    longest, now = 0.0, time.monotonic()
    for rank, file in enumerate(beats):
        try:
            word, since, most = _read(file).split()
        except ValueError:  # none yet, or being written
            continue
        longest = max(longest, float(most))
        if word == "computes":
            found.append((now - max(far.get(rank, float(since)), awake), rank))
    silent, rank = max(found, default=(0.0, 0))
    return (rank, silent) if silent > max(least, TIMES * longest) else None


def _at_fault(codes: Sequence[int | None]) -> list[int]:
    """The ranks that failed by themselves, not because another was gone."""
    return [rank for rank, code in enumerate(codes) if code not in (None, 0, LOST)]


def _blame(stage: str, codes: Sequence[int | None], logs: Sequence[Path], hung: tuple[int, float] | None = None) -> int:
    """Reports which process failed, unless it has done so itself; returns its exit code, or TRANSIENT if it was
    killed. hung: the one that was ended because it hung, and after how many seconds."""
    if hung is not None:
        print(_silent(stage, len(codes), hung), file=sys.stderr, flush=True)
        return TRANSIENT
    at_fault = _at_fault(codes)
    if not at_fault:
        print(f"error: {stage}: its processes lost each other; {KEPT}", file=sys.stderr, flush=True)
        return TRANSIENT
    rank, code = at_fault[0], codes[at_fault[0]]
    assert code is not None  # of those that ended
    if code < 0:
        print(
            f"error: {stage}: process {rank} of {len(codes)} was ended by {ended_by(code)}, and the others with it; {KEPT}",
            file=sys.stderr,
            flush=True,
        )
        return TRANSIENT
    if rank:
        text = logs[rank].read_text(encoding="utf-8", errors="replace").strip()
        print(text[text.rfind("error: ") if "error: " in text else -4000 :], file=sys.stderr, flush=True)
    return code


def _end(children: Sequence[subprocess.Popen[bytes]]) -> None:
    """Ends the remaining processes: the first may finish writing; a process that waits for another reacts only to
    SIGKILL."""
    for child in children[1:]:
        child.kill()
    for child in children[:1]:
        child.terminate()
        try:
            child.wait(GRACE)
        except subprocess.TimeoutExpired:
            child.kill()
    for child in children:
        child.wait()
