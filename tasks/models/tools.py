"""Services that environments call besides the search tool: Python in the sandbox, tools of servers that speak the Model
Context Protocol, the starter of agent programs (tasks/serving), the starter of episodes of external environments
(synth/external), and who draws the pictures that problems describe (synth/scenes, tasks/models/drawn_pages.py).

A server is a command line, named by the environment `tools` (`servers`). It is started once, speaks over standard input
and output through the official client, and ends with this process. The user chooses this program. It runs with the
user's rights and a bare environment (no keys), and its output is untrusted text.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import shlex
import threading
from collections.abc import Iterable
from functools import lru_cache, partial
from typing import Any

from synth.external.parent import begin
from synth.knowledge.documents import harmless
from synth.sandbox import parent as sandbox
from tasks.core.errors import UserError
from training.env.external import External
from training.env.program import Program
from training.env.tool import Tool

# The program that the sandbox runs: `main` runs the model's code and returns what it printed, and the value of a final
# expression.
_MAIN = """
import ast, bisect, collections, contextlib, copy, dataclasses, datetime, decimal, fractions, functools, heapq, io, itertools, json
import math, operator, random, re, statistics, string, typing

def main(code):
    tree, space, out = ast.parse(code), {"__name__": "__main__"}, io.StringIO()
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    with contextlib.redirect_stdout(out):
        exec(compile(tree, "code", "exec"), space)
        value = None if last is None else eval(compile(ast.Expression(last.value), "code", "eval"), space)
    return out.getvalue() + ("" if value is None else repr(value))
"""
LIMITS = sandbox.Limits(seconds=2, wall=8.0, memory_mb=512, output=65_536)
SECONDS = 10.0  # wall-clock limit of a call to a server
START = 30.0  # wall-clock limit until a server has listed its tools


def hosts(envs: Iterable[Any]) -> dict[str, Any]:
    """The environments of a knob `envs`, by name."""
    return {e.piece.rpartition("/")[2]: e() for e in envs}


def bound(search: Any, hosts: Iterable[Any]) -> dict[str, Any]:
    """The tools of a player whose environments are `hosts`: the search tool, and whatever else these name. Raises
    UserError if Python is wanted and no sandbox works here, or if a server does not start."""
    hosts = list(hosts)
    tools: dict[str, Any] = {"search": search}
    if any("python" in getattr(h, "makers", {}) for h in hosts):
        tools["python"] = python()
    for command in sorted({c for h in hosts for c in getattr(h, "servers", ())}):
        tools[command] = server(command).tools
    if programs := [h for h in hosts if isinstance(h, Program)]:
        from tasks.serving.sessions import checked, sessions  # imported here: an HTTP server, which few runs need

        for host in programs:
            checked(host)
        tools["programs"] = sessions()
    if any(isinstance(h, External) for h in hosts):
        tools["external"] = begin
    if any(getattr(h, "draws", False) for h in hosts):
        from synth.scenes import draw  # imported here: few runs show pictures

        tools["draw"] = draw
    if any(getattr(h, "drawn", "") == "browser" for h in hosts):
        from tasks.models.drawn_pages import draw as drawn  # imported here: no other run starts a browser

        tools["page"] = drawn
    return tools


@lru_cache
def python() -> Tool:
    """Python in the sandbox, a fresh process for each call. Raises UserError if no sandbox works."""
    if sandbox.strongest() is None:
        raise UserError(
            "an environment wants the tool python, and no sandbox works here: install bubblewrap, or leave the tool out"
        )
    return Tool(
        name="python",
        description="Runs a Python program alone; gives what it prints and the value of its last line.",
        run=_run,
        seconds=LIMITS.wall + 4,
        places=os.cpu_count() or 1,
        parameters={
            "type": "object",
            "properties": {"code": {"type": "string", "maxLength": 10_000}},
            "required": ["code"],
            "additionalProperties": False,
        },
    )


def _run(code: str) -> str:
    out = sandbox.run(_MAIN, "main", [[code]], limits=LIMITS)
    if out.status != "ok":
        raise RuntimeError(f"{out.status}: {out.detail}")
    (result,) = out.results
    if "error" in result:
        raise RuntimeError(str(result["error"]))
    return str(result["value"]) or "(nothing was printed)"


@lru_cache
def server(command: str) -> Server:
    """The server of a command line, started once in this process."""
    return Server(command)


class Server:
    """A running tool server. `tools`: the tools it offers. Raises UserError if it does not start or offers none."""

    def __init__(self, command: str) -> None:
        try:
            import mcp
        except ModuleNotFoundError as e:
            raise UserError(
                "the environment tools names a tool server, and the package mcp is missing: pip install 'espalier[mcp]'"
            ) from e
        if not shlex.split(command):
            raise UserError(
                "the environment tools names an empty command as a tool server: write one, or leave `servers` out"
            )
        self.command = command
        self._ready, self._ended = threading.Event(), ""
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._serve(mcp)), name=f"mcp {command}", daemon=True
        )
        self._listed: list[Any] = []
        self._thread.start()
        if not self._ready.wait(START) or self._ended:
            raise UserError(
                f"the tool server {command!r} did not start: {self._ended or f'it said nothing for {START:g} s'}"
            )
        if not self._listed:
            self.close()
            raise UserError(f"the tool server {command!r} offers no tool: leave it out")
        atexit.register(self.close)
        self.tools: tuple[Tool, ...] = tuple(
            Tool(
                name=t.name,
                description=t.description or "",
                parameters=t.input_schema,
                run=partial(self._call, t.name),
                seconds=SECONDS + 1,
            )
            for t in self._listed
        )

    async def _serve(self, mcp: Any) -> None:
        """Opens, uses and closes the connection in one task, as the client library requires."""
        first, *rest = shlex.split(self.command)
        try:
            with open(os.devnull, "w") as nowhere:
                async with mcp.stdio_client(
                    mcp.StdioServerParameters(command=first, args=rest), errlog=nowhere
                ) as streams:
                    async with mcp.ClientSession(*streams) as session:
                        await session.initialize()
                        self._listed = list((await session.list_tools()).tools)
                        self._session, self._loop, self._stop = session, asyncio.get_running_loop(), asyncio.Event()
                        self._ready.set()
                        await self._stop.wait()
        except Exception as e:  # noqa: BLE001 (said where the server was asked for)
            while isinstance(e, ExceptionGroup):
                e = e.exceptions[0]
            self._ended = f"{type(e).__name__}: {e}"[:300]
        self._ended = self._ended or "it was closed"
        self._ready.set()

    def _call(self, tool: str, /, **arguments: Any) -> str:
        if self._ended:
            raise RuntimeError(f"the tool server is gone: {self._ended}")
        waiting = asyncio.run_coroutine_threadsafe(self._session.call_tool(tool, arguments), self._loop)
        try:
            result = waiting.result(SECONDS)
        except TimeoutError as e:
            waiting.cancel()
            raise RuntimeError(f"no answer within {SECONDS:g} s") from e
        text = harmless("\n".join(getattr(c, "text", f"({c.type}: not shown)") for c in result.content))
        if result.is_error:
            raise RuntimeError(text or "the tool failed")
        return text or "(nothing)"

    def close(self) -> None:
        """End the server; a second call does nothing."""
        if not self._ended and self._ready.is_set():
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join(10)
