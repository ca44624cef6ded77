"""Gives each episode of an agent program an address, and runs the program's process.

One server of this process answers on the loopback address under `/sessions/ID/v1/`, each session by a key of its own.
A request waits until the player has sampled its turn (training/rollout/play.py): so the weights never change within
one, and all programs that wait are sampled in one batch. Requests of one session that come at once are answered one
after another, each as a row of its own where it does not go on from the last.

A program is one of the user's own choice and runs as the user does, with a bare environment (no keys of yours), in a
process group of its own, within a time, a size of memory and a size of files; it ends with its episode.
"""

from __future__ import annotations

import asyncio
import atexit
import json
import math
import os
import secrets
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, StreamingResponse

from synth.types import Problem
from tasks.serving import shapes
from tasks.serving.shapes import Asking, ChatMessage, Reply
from tasks.core.errors import UserError
from tasks.core import local
from tasks.serving.refusal import Refused, error, refusals
from training.env.program import Asked, Ended, Program
from training.types import Segment

MODEL = "policy"  # name of the model in requests
BODY = 4 << 20  # bytes of a request
WAITING = 64  # requests of one session that may wait
GRACE = 5.0  # seconds in which a program that has posted its result may end
_PASSED = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "PYTHONPATH", "VIRTUAL_ENV", "TZ")
_OFFERS = "here are sessions/ID/v1/chat/completions, /v1/responses, /v1/messages, /v1/models and sessions/ID/result"


@dataclass
class Waiting:
    """A request that waits to be sampled."""

    asking: Asking
    answered: Future[Reply] = field(default_factory=Future)


@dataclass(frozen=True)
class Turn:
    """An answered request: all messages up to the reply, and the offered tools."""

    messages: tuple[ChatMessage, ...]
    tools: tuple[Mapping[str, Any], ...]


