"""A local service that is safe from web pages and other users: `Guard` wraps any ASGI application, `run` serves it.

A web page of any site can send requests to 127.0.0.1 from the browser that shows it, a name that resolves to 127.0.0.1
makes its replies readable (DNS rebinding), and every user of the machine can connect. So a request is answered only if

- its Host is a name that the service answers for (the loopback address, and names that the user added);
- its Origin, where it has one, is that same host and port, and the browser does not call it cross-site
  (Fetch metadata, https://www.w3.org/TR/fetch-metadata/), links that a person follows excepted;
- it carries the token, where the service can run commands or change files.

Web sockets, which no CORS rule covers, are checked alike. No reply has CORS headers. Bodies are limited in size and
time, connections in number: a new connection above the limit closes the one that has waited longest, so that idle
connections cannot block the service.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import errno
import hmac
import os
import re
import secrets
import socket
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from http.cookies import CookieError, SimpleCookie
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qs, quote

import uvicorn
from jinja2 import Template
from uvicorn.protocols.http.h11_impl import H11Protocol

from synth.types import UserError

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
MAX_CONNECTIONS = 256
MAX_SOCKETS = 128  # number of web sockets of all clients together
MAX_BODY = 16 << 20  # bytes
SECONDS = 20.0  # for the head of a request, and for its body in addition to one second per 64 KiB
RATE = 64 << 10  # bytes a second, the slowest upload
KEEP_ALIVE = 30  # seconds of an idle connection
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Asgi = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(:[0-9]{1,5})?\Z", re.ASCII)
_PLAIN = b"text/plain; charset=utf-8"
_HEADERS = {
    b"x-content-type-options": b"nosniff",
    b"x-frame-options": b"SAMEORIGIN",
    b"referrer-policy": b"same-origin",
    b"cross-origin-resource-policy": b"same-origin",
    b"cross-origin-opener-policy": b"same-origin",
}
_LANDING = Template(
    """<!doctype html><meta charset="utf-8"><title>Espalier</title>
{%- if keep -%}
<script>localStorage.setItem({{ keep|tojson }}, {{ value|tojson }}); location.replace("/")</script>
{%- else -%}
<meta http-equiv="refresh" content="0;url=/"><a href="/">go on</a>
{%- endif %}""",
    autoescape=True,
)


class _Refused(Exception):
    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status, self.why = status, why


def secret(path: Path) -> str:
    """The token in the file `path`, made there (256 bits, readable by its owner alone) where there is none.

    Raises OSError where the file cannot be written or read."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        kept = path.read_text(encoding="ascii", errors="replace").strip()
    except FileNotFoundError:
        kept = ""
    if re.fullmatch(r"[A-Za-z0-9_-]{43}", kept):
        path.chmod(0o600)
        return kept
    token = secrets.token_urlsafe(32)
    beside = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    beside.unlink(missing_ok=True)
    with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
        file.write(token + "\n")
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
    return token


def link(address: str, token: str) -> str:
    """The link for a person: the page at `address` removes the token from the address bar at once."""
    return f"{address.rstrip('/')}/?token={quote(token)}"


