"""The search engine as an HTTP service on this machine: POST /search, /open, /find; GET /health, /metrics. docs/search.md

One process, one thread: a call takes a millisecond, and the index is read-only. What keeps it harmless: it listens on the loopback
interface unless told otherwise; requests that name another host, or come from a page of another site, are refused (a web page may not
search through the browser that shows it); bodies, texts and the number of results are bounded; so are connections.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import uvicorn
from fastapi import FastAPI, Response
from pydantic import BaseModel, ConfigDict, Field

from synth.engine import Engine
from tasks.play.recording import Recorder

LOCAL = ("127.0.0.1", "localhost", "::1")
MAX_BODY, MAX_TEXT, MAX_RESULTS, MAX_CONNECTIONS = 16_384, 1_000, 50, 256
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5)
Asgi = Callable[[MutableMapping[str, Any], Callable, Callable], Awaitable[None]]


class Search(BaseModel):
    model_config = ConfigDict(extra="forbid")
    query: str = Field(max_length=MAX_TEXT)
    k: int = Field(3, ge=1, le=MAX_RESULTS)


class Open(BaseModel):
    model_config = ConfigDict(extra="forbid")
    page: str = Field(max_length=MAX_TEXT)
    part: int = Field(1, ge=1, le=1_000_000)


class Find(BaseModel):
    model_config = ConfigDict(extra="forbid")
    text: str = Field(max_length=MAX_TEXT)
    page: str = Field("", max_length=MAX_TEXT)
    k: int = Field(5, ge=1, le=MAX_RESULTS)


class Metrics:
    """Counts and times of requests, in the text format of Prometheus."""

    def __init__(self) -> None:
        self.requests: dict[tuple[str, int], int] = defaultdict(int)
        self.buckets: dict[str, list[int]] = defaultdict(lambda: [0] * (len(BUCKETS) + 1))
        self.seconds: dict[str, float] = defaultdict(float)

    def add(self, path: str, status: int, seconds: float) -> None:
        self.requests[path, status] += 1
        self.seconds[path] += seconds
        self.buckets[path][next((i for i, edge in enumerate(BUCKETS) if seconds <= edge), len(BUCKETS))] += 1

    def text(self, size: Mapping[str, int]) -> str:
        name = "espalier_search"
        lines = [f"# TYPE {name}_requests_total counter"]
        lines += [f'{name}_requests_total{{path="{p}",status="{s}"}} {n}' for (p, s), n in sorted(self.requests.items())]
        lines.append(f"# TYPE {name}_seconds histogram")
        for path, counts in sorted(self.buckets.items()):
            total = 0
            for edge, n in zip((*map(str, BUCKETS), "+Inf"), counts, strict=True):
                total += n
                lines.append(f'{name}_seconds_bucket{{path="{path}",le="{edge}"}} {total}')
            lines += [f'{name}_seconds_sum{{path="{path}"}} {self.seconds[path]:.6f}', f'{name}_seconds_count{{path="{path}"}} {total}']
        for what, n in size.items():
            lines += [f"# TYPE {name}_{what}s gauge", f"{name}_{what}s {n}"]
        return "\n".join(lines) + "\n"


class Guard:
    """Before a request reaches the service: the host that it names, the site that it comes from, the size of its body; after it, its time."""

    def __init__(self, app: Asgi, *, hosts: frozenset[str], metrics: Metrics, paths: frozenset[str]) -> None:
        self.app, self.hosts, self.metrics, self.paths = app, hosts, metrics, paths

    async def __call__(self, scope: MutableMapping[str, Any], receive: Callable, send: Callable) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        begin, status = time.perf_counter(), 0
        path = scope["path"] if scope["path"] in self.paths else "other"

        async def watched(message: MutableMapping[str, Any]) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        headers = {k.decode("latin-1").lower(): v.decode("latin-1") for k, v in scope["headers"]}
        refused = self.refusal(headers)
        if refused:
            await Response(refused[1], refused[0], media_type="text/plain")(scope, receive, watched)
        else:
            await self.app(scope, _bounded(receive), watched)
        self.metrics.add(path, status, time.perf_counter() - begin)

    def refusal(self, headers: Mapping[str, str]) -> tuple[int, str] | None:
        """(status, sentence) of a request that is not answered."""
        host, origin, length = headers.get("host", ""), headers.get("origin"), headers.get("content-length", "0")
        if urlsplit(f"//{host}").hostname not in self.hosts:
            return 421, f"this service answers for {', '.join(sorted(self.hosts))} only; start it with --allow-host to add a name"
        if origin is not None and urlsplit(origin).hostname not in self.hosts:
            return 403, "requests from pages of other sites are not answered"
        if not length.isdigit() or int(length) > MAX_BODY:
            return 413, f"a request has at most {MAX_BODY} bytes"
        return None


def _bounded(receive: Callable) -> Callable:
    """`receive` that ends a body which says no length and grows beyond the limit."""
    seen = 0

    async def bounded() -> Any:
        nonlocal seen
        message = await receive()
        seen += len(message.get("body", b""))
        return {"type": "http.disconnect"} if seen > MAX_BODY else message

    return bounded


def service(engine: Engine, *, hosts: tuple[str, ...] = (), record: Path | None = None) -> FastAPI:
    """The application. `hosts`: names it answers for beside the loopback ones; `record`: file that every call is written to."""
    app = FastAPI(title="espalier search", docs_url=None, redoc_url=None, openapi_url=None)
    metrics, size, content = Metrics(), engine.size(), engine.digest()
    recorder = Recorder(engine, record) if record else None

    def call(tool: str, request: BaseModel) -> dict[str, str]:
        args = request.model_dump()
        return {"text": recorder.call(tool, args) if recorder else getattr(engine, tool)(**args)}

    @app.post("/search")
    async def search(request: Search) -> dict[str, str]:
        return call("search", request)

    @app.post("/open")
    async def open_(request: Open) -> dict[str, str]:
        return call("open", request)

    @app.post("/find")
    async def find(request: Find) -> dict[str, str]:
        return call("find", request)

    @app.get("/health")
    async def health() -> dict[str, Any]:
        return {"status": "ok", **size, "digest": content}

    @app.get("/metrics")
    async def measured() -> Response:
        return Response(metrics.text(size), media_type="text/plain; version=0.0.4")

    paths = frozenset({"/search", "/open", "/find", "/health", "/metrics"})
    app.add_middleware(Guard, hosts=frozenset((*LOCAL, *hosts)), metrics=metrics, paths=paths)  # type: ignore[arg-type]
    return app


def serve(app: FastAPI, *, host: str, port: int) -> None:
    """Until Ctrl-C or SIGTERM."""
    uvicorn.run(app, host=host, port=port, log_level="warning", access_log=False, limit_concurrency=MAX_CONNECTIONS, timeout_keep_alive=30)
