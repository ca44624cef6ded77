"""Requests of pages that are not ours: what each service must refuse, whatever token they carry."""

import http.server
import socket
import threading
from contextlib import contextmanager

ORIGINS = (
    "https://evil.example",
    "http://evil.example:{port}",
    "http://localhost:3000",
    "http://127.0.0.1",
    "null",
    "http://127.0.0.1:{port}.evil.example",
    "http://127.0.0.1:{port}@evil.example",
    "http://[::1",
)
HOSTS = (
    "evil.example",
    "evil.example:{port}",
    "127.0.0.1.evil.example:{port}",
    "127.0.0.1@evil.example",
    "[::1",
    "0.0.0.0:{port}",
    "192.168.1.7:{port}",
    "localhost.:{port}",
)


def requests(port, get="/", post="/", body=b"{}", **credentials):
    """40 requests as (method, path, headers, body): 8 origins in a read and in two kinds of write, and 8 names that
    resolve to this machine (the page's own origin is then the name), each in a read and in a write."""
    kinds = (("GET", get, b""), ("POST", post, body), ("POST", post, body))
    types = ("", "application/json", "text/plain")
    for origin in ORIGINS:
        for (method, path, data), kind in zip(kinds, types, strict=True):
            more = {"Content-Type": kind} if kind else {}
            yield method, path, {**credentials, **more, "Origin": origin.replace("{port}", str(port))}, data
    for name in HOSTS:
        host = name.replace("{port}", str(port))
        yield "GET", get, {**credentials, "Host": host}, b""
        json = {"Content-Type": "application/json"}
        yield "POST", post, {**credentials, **json, "Host": host, "Origin": f"http://{host}"}, body


def ask(port, method, path, headers, body=b"", seconds=600):
    """(status, headers, body) of one request that is written as it is; status 0 where the connection is closed without
    a reply."""
    lines = {"Host": f"127.0.0.1:{port}", "Connection": "close", "Content-Length": str(len(body))} | dict(headers)
    head = "".join(f"{k}: {v}\r\n" for k, v in lines.items() if v is not None)
    reply = b""
    with socket.create_connection(("127.0.0.1", port), seconds) as s:
        s.sendall(f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + body)
        while part := s.recv(65536):
            reply += part
    first, _, rest = reply.partition(b"\r\n\r\n")
    line, *fields = first.decode("latin-1").split("\r\n")
    status = int(line.split()[1]) if line else 0
    return status, {k.lower(): v for k, _, v in (f.partition(": ") for f in fields)}, rest


def accepted(port, **about):
    """Of the 40 requests those that were answered otherwise than by a refusal, or whose reply another site may read."""
    out = []
    for method, path, headers, body in requests(port, **about):
        status, reply_headers, _ = ask(port, method, path, headers, body)
        if status not in (400, 403, 421) or any(k.startswith("access-control") for k in reply_headers):
            out.append((method, path, headers, status))
    return out


@contextmanager
def site():
    """The address of another site: a page that holds nothing."""

    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"<!doctype html><title>elsewhere</title><p>elsewhere")

        def log_message(self, *args):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://localhost:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()


SCRIPT = """(async () => {
  const said = [], json = {'Content-Type': 'application/json'};
  const ask = async (name, how) => { try { const r = await how(); said.push([name, r]) } catch (e) { said.push([name, 'refused']) } };
  const read = (path, o) => async () => { const r = await fetch($TARGET + path, o); return [r.status, (await r.text()).slice(0, 80)] };
  await ask('read', read($GET));
  await ask('read with cookies', read($GET, {credentials: 'include'}));
  await ask('write json', read($POST, {method: 'POST', headers: json, body: $BODY}));
  await ask('write plain', read($POST, {method: 'POST', headers: {'Content-Type': 'text/plain'}, body: $BODY}));
  await fetch($TARGET + $POST, {method: 'POST', mode: 'no-cors', credentials: 'include', body: $BODY}).catch(() => 0);
  await ask('socket', () => new Promise((yes, no) => {
    const s = new WebSocket($TARGET.replace('http', 'ws') + $SOCKET, 'prefect'); s.onopen = () => yes('open'); s.onerror = no; }));
  await ask('frame', () => new Promise((yes, no) => {
    const f = document.createElement('iframe'); f.src = $TARGET + $GET; f.name = 'f'; document.body.append(f);
    f.onload = () => { try { yes(f.contentDocument.body.innerText) } catch (e) { no(e) } }; setTimeout(no, 3000); }));
  await ask('picture', () => new Promise((yes, no) => {
    const i = new Image(); i.onload = () => yes('loaded'); i.onerror = no; i.src = $TARGET + $PICTURE; }));
  const form = document.createElement('form'); form.action = $TARGET + $POST; form.method = 'POST'; form.target = 'f';
  const field = document.createElement('input'); field.name = 'verdict'; field.value = 'first';
  form.append(field); document.body.append(form); form.submit();
  await new Promise(r => setTimeout(r, 1000));
  window.said = JSON.stringify(said);
})()"""


def in_browser(page, elsewhere, port, get="/", post="/", body="{}", socket="/", picture="/favicon.ico"):
    """What a page of another site gets of a service: [(what it tried, "refused" or what it read)]."""
    import json

    target = {"TARGET": f"http://127.0.0.1:{port}", "GET": get, "POST": post, "BODY": body, "SOCKET": socket}
    script = SCRIPT
    for name, value in ({**target, "PICTURE": picture}).items():
        script = script.replace(f"${name}", json.dumps(value))
    page.open(elsewhere, until="document.title == 'elsewhere'")
    page.run("window.said = undefined")
    page.run(script)
    page.wait("window.said")
    return json.loads(page.run("window.said"))
