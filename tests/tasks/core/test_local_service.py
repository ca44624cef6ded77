"""What a service on this machine answers and what it refuses: hosts, origins, tokens, sizes, times, idle connections."""

import asyncio
import base64
import json
import socket
import threading
import time
from contextlib import contextmanager

import browser
import foreign
import pytest
from ports import free_port
import uvicorn

from tasks.core import local

BODY = 20_000


async def echo(scope, receive, send):
    """Answers with the number of bytes that it was sent."""
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.accept", "subprotocol": next(iter(scope["subprotocols"]), None)})
        return await send({"type": "websocket.close", "code": 1000})
    n, more = 0, True
    while more:
        message = await receive()
        n, more = n + len(message.get("body", b"")), message.get("more_body", False)
    data = json.dumps({"bytes": n}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(data))]
    headers.append((b"access-control-allow-origin", b"*"))
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": data})


@contextmanager
def served(app, **options):
    """The port of an application that `tasks.core.local` serves in a thread."""
    port = free_port()
    config = local.config(app, port=port, lifespan="off")
    if options:
        config.http = local.protocol(**options)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield port
    finally:
        server.should_exit = True
        thread.join(300)


def ask(port, path="/", method="GET", body=b"", **headers):
    return foreign.ask(port, method, path, {k.replace("_", "-"): v for k, v in headers.items()}, body)


@pytest.fixture(scope="module")
def port():
    with served(local.Guard(echo, max_body=BODY)) as port:
        yield port


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "127.0.0.1.evil.example",
        "127.0.0.1@evil.example",
        "[::1",
        "[]",
        ":",
        "127.0.0.1:x",
        "10.0.0.1",
        "0.0.0.0",
        "localhost.",
        "127.0.0.1:80:80",
        "\xff",
        "127.0.0.1 evil.example",
    ],
)
def test_a_host_that_is_not_ours(port, host):
    assert ask(port, Host=host)[0] in (400, 421)


def test_hosts_that_are_ours(port):
    for host in (f"127.0.0.1:{port}", f"LOCALHOST:{port}", f"[::1]:{port}", "localhost"):
        assert ask(port, Host=host)[0] == 200


@pytest.mark.parametrize(
    "origin",
    [
        "https://evil.example",
        "null",
        "http://localhost:3000",
        "http://127.0.0.1",
        "http://[::1",
        "http://",
        "",
        "file://",
        "http://127.0.0.1:{port}.evil.example",
        "http://127.0.0.1:{port}@evil.example",
        "ftp://127.0.0.1:{port}",
        "http://localhost:{port}",
    ],
)
def test_an_origin_that_is_not_ours(port, origin):
    for method in ("GET", "POST", "PUT", "DELETE", "OPTIONS"):
        status, headers, _ = ask(port, method=method, Origin=origin.replace("{port}", str(port)))
        assert status == 403 and not any(k.startswith("access-control") for k in headers)


def test_an_origin_that_is_ours_and_the_headers_of_every_reply(port):
    status, headers, _ = ask(port, method="POST", Origin=f"http://127.0.0.1:{port}")
    assert status == 200 and not any(k.startswith("access-control") for k in headers), "the application allowed all"
    assert headers["x-frame-options"] == "SAMEORIGIN" and headers["cross-origin-resource-policy"] == "same-origin"


