"""The error response of an API, in OpenAI's format: `{"error": {"message", "type", "param",
"code"}}`."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException


class Refused(Exception):
    """A refused request: status, one sentence, the wrong parameter, and a code."""

    def __init__(self, message: str, *, status: int = 400, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.status, self.param, self.code = status, param, code


def error(message: str, kind: str, param: str | None = None, code: str | None = None) -> dict[str, Any]:
    """The body of a refusal."""
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def refusals(app: FastAPI, offers: str) -> None:
    """Makes the application report refusals in this format. offers: the text for an unknown path."""

    @app.exception_handler(Refused)
    async def refused(_: Request, e: Refused) -> JSONResponse:
        kind = "server_error" if e.status >= 500 else "invalid_request_error"
        return JSONResponse(error(str(e), kind, e.param, e.code), e.status)

    @app.exception_handler(RequestValidationError)
    async def mistaken(_: Request, e: RequestValidationError) -> JSONResponse:
        mistake = e.errors()[0]
        where = ".".join(str(x) for x in mistake["loc"][1:])
        return JSONResponse(error(_sentence(where, mistake), "invalid_request_error", where or None), 400)

    @app.exception_handler(HTTPException)
    async def unknown(_: Request, e: HTTPException) -> JSONResponse:
        told = offers if e.status_code == 404 else str(e.detail)
        return JSONResponse(error(told, "invalid_request_error"), e.status_code)


def _sentence(where: str, mistake: Any) -> str:
    if mistake["type"] == "json_invalid":
        return "the body of the request is not JSON"
    if mistake["type"] == "extra_forbidden":
        return f"{where} is not known here, so it would be ignored: leave it out"
    if mistake["type"] == "literal_error" and where in ("frequency_penalty", "presence_penalty"):
        return f"{where} is not offered: leave it out, or set it to 0"
    return f"{where or 'the body'}: {mistake['msg'][:1].lower()}{mistake['msg'][1:]}"