class Guard:
    """An ASGI application that refuses requests that must not reach `app`. Refused: 421 another host, 403 another
    origin, 401 no token, 413 a body over `max_body` bytes, 408 a body that comes too slowly.

    hosts      host names, without port, for which it answers
    token      asked of every request but those of `open_paths`, as `Authorization: Bearer TOKEN`, as the password of
               HTTP's basic authentication, or as the cookie that `link` sets. "": no token is needed
    keep       name under which the page keeps `user:token` in localStorage, for an application that checks
               basic authentication itself (Prefect): `link` puts it there, and the guard asks for no token
    told       (status, why) of a refusal -> content type and body, for an API with its own error format
    """

    def __init__(
        self,
        app: Asgi,
        *,
        hosts: Iterable[str] = LOOPBACK,
        token: str = "",
        keep: str = "",
        user: str = "espalier",
        open_paths: Iterable[str] = ("/health",),
        max_body: int | None = MAX_BODY,
        told: Callable[[int, str], tuple[bytes, bytes]] | None = None,
    ) -> None:
        self.app, self.hosts, self.max_body = app, frozenset(h.lower() for h in hosts), max_body
        self.told = told or (lambda status, why: (_PLAIN, why.encode() + b"\n"))
        self.token, self.keep, self.user, self.open_paths = token, keep, user, frozenset(open_paths)
        self.sockets = 0  # open now
        self.cookie = f"espalier_{binascii.crc32(token.encode()):08x}"  # ports of one host share their cookies

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):  # the start and the end of the application
            return await self.app(scope, receive, send)
        begun = False
        broken: _Refused | None = None

        async def sent(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun, message = True, {**message, "headers": _headers(message.get("headers", []))}
            await send(message)

        limited = self._bounded(receive)

        async def bounded() -> Message:
            nonlocal broken
            try:
                return await limited()
            except _Refused as e:
                broken = e
                raise

        try:
            given = [(k.decode("latin-1").lower(), v.decode("latin-1")) for k, v in scope["headers"]]
            self.check(scope, given)
            if scope["type"] == "websocket":
                return await self._socket(scope, receive, send)
            if (page := self.landing(scope)) is not None:
                cookie = [(b"set-cookie", page[1].encode())] if page[1] else []
                return await _answer(sent, 200, b"text/html; charset=utf-8", page[0].encode(), cookie)
            await self.app(scope, bounded, sent)
        except _Refused as e:
            broken = e
        except Exception:  # an application may wrap what its `receive` raises
            if broken is None:
                raise
        if broken is None:
            return
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008, "reason": ""})
        elif not begun:
            await _answer(sent, broken.status, *self.told(broken.status, broken.why), [(b"connection", b"close")])

    async def _socket(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """A web socket: refused if there are too many, and closed if an unauthenticated client sends nothing."""
        if self.sockets >= MAX_SOCKETS:
            raise _Refused(503, "too many web sockets are open")
        heard = 0  # the opening, and the first message

        async def first() -> Message:
            nonlocal heard
            if heard > 1:
                return await receive()
            try:
                async with asyncio.timeout(SECONDS):
                    message = await receive()
            except TimeoutError:
                await send({"type": "websocket.close", "code": 1008, "reason": "nothing was said"})
                return {"type": "websocket.disconnect", "code": 1008}
            heard += 1
            return message

        self.sockets += 1
        try:
            await self.app(scope, first, send)
        finally:
            self.sockets -= 1

    def check(self, scope: Mapping[str, Any], given: list[tuple[str, str]]) -> None:
        """Raises _Refused for a request that must be refused."""
        headers = dict(given)
        hosts = [v.strip().lower() for k, v in given if k == "host"]
        named = _HOST.match(hosts[0]) if len(hosts) == 1 else None
        if named is None or named[1] not in self.hosts:
            raise _Refused(421, f"this service answers for {', '.join(sorted(self.hosts))} only")
        for origin in (v.strip().lower() for k, v in given if k == "origin"):
            if origin not in (f"http://{hosts[0]}", f"https://{hosts[0]}"):
                raise _Refused(403, "requests from pages of other sites are not answered")
        followed = (headers.get("sec-fetch-mode"), headers.get("sec-fetch-dest")) == ("navigate", "document")
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin") and not (
            followed and scope.get("method") in ("GET", "HEAD")
        ):
            raise _Refused(403, "requests from pages of other sites are not answered")
        needs_token = self.token and not self.keep and scope["path"] not in self.open_paths
        if needs_token and not any(_same(self.token, x) for x in self._shown(scope, headers)):
            raise _Refused(401, "open the link that the command printed: it holds the token of this service")
        length = headers.get("content-length", "0")
        if not re.fullmatch(r"[0-9]{1,15}", length) or (self.max_body is not None and int(length) > self.max_body):
            raise _Refused(413, f"a request has at most {self.max_body} bytes")

    def _shown(self, scope: Mapping[str, Any], headers: Mapping[str, str]) -> Iterable[str]:
        """Every token in a request."""
        kind, _, value = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer":
            yield value.strip()
        elif kind.lower() == "basic":
            try:
                yield base64.b64decode(value, validate=True).decode("utf-8").partition(":")[2]
            except ValueError:
                pass
        try:
            if (morsel := SimpleCookie(headers.get("cookie", "")).get(self.cookie)) is not None:
                yield morsel.value
        except CookieError:
            pass
        if scope["type"] == "http" and scope["method"] == "GET" and scope["path"] == "/":
            yield from _query(scope).get("token", [])

    def landing(self, scope: Mapping[str, Any]) -> tuple[str, str] | None:
        """(page, cookie) for the request of `link`: the browser keeps the token, and goes on without it in the address.
        None for other requests."""
        shown = _query(scope).get("token") if (scope["path"], scope["method"]) == ("/", "GET") else None
        if not shown or not self.token or not _same(self.token, shown[0]):
            return None
        if self.keep:
            value = base64.b64encode(f"{self.user}:{self.token}".encode()).decode()
            return _LANDING.render(keep=self.keep, value=value), ""
        return _LANDING.render(keep=""), f"{self.cookie}={self.token}; Path=/; HttpOnly; SameSite=Strict"

    def _bounded(self, receive: Receive) -> Receive:
        """`receive` that ends a body which is too long or comes too slowly."""
        seen, done, begin = 0, False, time.monotonic()

        async def bounded() -> Message:
            nonlocal seen, done
            if done:
                return await receive()  # waits for the caller to leave
            try:
                async with asyncio.timeout(max(0.0, begin + SECONDS + seen / RATE - time.monotonic())):
                    message = await receive()
            except TimeoutError:
                raise _Refused(408, f"the body of a request must arrive within {SECONDS:g} seconds") from None
            seen += len(message.get("body", b""))
            done = not message.get("more_body", False)
            if self.max_body is not None and seen > self.max_body:
                raise _Refused(413, f"a request has at most {self.max_body} bytes")
            return message

        return bounded