class Session:
    """One episode of a program: the requests to its address, and its process."""

    def __init__(self, program: Program, problem: Problem, address: str, forget: Callable[[Session], object]) -> None:
        self.program, self.name, self.key = program, secrets.token_hex(8), secrets.token_urlsafe(32)
        self.base = f"{address}/sessions/{self.name}"
        self.waiting: deque[Waiting] = deque()
        self.turns: list[Turn] = []
        self.responses: dict[
            str, tuple[ChatMessage, ...]
        ] = {}  # of /v1/responses, by id: a program may name an earlier one
        self.result: Ended | None = None
        self.over = ""
        self.left = program.seconds
        self.changed = threading.Condition()
        self._now: Waiting | None = None
        self._folder = Path(tempfile.mkdtemp(prefix="espalier-agent-"))
        self._forget = forget
        given = {"id": problem.id, "prompt": [{"role": m.role, "content": m.content} for m in problem.prompt]}
        (self._folder / "problem").write_text(json.dumps({**given, "question": problem.question}, ensure_ascii=False))
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts the program. Its first request may come before this returns."""
        self._process = self._started()

    def _started(self) -> subprocess.Popen[bytes] | None:
        command = _command(self.program)
        limits = f"ulimit -v {self.program.memory_mb << 10} 2>/dev/null; ulimit -f {self.program.output_mb << 11}; ulimit -c 0"
        environment = {k: os.environ[k] for k in (*_PASSED, *self.program.variables) if k in os.environ}
        environment |= {
            "OPENAI_BASE_URL": f"{self.base}/v1",
            "OPENAI_API_KEY": self.key,
            "ANTHROPIC_BASE_URL": self.base,
            "ANTHROPIC_API_KEY": self.key,
            "ESPALIER_RESULT_URL": f"{self.base}/result",
            "NO_PROXY": "127.0.0.1,localhost",
        }
        try:
            with (
                open(self._folder / "problem", "rb") as given,
                open(self._folder / "out", "wb") as out,
                open(self._folder / "err", "wb") as err,
            ):
                return subprocess.Popen(
                    ["/bin/sh", "-c", f'{limits}; exec "$@"', "sh", *command],
                    stdin=given,
                    stdout=out,
                    stderr=err,
                    env=environment,
                    start_new_session=True,
                )
        except OSError as e:
            self.result = Ended(lost=f"agent_start: {e}")
            return None

    def next(self) -> Asked | Ended:
        """Waits for the next request or the end of the program."""
        while True:
            with self.changed:
                ended = self._ended()
                if ended is None and self.waiting:
                    self._now = self.waiting.popleft()
                    return self._asked(self._now.asking)
                if ended is None:
                    begun = time.monotonic()
                    self.changed.wait(min(0.05, max(0.001, self.left)))
                    self.left -= time.monotonic() - begun
            if ended is not None:
                self.close("the episode is over: no further request is answered")
                return ended

    def _ended(self) -> Ended | None:
        if self.result is not None:
            return self.result
        if (code := self._code()) is not None:
            return self._outcome(code)
        if self.left <= 0:
            return Ended(lost=f"agent_timeout: the program took more than {self.program.seconds:g} s")
        return None

    def _code(self) -> int | None:
        """How the program ended, None while it is at work. It is not reaped yet: its process group keeps its number, so
        that `close` ends nobody else's."""
        if self._process is None or not hasattr(os, "waitid"):
            return None if self._process is None else self._process.poll()
        state = os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if state is None:
            return None
        return state.si_status if state.si_code == os.CLD_EXITED else -state.si_status

    def _outcome(self, code: int) -> Ended:
        """The result that the finished program wrote to standard output."""
        if code:
            last = (self._read("err").strip().splitlines() or ["no message"])[-1]
            how = f"signal {-code}" if code < 0 else f"code {code}"
            return Ended(lost=f"agent_crashed: {how}: {last[:300]}")
        lines = [line for line in self._read("out").splitlines() if line.strip()]
        if not lines:
            return Ended()
        try:
            value = json.loads(lines[-1])
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict) or not {"answer", "score"} & set(value):
            return Ended(answer=lines[-1].strip())
        try:
            return result(value)
        except Refused as e:
            return Ended(lost=f"agent_result: {e}")

    def _read(self, name: str) -> str:
        """The last 64 KiB of what it wrote."""
        with open(self._folder / name, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - (64 << 10)))
            return file.read().decode("utf-8", "replace")

    def _asked(self, asking: Asking) -> Asked:
        follows = self._follows(asking)
        known = 0 if follows is None else len(self.turns[follows].messages)
        record = {
            "turn": len(self.turns),
            "follows": follows,
            "messages": len(asking.messages),
            "tools": [t["function"]["name"] for t in asking.tools],
            **({"overruled": dict(asking.record)} if asking.record else {}),
        }
        return Asked(
            messages=tuple(m.rendered for m in asking.messages[known:]),
            follows=follows,
            tools=asking.tools,
            most=asking.most,
            stops=asking.stops,
            logprobs=asking.logprobs,
            record=record,
        )

    def _follows(self, asking: Asking) -> int | None:
        """The turn that the request continues: among the turns whose whole conversation it repeats, the longest, and of
        these the last. None if there is none, or if the new messages are not all from a user or a tool."""
        best: int | None = None
        for k, turn in enumerate(self.turns):
            n = len(turn.messages)
            if n < len(asking.messages) and asking.messages[:n] == turn.messages and asking.tools == turn.tools:
                if {m.role for m in asking.messages[n:]} <= {"user", "tool"} and (
                    best is None or n >= len(self.turns[best].messages)
                ):
                    best = k
        return best

    def reply(self, text: str, segment: Segment, prompt_tokens: int, tokens: Sequence[str] = ()) -> None:
        """Answers the request that `next` returned last."""
        now, self._now = self._now, None
        assert now is not None, "a reply to no request"
        reply = shapes.reply(text, segment, prompt_tokens, now.asking.tools, tokens)
        self.turns.append(Turn((*now.asking.messages, reply.message), now.asking.tools))
        if not now.answered.cancelled():
            now.answered.set_result(reply)

    def ask(self, asking: Asking) -> Future[Reply]:
        """Queues a request. Raises Refused if the episode is over or too many requests wait."""
        with self.changed:
            if self.over:
                raise Refused(self.over, status=410, code="session_over")
            if len(self.waiting) >= WAITING:
                raise Refused(f"more than {WAITING} requests of this session wait", status=429, code="busy")
            self.waiting.append(Waiting(asking))
            self.changed.notify_all()
            return self.waiting[-1].answered

    def post(self, ended: Ended) -> None:
        """Receives the program's result, if the program posts it before it ends."""
        with self.changed:
            if self.over:
                raise Refused(self.over, status=410, code="session_over")
            self.result = self.result or ended
            self.changed.notify_all()

    def close(self, why: str) -> None:
        """Ends the episode: waiting requests are refused, and the process group is ended. A second call does
        nothing."""
        with self.changed:
            if self.over:
                return
            self.over = why
            left = [*self.waiting, *([self._now] if self._now else [])]
            self.waiting.clear()
        for waiting in left:
            if not waiting.answered.done():
                waiting.answered.set_exception(Refused(why, status=410, code="session_over"))
        if self._process is not None:
            until = time.monotonic() + (GRACE if self.result is not None else 0.0)
            while self._code() is None and time.monotonic() < until:
                time.sleep(0.02)
            try:
                os.killpg(self._process.pid, signal.SIGKILL)  # its children too, even if the program itself is gone
            except (ProcessLookupError, PermissionError):
                pass
            self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)
        self._forget(self)


