"""The page of `espalier review --page`: one pair, four buttons, on this machine only.

It is served on the loopback address, only to holders of the token in its link (tasks/core/local.py): neither another
user nor a foreign page in the same browser can read it or press its buttons.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from typing import Any
from urllib.parse import parse_qs

import uvicorn
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse

from tasks.pages.render import render
from tasks.results.review import VERDICTS, Review, Shown
from tasks.core import local

BUTTONS = {
    "first": "1: the first is better",
    "second": "2: the second is better",
    "tie": "t: a tie",
    "skip": "s: skip",
    "undo": "u: undo",
}


def page(review: Review, shown: Shown | None) -> str:
    """The page of one pair, or the final page. All texts are escaped; no script runs."""
    summary = review.summary() if shown is None else []
    return render("review.html", shown=shown, summary=summary, left=review.left, buttons=BUTTONS)


class App:
    """The page as an ASGI application. `done` is called once the final page has been sent."""

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
        # a second press of a button has no effect
        elif verdict in VERDICTS and shown is not None and form.get("id") == [shown.pair.id]:
            self.review.decide(shown, verdict)  # type: ignore[arg-type]


def serve(review: Review, port: int, ready: Callable[[str], None]) -> None:
    """Serves until every pair is decided, or Ctrl-C. `ready` is called with the address once the server answers.

    Raises UserError if the port is in use."""
    token = secrets.token_urlsafe(32)

    def done() -> None:
        server.should_exit = True

    app = local.Guard(App(review, done), token=token, open_paths=(), max_body=4096)
    listening = local.listening(port)
    server = uvicorn.Server(local.config(app, port=port, lifespan="off"))
    with listening:
        ready(local.link(f"http://127.0.0.1:{listening.getsockname()[1]}", token))
        server.run(sockets=[listening])