def test_requests_without_an_origin_that_a_page_of_another_site_makes(port):
    """Images, scripts, frames, forms by GET: a browser sends no Origin with them, but says where they come from."""
    for site in ("cross-site", "same-site"):
        for mode, dest in (("no-cors", "image"), ("no-cors", "script"), ("navigate", "iframe"), ("cors", "empty")):
            assert ask(port, Sec_Fetch_Site=site, Sec_Fetch_Mode=mode, Sec_Fetch_Dest=dest)[0] == 403
        assert ask(port, Sec_Fetch_Site=site, Sec_Fetch_Mode="navigate", Sec_Fetch_Dest="document")[0] == 200, "a link"
        form = {"Sec_Fetch_Site": site, "Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "document"}
        assert ask(port, method="POST", **form)[0] == 403
    assert ask(port, Sec_Fetch_Site="none")[0] == ask(port, Sec_Fetch_Site="same-origin")[0] == 200


def test_forty_requests_of_other_sites(port):
    assert len(list(foreign.requests(port))) == 40 and foreign.accepted(port) == []
    with served(echo) as bare:
        assert len(foreign.accepted(bare)) == 40, "without the guard"


@pytest.mark.skipif(
    browser.BROWSER is None, reason="there is no Chromium here: install one to see a page of another site"
)
def test_a_page_of_another_site(port, tmp_path):
    with foreign.site() as elsewhere, browser.page(tmp_path) as page, served(echo) as bare:
        refused = dict(map(tuple, foreign.in_browser(page, elsewhere, port)))
        assert set(refused.values()) == {"refused"} and len(refused) == 7, refused
        let = dict(map(tuple, foreign.in_browser(page, elsewhere, bare)))
        assert let["read"][0] == let["write plain"][0] == 200 and let["socket"] == "open", "without the guard"


def test_web_sockets_are_checked_like_requests(port):
    from websockets.exceptions import InvalidStatus
    from websockets.sync.client import connect

    with connect(f"ws://127.0.0.1:{port}/x", origin=f"http://127.0.0.1:{port}"):
        pass
    for origin, headers in (("https://evil.example", {}), (None, {"Sec-Fetch-Site": "cross-site"})):
        with (
            pytest.raises(InvalidStatus, match="403"),
            connect(f"ws://127.0.0.1:{port}/x", origin=origin, additional_headers=headers),
        ):
            pass


def test_silent_web_sockets_are_closed_and_counted(monkeypatch):
    from websockets.exceptions import ConnectionClosed, InvalidStatus
    from websockets.sync.client import connect

    async def listens(scope, receive, send):
        while (message := await receive())["type"] != "websocket.disconnect":
            if message["type"] == "websocket.connect":
                await send({"type": "websocket.accept"})
            else:
                await send({"type": "websocket.send", "text": message["text"]})

    monkeypatch.setattr(local, "MAX_SOCKETS", 2)
    monkeypatch.setattr(local, "SECONDS", 0.5)
    with served(local.Guard(listens)) as port:
        url = f"ws://127.0.0.1:{port}/x"
        with connect(url) as speaks, connect(url) as silent:
            speaks.send("hello")
            assert speaks.recv(20) == "hello"
            with pytest.raises(InvalidStatus, match="403"), connect(url):
                pass
            with pytest.raises(ConnectionClosed):
                silent.recv(20)
            speaks.send("again")
            assert speaks.recv(20) == "again", "one that has spoken may be silent"
            with connect(url):
                pass


def test_bodies_are_bounded(port):
    assert json.loads(ask(port, method="POST", body=b"x" * BODY)[2]) == {"bytes": BODY}
    assert ask(port, method="POST", body=b"x" * (BODY + 1))[0] == 413
    chunks = b"".join(b"%x\r\n%s\r\n" % (5000, b"x" * 5000) for _ in range(5)) + b"0\r\n\r\n"
    assert ask(port, method="POST", body=chunks, Content_Length=None, Transfer_Encoding="chunked")[0] == 413


def test_a_token(tmp_path):
    token = local.secret(tmp_path / "new" / "token")
    assert local.secret(tmp_path / "new" / "token") == token and len(token) == 43
    assert (tmp_path / "new/token").stat().st_mode & 0o777 == 0o600
    (tmp_path / "new/token").write_text("short")
    assert local.secret(tmp_path / "new/token") not in ("short", token), "one that is cut is made again"
    with served(local.Guard(echo, token=token, open_paths=("/health",))) as port:
        basic = base64.b64encode(f"me:{token}".encode()).decode()
        for headers in ({"Authorization": f"Bearer {token}"}, {"Authorization": f"Basic {basic}"}):
            assert ask(port, "/x", **headers)[0] == 200
        wrong = [{}, {"Authorization": "Bearer "}, {"Authorization": f"Bearer {token}x"}, {"Authorization": "Basic %"}]
        wrong += [{"Authorization": f"Bearer {token[:-1]}"}, {"Cookie": f"a={token}"}, {"Cookie": "=;\x01="}]
        assert [ask(port, "/x", **h)[0] for h in wrong] == [401] * len(wrong)
        assert ask(port, f"/x?token={token}")[0] == 401 and ask(port, "/health")[0] == 200
        # The printed link: the browser keeps a cookie, and the address bar no token.
        path = local.link(f"http://127.0.0.1:{port}", token).partition(str(port))[2]
        status, headers, page = ask(port, path)
        assert status == 200 and token.encode() not in page and b'content="0;url=/"' in page
        cookie, *attributes = headers["set-cookie"].split("; ")
        assert {"HttpOnly", "SameSite=Strict"} <= set(attributes) and ask(port, "/x", Cookie=cookie)[0] == 200
        assert ask(port, "/x", Cookie=cookie, Origin="https://evil.example")[0] == 403
        assert ask(port, "/?token=guess")[0] == 401


def closed(s):
    """Whether the other side has closed a connection."""
    s.setblocking(False)
    try:
        return not s.recv(1)
    except BlockingIOError:
        return False
    except OSError:
        return True


def test_idle_connections_lock_nobody_out():
    """280 connections that say nothing, or half a request: uvicorn by itself answers 503 from its limit on."""
    with served(local.Guard(echo), most=20) as port:
        held = [socket.create_connection(("127.0.0.1", port)) for _ in range(280)]
        for half, s in enumerate(held):
            if half % 2:
                try:
                    s.sendall(b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\n\r\n12"[: half % 60 + 1])
                except OSError:
                    pass  # closed already
        assert [ask(port)[0] for _ in range(10)] == [200] * 10
        assert sum(map(closed, held)) >= 260, "those that had waited longest"
        for s in held:
            s.close()


def test_a_request_that_never_comes_to_its_end_is_closed():
    with served(local.Guard(echo), seconds=0.2) as port:
        for beginning in (b"", b"GET / HTTP/1.1\r\nHost: 127", b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"):
            with socket.create_connection(("127.0.0.1", port), 300) as s:
                s.sendall(beginning)
                if beginning.endswith(b"\r\n\r\n"):  # half of a second request after a whole one
                    assert s.recv(65536).startswith(b"HTTP/1.1 200")
                    s.sendall(b"GET /")
                while s.recv(65536):
                    pass


def test_a_body_that_comes_too_slowly(monkeypatch):
    monkeypatch.setattr(local, "SECONDS", 0.2)
    with served(local.Guard(echo)) as port:
        assert ask(port, method="POST", body=b"1", Content_Length="9")[0] == 408


def test_an_application_may_wrap_what_is_refused():
    async def wraps(scope, receive, send):
        try:
            await receive()
        except Exception as e:
            raise ExceptionGroup("tasks", [e]) from e

    messages = []

    async def send(message):
        messages.append(message)

    async def receive():
        return {"type": "http.request", "body": b"x" * 11, "more_body": False}

    scope = {"type": "http", "method": "POST", "path": "/", "headers": [(b"host", b"localhost")]}
    asyncio.run(local.Guard(wraps, max_body=10)(scope, receive, send))
    assert messages[0]["status"] == 413


def test_a_connection_does_not_wait_for_acknowledgements():
    """A reply of two writes would take 40 ms longer where the client delays its own."""
    with local.listening(0) as server, socket.create_connection(server.getsockname()):
        with server.accept()[0] as connection:
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
