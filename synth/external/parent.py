"""Requests to an external environment, which runs in a separate process (synth/external/child.py).

The process is killed with its group when it takes too long, prints too much, or when this process ends. Its output is
parsed as JSON and never executed. An environment that started once and breaks later raises `Lost`, a reason for an
`Unscorable`; the next request starts it again.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Any

from synth.types import (
    Message,
    Problem,
    Quarantined,
    Score,
    Scored,
    Split,
    Unscorable,
    UserError,
    nearest,
    seed_for,
    split_of,
)

ADAPTERS = Path(__file__).with_name("adapters")
BESIDE = (
    "child.py",
    "adapters/file.py",
    "adapters/gymnasium.py",
    "adapters/nemo_gym.py",
    "adapters/openenv.py",
    "adapters/reasoning_core.py",
    "adapters/reasoning_gym.py",
    "adapters/verifiers.py",
)
NO_ANSWER = "(no reference answer)"  # the name for problems whose environment gives none
DRAWS = 200  # tries for a problem whose text belongs to the split


class Lost(Exception):
    """The environment gave no answer: the reason as "code: detail"."""


def adapters() -> list[str]:
    """Names of the adapters."""
    return sorted(p.stem for p in ADAPTERS.glob("[!_]*.py"))


@dataclass(frozen=True, kw_only=True)
class Source:
    """adapter    a file of synth/external/adapters, and `options` its arguments
    python     its interpreter; empty: this one
    seconds    of wall time for each request, and `start` for starting up
    memory_mb  address space of its process, 0 for no limit
    output_mb  longest reply
    variables  environment variables that it sees besides PATH and HOME; no secrets, because they are written into the
               plan
    """

    adapter: str
    options: Mapping[str, Any] = field(default_factory=dict)
    python: str = ""
    seconds: float = 30.0
    start: float = 120.0
    memory_mb: int = 8192
    output_mb: int = 4
    variables: Mapping[str, str] = field(default_factory=dict)

    @staticmethod
    def of(given: Mapping[str, Any]) -> Source:
        """The source of an entry, whose further keys are the adapter's options. Raises UserError for an adapter that
        does not exist and for budgets that are not above 0."""
        names = adapters()
        known = {f.name for f in fields(Source)} - {"options"}
        name = str(given.get("adapter", "")).replace("-", "_")
        if name not in names:
            raise UserError(f"there is no adapter {given.get('adapter', '')!r} of environments: {nearest(name, names)}")
        options = {**given.get("options", {}), **{k: v for k, v in given.items() if k not in {*known, "options"}}}
        source = Source(
            **{**{k: v for k, v in given.items() if k in known}, "adapter": name},
            options=options,
        )
        for budget in ("seconds", "start", "output_mb"):
            if not getattr(source, budget) > 0:
                raise UserError(f"the environment {name}: {budget} is {getattr(source, budget)}, and must be above 0")
        return source

    def row(self) -> dict[str, Any]:
        """As JSON, without default values."""
        plain = Source(adapter=self.adapter)
        return {f.name: v for f in fields(self) if (v := getattr(self, f.name)) != getattr(plain, f.name)} | {
            "adapter": self.adapter
        }


class External:
    """A running environment; its adapter gives `turns`, `name`, `version`, `actions` and `remote`. Raises UserError if
    it does not start. Any thread may send requests; they are answered one at a time."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self._lock = threading.RLock()
        self._child: subprocess.Popen[bytes] | None = None
        self._life = 0  # how often it was started; episodes end with their process
        self._count = 0
        self._closed: list[int] = []
        self._errors = Path(tempfile.mkdtemp(prefix="espalier-external-"))
        atexit.register(self.close)
        try:
            about = self._start()
        except Lost as e:
            raise UserError(f"the environment {source.adapter} does not start: {str(e).partition(': ')[2]}") from e
        self.turns, self.name, self.version = bool(about["turns"]), str(about["name"]), str(about["version"])
        self.actions, self.remote = [str(a) for a in about["actions"]], str(about["remote"])

    def _start(self) -> dict[str, Any]:
        python = self.source.python or sys.executable
        path = os.pathsep.join([str(Path(python).parent), os.defpath])
        try:
            with open(self._errors / "err", "wb") as errors:
                self._child = subprocess.Popen(
                    [python, "-B", str(Path(__file__).with_name("child.py"))],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    env={
                        "PATH": path,
                        "HOME": os.path.expanduser("~"),
                        "PYTHONHASHSEED": "0",
                        "PYTHONUTF8": "1",
                        **self.source.variables,
                    },
                    start_new_session=True,
                )
        except OSError as e:
            raise Lost(f"external_start: {e}: name an interpreter that exists (python)") from e
        self._life += 1
        first = {
            "adapter": str(ADAPTERS / f"{self.source.adapter}.py"),
            "options": dict(self.source.options),
            "memory_mb": self.source.memory_mb,
        }
        reply = self._reply(first, self.source.start)
        if "refused" in reply:
            self._end()
            raise Lost(f"external_start: {reply['refused']}")
        return reply

    def ask(self, op: str, **more: Any) -> dict[str, Any]:
        """Its answer to a request. Raises Lost."""
        with self._lock:
            if self._child is None:
                self._start()
            closed, self._closed = self._closed, []
            reply = self._reply({"op": op, "closed": closed, **more}, self.source.seconds)
        if "failed" in reply:
            raise Lost(f"external_failed: {reply['failed']}")
        return reply

    def _reply(self, request: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        child, until, data = self._child, time.monotonic() + seconds, bytearray()
        assert child is not None and child.stdin is not None and child.stdout is not None
        try:
            child.stdin.write(json.dumps(request).encode() + b"\n")
            child.stdin.flush()
        except BrokenPipeError:
            raise self._crashed() from None
        fd = child.stdout.fileno()
        while not data.endswith(b"\n"):
            if not select.select([fd], [], [], max(0.0, until - time.monotonic()))[0]:
                self._end()
                raise Lost(f"external_timeout: no answer within {seconds:g} s")
            if not (piece := os.read(fd, 1 << 16)):
                raise self._crashed()
            data += piece
            if len(data) > self.source.output_mb << 20:
                self._end()
                raise Lost(f"external_output: a reply longer than {self.source.output_mb} MB")
        try:
            return json.loads(data)
        except ValueError:
            self._end()
            raise Lost(f"external_output: no JSON: {bytes(data[:100])!r}") from None

    def _crashed(self) -> Lost:
        assert self._child is not None
        try:
            code = self._child.wait(1)
        except subprocess.TimeoutExpired:
            code = 0
        self._end()
        last = (self._errors / "err").read_bytes()[-4096:].decode("utf-8", "replace").strip().splitlines()
        how = f"signal {-code}" if code < 0 else f"code {code}"
        return Lost(f"external_crashed: its process ended with {how}: {last[-1][:300] if last else 'no message'}")

    def _end(self) -> None:
        child, self._child = self._child, None
        if child is None:
            return
        try:
            os.killpg(child.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass
        for pipe in (child.stdin, child.stdout):
            try:
                pipe.close()  # type: ignore[union-attr]
            except OSError:
                pass
        child.wait()

    def close(self) -> None:
        """End the process. A second call does nothing."""
        with self._lock:
            self._end()
        shutil.rmtree(self._errors, ignore_errors=True)

    def episode(self, item: Any) -> Episode:
        """Begin an episode. Raises Lost."""
        with self._lock:
            self._count += 1
            number = self._count
            reply = self.ask("start", episode=number, item=item)
            return Episode(self, number, self._life, _messages(reply["messages"]))

    def step(self, number: int, life: int, text: str, **more: Any) -> dict[str, Any]:
        """The answer to a turn of an episode. Raises Lost."""
        with self._lock:
            if self._child is None or self._life != life:
                raise Lost("external_lost: its process ended in another episode")
            return self.ask("step", episode=number, text=text, **more)

    def forget(self, number: int) -> None:
        """Drop an episode that is no longer used; the child learns it with the next request."""
        self._closed.append(number)


class Episode:
    """A running episode. `messages`: what the model sees first."""

    def __init__(self, external: External, number: int, life: int, messages: list[Message]) -> None:
        self.external, self.number, self.life, self.messages = external, number, life, messages
        weakref.finalize(self, external.forget, number).atexit = False

    def turn(self, text: str) -> tuple[list[Message], bool, float] | Unscorable:
        """(the reply, whether the episode is over, the reward of this turn)."""
        try:
            reply = self.external.step(self.number, self.life, text)
        except Lost as e:
            return Unscorable(reason=str(e))
        return _messages(reply["messages"]), bool(reply["over"]), float(reply["reward"])


def _messages(rows: Any) -> list[Message]:
    return [Message(role=str(m["role"]), content=str(m["content"])) for m in rows]


_LOCK = threading.Lock()


def opened(source: Mapping[str, Any]) -> External:
    """The environment of an entry (`Source.of`), started once in this process; a forked child starts its own. Raises
    UserError."""
    with _LOCK:
        return _opened(json.dumps(Source.of(source).row(), sort_keys=True), os.getpid())


@cache
def _opened(source: str, pid: int) -> External:
    return External(Source.of(json.loads(source)))


def begin(problem: Problem) -> Episode | Unscorable:
    """An episode of the problem's environment. Raises UserError for one that does not start."""
    try:
        return opened(problem.args["source"]).episode(problem.args["item"])
    except Lost as e:
        return Unscorable(reason=str(e))


def score(source: Mapping[str, Any], item: Any, answer: str) -> Score:
    """The environment's score of an answer; Unscorable if it gives none."""
    try:
        reply = opened(source).ask("score", item=item, answer=answer)
    except Lost as e:
        return Unscorable(reason=str(e))
    return Scored(value=reply["value"], parts=reply["parts"])


def problem(
    source: Mapping[str, Any], seed: int, split: Split, index: int, *, env: str = ""
) -> Problem | Quarantined | None:
    """Problem `index` of a split; None if the environment has no more problems.

    The environment is given a seed that is hashed from all of these (never a neighbour's), and another until the
    problem's text belongs to the split, so that no text is in two splits. An environment that reads rows from files
    gives them in order, with its own splits.
    """
    where = opened(source)
    name = f"{where.name}/{split}/{index}"
    for draw in range(DRAWS):
        drawn = seed_for(seed, "external", where.name, split, index, draw)
        try:
            row = where.ask("problem", seed=drawn, split=split, index=index)
        except Lost as e:
            return Quarantined(id=name, stage="problems", reason=str(e).partition(":")[0], evidence=str(e))
        if "none" in row:
            return None
        messages = _messages(row["prompt"])
        root = f"{where.name}:{row.get('root') or json.dumps([m.content for m in messages])}"
        if row.get("split", split_of(root)) == split:
            break
    else:
        return Quarantined(id=name, stage="problems", reason="no_room", evidence=f"none of {DRAWS} belongs to {split}")
    answer = str(row.get("answer") or "")
    return Problem.make(
        prompt=messages,
        answer=answer or NO_ANSWER,
        verifier="external",
        args={"source": Source.of(source).row(), "item": row["item"]},
        env=env or ("external" if where.turns else "single"),
        family=where.name,
        lineage={
            "root": root,
            "index": index,
            "seed": drawn,
            "version": where.version,
            **({"turns": True} if where.turns else {}),
            "solution": f"<answer>{answer}</answer>" if answer else "",
        },
        split=split,
    )