def _command(program: Program) -> list[str]:
    if program.function:
        return [sys.executable, str(Path(__file__).with_name("call.py")), program.function]
    return shlex.split(program.command)


def result(value: Mapping[str, Any]) -> Ended:
    """`{"answer"}` or `{"score", "parts"}` of a program. Raises Refused for anything else."""
    if unknown := sorted(set(value) - {"answer", "score", "parts"}):
        raise Refused(f"a result has answer, score and parts, not {unknown[0]!r}", param=unknown[0])
    answer, score, parts = value.get("answer"), value.get("score"), value.get("parts") or {}
    if answer is None and score is None:
        raise Refused("a result has an answer or a score", param="answer")
    for name, number in [("score", score), *(parts.items() if isinstance(parts, dict) else [("parts", "")])]:
        if number is None and name == "score":
            continue
        if isinstance(number, bool) or not isinstance(number, int | float) or not math.isfinite(number):
            raise Refused(f"{name} is {number!r}: a finite number", param=name)
    return Ended(
        answer=None if answer is None else str(answer),
        score=None if score is None else float(score),
        parts={str(k): float(v) for k, v in parts.items()},
    )


class Sessions:
    """The server and its open sessions. Calling it with a program and a problem begins an episode."""

    def __init__(self) -> None:
        self.open: dict[str, Session] = {}
        listening = local.listening(0)
        port = listening.getsockname()[1]
        self.address = f"http://127.0.0.1:{port}"
        guarded = local.Guard(_application(self), max_body=BODY, told=_told)
        self._server = uvicorn.Server(local.config(guarded, port=port, level="error"))
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [listening]}, name="agents", daemon=True
        )
        self._thread.start()
        until = time.monotonic() + 30
        while not self._server.started:
            if time.monotonic() > until or not self._thread.is_alive():
                raise UserError("the address for agent programs did not start on 127.0.0.1: look at the message above")
            time.sleep(0.01)
        atexit.register(self.close)

    def __call__(self, program: Program, problem: Problem) -> Session:
        session = Session(program, problem, self.address, lambda s: self.open.pop(s.name, None))
        self.open[session.name] = session  # before the program: a quick one asks before it is known to have started
        session.start()
        return session

    def close(self) -> None:
        """End all sessions and the server."""
        for session in list(self.open.values()):
            session.close("the run is over")
        self._server.should_exit = True
        self._thread.join(10)


@lru_cache
def sessions() -> Sessions:
    """The sessions of this process, started once."""
    return Sessions()


def checked(program: Program) -> None:
    """Raises UserError for a program that cannot be started here."""
    if program.function:
        module, colon, name = program.function.partition(":")
        if not (colon and module and name.isidentifier()):
            raise UserError(
                f"the environment program has the function {program.function!r}: write module:name, as in my_agent:solve"
            )
        return
    try:
        words = shlex.split(program.command)
    except ValueError as e:
        raise UserError(f"the command of the environment program, {program.command!r}, cannot be read: {e}") from e
    if not words:
        raise UserError("the environment program needs a command or a function: name the agent that is to be trained")
    if shutil.which(words[0]) is None:
        raise UserError(
            f"the environment program is to run {words[0]!r}, which is not found: install it, or give its path"
        )


