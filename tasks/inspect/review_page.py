"""The page of `espalier review --page`: one pair, four buttons, on this machine only.

It is served on the loopback address under a path that nobody else knows, and answers only a browser that asks for that address by name:
a page of somebody else that is open in the same browser can neither read it nor press its buttons.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from html import escape
from http.server import BaseHTTPRequestHandler, HTTPServer
from urllib.parse import parse_qs

from tasks.inspect.review import VERDICTS, Review, Shown
from tasks.pages.page import CSS

BUTTONS = {"first": "1: the first is better", "second": "2: the second is better", "tie": "t: a tie", "skip": "s: skip", "undo": "u: undo"}
OWN = """
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(17rem, 1fr)); gap: 1rem; margin: 1rem 0; }
.side { border: 1px solid var(--line); border-radius: 10px; padding: .8rem; white-space: pre-wrap; overflow-wrap: anywhere; }
form { display: flex; flex-wrap: wrap; gap: .6rem; }
button { font: inherit; padding: .5rem 1rem; border-radius: 8px; border: 1px solid var(--line); background: var(--tint); color: var(--ink);
}
"""


def page(review: Review, shown: Shown | None) -> str:
    """The page of one pair, or of the end. All texts are escaped; no script runs."""
    if shown is None:
        body = "<h1>All pairs are decided</h1>" + "".join(f"<p>{escape(line)}</p>" for line in review.summary())
    else:
        talk = "".join(
            f'<div class="turn {m.role if m.role in ("user", "assistant") else "tool"}">'
            f'<span class="who">{escape(m.role)}</span>{escape(m.content)}</div>'
            for m in shown.pair.prompt
        )
        sides = "".join(f'<div class="side"><span class="who">{n}</span>{escape(side)}</div>' for n, side in enumerate(shown.sides, 1))
        buttons = "".join(
            f'<button name="verdict" value="{k}" accesskey="{text[0]}">{escape(text)}</button>' for k, text in BUTTONS.items()
        )
        note = f'<p class="soft">{review.left} left. Which side is labelled better is not shown, and changes place from pair to pair.</p>'
        hidden = f'<input type="hidden" name="id" value="{escape(shown.pair.id)}">'
        body = f'<h1>Which answer is better?</h1>{note}<div class="chat">{talk}</div><div class="pair">{sides}</div>'
        body += f'<form method="post">{hidden}{buttons}</form>'
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Review</title><style>{CSS}{OWN}</style></head><body>{body}</body></html>\n"
    )


def serve(review: Review, port: int, ready: Callable[[str], None]) -> None:
    """Serve until every pair is decided, or Ctrl-C. `ready` is given the address once it answers."""
    token = secrets.token_urlsafe(12)

    class Handler(BaseHTTPRequestHandler):
        def allowed(self) -> bool:
            host = self.headers.get("Host", "")
            good = self.path == f"/{token}" and host in (f"127.0.0.1:{self.server.server_port}", f"localhost:{self.server.server_port}")
            if not good:
                self.send_error(404)
            return good

        def do_GET(self) -> None:
            if self.allowed():
                self.answer(page(review, review.next()))

        def do_POST(self) -> None:
            if not self.allowed():
                return
            length = min(int(self.headers.get("Content-Length") or 0), 4096)
            form = parse_qs(self.rfile.read(length).decode("utf-8", "replace"))
            verdict, shown = form.get("verdict", [""])[0], review.next()
            if verdict == "undo":
                review.undo()
            elif verdict in VERDICTS and shown is not None and form.get("id") == [shown.pair.id]:  # not a button pressed twice
                review.decide(shown, verdict)
            self.send_response(303)
            self.send_header("Location", f"/{token}")
            self.end_headers()

        def answer(self, text: str) -> None:
            data = text.encode("utf-8")
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(data)))
            self.send_header("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'")
            self.send_header("Referrer-Policy", "no-referrer")
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:
            """Requests are not printed: the terminal shows the progress."""

    with HTTPServer(("127.0.0.1", port), Handler) as server:
        server.timeout = 0.5
        ready(f"http://127.0.0.1:{server.server_port}/{token}")
        while review.left:
            server.handle_request()
        server.handle_request()  # the page that says it is done