def _query(scope: Mapping[str, Any]) -> dict[str, list[str]]:
    return parse_qs(scope.get("query_string", b"").decode("latin-1"), max_num_fields=20)


def _same(token: str, shown: str) -> bool:
    return hmac.compare_digest(token.encode(), shown.encode("utf-8", "replace"))


def _headers(given: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """The headers of a reply without permission for other sites, with ours where it has none of its own."""
    kept = [(bytes(k), bytes(v)) for k, v in given if not bytes(k).lower().startswith(b"access-control-")]
    own = {k.lower() for k, _ in kept}
    return kept + [(k, v) for k, v in _HEADERS.items() if k not in own]


async def _answer(send: Send, status: int, kind: bytes, data: bytes, headers: list[tuple[bytes, bytes]]) -> None:
    about = [(b"content-type", kind), (b"content-length", b"%d" % len(data)), (b"cache-control", b"no-store")]
    await send({"type": "http.response.start", "status": status, "headers": [*about, *headers]})
    await send({"type": "http.response.body", "body": data})


class _Bounded(H11Protocol):
    """uvicorn's HTTP/1.1 with `seconds` for the head of a request, and at most `most` connections in `held`; above that
    the one that has waited longest for its client is closed."""

    most: ClassVar[int]
    seconds: ClassVar[float]
    held: ClassVar[dict[_Bounded, None]]  # in the order in which they came
    late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        if len(self.held) >= self.most:
            idle = next((c for c in self.held if c.waits()), None)
            if idle is None:
                return transport.abort()
            self.held.pop(idle)
            idle.transport.abort()
        self.held[self] = None
        super().connection_made(transport)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self.held.pop(self, None)
        self._unwatch()
        if self.transport is not None:  # not one that was refused
            super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def handle_websocket_upgrade(self, event: Any) -> None:
        self.held.pop(self, None)
        self._unwatch()
        super().handle_websocket_upgrade(event)

    def waits(self) -> bool:
        """Whether the connection waits for the client."""
        cycle = self.cycle
        return cycle is None or cycle.response_complete or cycle.more_body or self.flow.write_paused

    def _watch(self) -> None:
        """Give the head of the next request its time, from its first byte on."""
        if self.cycle is not None and not self.cycle.response_complete:
            self._unwatch()
        elif self.late is None and self in self.held and self.timeout_keep_alive_task is None:
            self.late = self.loop.call_later(self.seconds, self._too_late)

    def _unwatch(self) -> None:
        if self.late is not None:
            self.late.cancel()
            self.late = None

    def _too_late(self) -> None:
        self.late = None
        if self.cycle is None or self.cycle.response_complete:
            self.transport.close()


def protocol(most: int = MAX_CONNECTIONS, seconds: float = SECONDS) -> type[H11Protocol]:
    """The protocol of one server, which counts its own connections."""
    return type("Protocol", (_Bounded,), {"most": most, "seconds": seconds, "held": {}})


def config(app: Asgi, *, port: int, host: str = "127.0.0.1", level: str = "warning", **more: Any) -> uvicorn.Config:
    """How `run` serves an application."""
    return uvicorn.Config(
        app,
        host=host,
        port=port,
        http=protocol(),
        log_level=level,
        access_log=False,
        server_header=False,
        proxy_headers=False,  # there is no proxy in front, so a client could claim any address
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=10,
        ws_max_size=MAX_BODY,
        **more,
    )


def listening(port: int, host: str = "127.0.0.1") -> socket.socket:
    """A socket that listens on the port; 0: on a free one. Raises UserError if it is not available."""
    try:
        server = socket.create_server(
            (host.strip("[]"), port), family=socket.AF_INET6 if ":" in host else socket.AF_INET
        )
        # Connections take it from here. asyncio sets it only where a socket names its protocol, which this one does not; without
        # it a reply in two writes waits for the client's delayed acknowledgement, 40 ms on Linux.
        server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return server
    except (OSError, OverflowError) as e:
        why = "is in use" if getattr(e, "errno", 0) == errno.EADDRINUSE else f"of {host} cannot be had ({e})"
        raise UserError(f"port {port} {why}: name another with --port") from None


def free(port: int, host: str = "127.0.0.1") -> None:
    """Raises UserError if the port is not available; commands check this before they load anything."""
    listening(port, host).close()


def run(app: Asgi, *, port: int, host: str = "127.0.0.1", level: str = "warning", **more: Any) -> None:
    """Serve until Ctrl-C or SIGTERM. A `host` other than the loopback address must be the user's explicit choice.
    Raises UserError if the port is taken."""
    free(port, host)
    uvicorn.Server(config(app, port=port, host=host, level=level, **more)).run()
