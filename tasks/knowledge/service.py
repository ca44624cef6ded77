"""The search engine as an HTTP service on this machine: POST /search, /open, /find; GET /health, /metrics.
docs/search.md

One process, one thread: a call takes a millisecond, and the index is read-only. Access control and the limits on bodies
and connections are those of every service here (tasks/core/local.py); texts and the number of results are limited in
addition.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from synth.search.index import SearchIndex
from tasks.knowledge.recording import Recorder
from tasks.core import local

MAX_BODY, MAX_TEXT, MAX_RESULTS = 16_384, 1_000, 50
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5)


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
        lines += [
            f'{name}_requests_total{{path="{p}",status="{s}"}} {n}' for (p, s), n in sorted(self.requests.items())
        ]
        lines.append(f"# TYPE {name}_seconds histogram")
        for path, counts in sorted(self.buckets.items()):
            total = 0
            for edge, n in zip((*map(str, BUCKETS), "+Inf"), counts, strict=True):
                total += n
                lines.append(f'{name}_seconds_bucket{{path="{path}",le="{edge}"}} {total}')
            lines += [
                f'{name}_seconds_sum{{path="{path}"}} {self.seconds[path]:.6f}',
                f'{name}_seconds_count{{path="{path}"}} {total}',
            ]
        for what, n in size.items():
            lines += [f"# TYPE {name}_{what}s gauge", f"{name}_{what}s {n}"]
        return "\n".join(lines) + "\n"


class Timed:
    """An application whose requests are counted, including refused ones."""

    def __init__(self, app: local.Asgi, *, metrics: Metrics, paths: frozenset[str]) -> None:
        self.app, self.metrics, self.paths = app, metrics, paths

    async def __call__(self, scope: MutableMapping[str, Any], receive: local.Receive, send: local.Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        begin, status = time.perf_counter(), 0
        path = scope["path"] if scope["path"] in self.paths else "other"

        async def watched(message: local.Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        await self.app(scope, receive, watched)
        self.metrics.add(path, status, time.perf_counter() - begin)


def service(index: SearchIndex, *, hosts: tuple[str, ...] = (), record: Path | None = None) -> local.Asgi:
    """The application. `hosts`: names it answers for beside the loopback ones; `record`: file that every call is
    written to."""
    app = FastAPI(title="espalier search", docs_url=None, redoc_url=None, openapi_url=None)
    metrics, size, content = Metrics(), index.size(), index.digest()
    recorder = Recorder(index, record) if record else None

    def call(tool: str, request: BaseModel) -> dict[str, str]:
        args = request.model_dump()
        return {"text": recorder.call(tool, args) if recorder else getattr(index, tool)(**args)}

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

    @app.exception_handler(RequestValidationError)
    async def mistaken(_: Request, error: RequestValidationError) -> JSONResponse:
        """What is wrong, and where; without the request itself, which may not be valid JSON (NaN, half of a surrogate
        pair)."""
        wrong = [{"where": list(map(str, e["loc"])), "what": e["msg"]} for e in error.errors()]
        return JSONResponse({"detail": wrong}, 422)

    guarded = local.Guard(app, hosts=(*local.LOOPBACK, *hosts), max_body=MAX_BODY)  # type: ignore[arg-type]
    return Timed(guarded, metrics=metrics, paths=paths)


def serve(app: local.Asgi, *, host: str, port: int) -> None:
    """Until Ctrl-C or SIGTERM."""
    local.run(app, host=host, port=port)
