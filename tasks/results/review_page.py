"""The page of `espalier review --page`: one pair, four buttons, on this machine only.

It is served on the loopback address to who has the token of its link (tasks/services/local.py): neither another user nor
a page of somebody else that is open in the same browser can read it or press its buttons.
"""

from __future__ import annotations

import secrets
import socket
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from typing import Any
from urllib.parse import parse_qs

import uvicorn
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse

from tasks.errors import UserError
from tasks.pages.page import CSS
from tasks.results.review import VERDICTS, Review, Shown
from tasks.services import local
from tasks.text import escape

BUTTONS = {
    "first": "1: the first is better",
    "second": "2: the second is better",
    "tie": "t: a tie",
    "skip": "s: skip",
    "undo": "u: undo",
}
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
        sides = "".join(
            f'<div class="side"><span class="who">{n}</span>{escape(side)}</div>'
            for n, side in enumerate(shown.sides, 1)
        )
        buttons = "".join(
            f'<button name="verdict" value="{k}" accesskey="{text[0]}">{escape(text)}</button>'
            for k, text in BUTTONS.items()
        )
        note = f'<p class="soft">{review.left} left. Which side is labelled better is not shown, and changes place from pair to pair.</p>'
        hidden = f'<input type="hidden" name="id" value="{escape(shown.pair.id)}">'
        body = f'<h1>Which answer is better?</h1>{note}<div class="chat">{talk}</div><div class="pair">{sides}</div>'
        body += f'<form method="post">{hidden}{buttons}</form>'
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Review</title><style>{CSS}{OWN}</style></head><body>{body}</body></html>\n"
    )


class App:
    """The page as an ASGI application. `done` is called once the page is sent that says that all is decided."""

    def __init__(self, review: Review, done: Callable[[], None]) -> None:
        self.review, self.done = review, done

    async def __call__(self, scope: MutableMapping[str, Any], receive: local.Receive, send: local.Send) -> None:
        request = Request(scope, receive)
        if scope["path"] != "/" or scope["method"] not in ("GET", "POST"):
            return await PlainTextResponse("there is one page\n", 404)(scope, receive, send)
        if scope["method"] == "POST":
            self.decide(parse_qs((await request.body()).decode("utf-8", "replace"), max_num_fields=20))
            return await RedirectResponse("/", 303)(scope, receive, send)
        left = self.review.left
        policy = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'"}
        await HTMLResponse(page(self.review, self.review.next()), headers=policy)(scope, receive, send)
        if not left:
            self.done()

    def decide(self, form: Mapping[str, Sequence[str]]) -> None:
        verdict, shown = form.get("verdict", [""])[0], self.review.next()
        if verdict == "undo":
            self.review.undo()
        elif verdict in VERDICTS and shown is not None and form.get("id") == [shown.pair.id]:  # no button pressed twice
            self.review.decide(shown, verdict)  # type: ignore[arg-type]


def serve(review: Review, port: int, ready: Callable[[str], None]) -> None:
    """Serve until every pair is decided, or Ctrl-C. `ready` is given the address once it answers.

    Raises UserError where the port is taken."""
    token = secrets.token_urlsafe(32)

    def done() -> None:
        server.should_exit = True

    app = local.Guard(App(review, done), token=token, open_paths=(), max_body=4096)
    try:
        listening = socket.create_server(("127.0.0.1", port))
    except OSError:
        raise UserError(f"port {port} is in use: name another with --port") from None
    server = uvicorn.Server(local.config(app, port=port, lifespan="off"))
    with listening:
        ready(local.link(f"http://127.0.0.1:{listening.getsockname()[1]}", token))
        server.run(sockets=[listening])