def _told(status: int, why: str) -> tuple[bytes, bytes]:
    return b"application/json", json.dumps(error(why, "invalid_request_error")).encode()


async def _parsed(http: Request) -> Any:
    """The body of a request as JSON. Raises Refused."""
    try:
        return json.loads(await http.body())
    except (ValueError, RecursionError) as e:
        raise Refused("the body of the request is not JSON") from e


async def _asked(http: Request) -> dict[str, Any]:
    """Parses a request for a turn of our model. Raises Refused if it is invalid."""
    value = await _parsed(http)
    if not isinstance(value, dict):
        raise Refused("the body of the request is not a JSON object")
    if value.get("model") not in (None, "", MODEL):
        raise Refused(
            f"the model {value['model']!r} is not here: ask for {MODEL!r}, or for none",
            status=404,
            param="model",
            code="model_not_found",
        )
    return value


def _application(sessions: Sessions) -> FastAPI:
    app = FastAPI(title="espalier agents", docs_url=None, redoc_url=None, openapi_url=None)
    refusals(app, _OFFERS)

    def session(name: str, http: Request) -> Session:
        kind, _, bearer = http.headers.get("authorization", "").partition(" ")
        shown = bearer.strip() if kind.lower() == "bearer" else http.headers.get("x-api-key", "")
        session_open = sessions.open.get(name)
        # The same words for a session that there is not: who has no key learns nothing.
        if not secrets.compare_digest(
            (session_open.key if session_open else secrets.token_urlsafe(32)).encode(), shown.encode()
        ):
            raise Refused(
                "this session needs its own key, and ends when its episode does", status=401, code="invalid_api_key"
            )
        assert session_open is not None
        return session_open

    async def answered(of: Session, asking: Asking) -> Reply:
        return await asyncio.wrap_future(of.ask(asking))

    def streamed(lines: Iterator[str]) -> StreamingResponse:
        return StreamingResponse(lines, media_type="text/event-stream", headers={"cache-control": "no-store"})

    @app.get("/sessions/{name}/v1/models")
    async def models(name: str, http: Request) -> dict[str, Any]:
        session(name, http)
        return {"object": "list", "data": [{"id": MODEL, "object": "model", "created": 0, "owned_by": "espalier"}]}

    @app.post("/sessions/{name}/v1/chat/completions", response_model=None)
    async def chat(name: str, http: Request) -> Any:
        of, given = session(name, http), await _asked(http)
        asking = shapes.read_chat(given)
        whole = shapes.write_chat(await answered(of, asking), MODEL)
        usage = bool((given.get("stream_options") or {}).get("include_usage"))
        return streamed(shapes.events_chat(whole, usage)) if asking.stream else JSONResponse(whole)

    @app.post("/sessions/{name}/v1/responses", response_model=None)
    async def responses(name: str, http: Request) -> Any:
        of, given = session(name, http), await _asked(http)
        before = given.get("previous_response_id")
        if before is not None and before not in of.responses:
            raise Refused(f"there is no response {before!r} in this session", status=404, param="previous_response_id")
        asking = shapes.read_responses(given, of.responses[before] if before is not None else ())
        reply = await answered(of, asking)
        whole = shapes.write_responses(f"resp_{secrets.token_hex(12)}", reply, MODEL)
        of.responses[whole["id"]] = (*asking.messages, reply.message)
        return streamed(shapes.events_responses(whole)) if asking.stream else JSONResponse(whole)

    @app.post("/sessions/{name}/v1/messages", response_model=None)
    async def messages(name: str, http: Request) -> Any:
        of, given = session(name, http), await _asked(http)
        asking = shapes.read_messages(given)
        whole = shapes.write_messages(await answered(of, asking), MODEL)
        return streamed(shapes.events_messages(whole)) if asking.stream else JSONResponse(whole)

    @app.post("/sessions/{name}/result")
    async def posted(name: str, http: Request) -> dict[str, str]:
        of = session(name, http)
        value = await _parsed(http)
        of.post(result(value if isinstance(value, dict) else {"answer": value}))
        return {"status": "ok"}

    return app
