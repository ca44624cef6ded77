"""OpenAI's `/v1/models`, `/v1/chat/completions` and `/v1/completions` over `Conversations`, streamed where asked.

A request may set what the sampler supports: a parameter that would have to be ignored is refused by name. Errors
have the API's shape, `{"error": {"message", "type", "param", "code"}}`, those of the guard before it included.
https://platform.openai.com/docs/api-reference
"""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Literal

import numpy as np
from fastapi import FastAPI, Request as Http
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict, Field

from synth.types import Message, Sampling, seed_for
from tasks.core import local
from tasks.serving.refusal import Refused, error, refusals
from tasks.serving.conversations import Conversations, Piece, Request, Token, scored
from training.decode import ServedDecoder

MOST = 256  # most answers that wait or are in progress
MOST_PROMPT_LOGPROBS = 1024  # likeliest tokens of a place of a prompt
_BODY = 4 << 20  # bytes


class Options(BaseModel):
    model_config = ConfigDict(extra="forbid")
    include_usage: bool = False
    include_obfuscation: bool = False


class Text(BaseModel):
    model_config = ConfigDict(extra="forbid")
    type: Literal["text"] = "text"


class Part(Text):
    text: str


class Turn(BaseModel):
    model_config = ConfigDict(extra="forbid")
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[Part]
    name: str | None = None

    def message(self) -> Message:
        text = self.content if isinstance(self.content, str) else "".join(p.text for p in self.content)
        return Message(role="system" if self.role == "developer" else self.role, content=text)


class Common(BaseModel):
    """Parameters of both endpoints. `top_k` and `min_p` are not OpenAI's, but vLLM's."""

    model_config = ConfigDict(extra="forbid")
    model: str = ""
    temperature: float = Field(1.0, ge=0, le=100)
    top_p: float = Field(1.0, gt=0, le=1)
    top_k: int = Field(0, ge=0)
    min_p: float = Field(0.0, ge=0, le=1)
    max_tokens: int | None = Field(None, ge=1)
    n: int = Field(1, ge=1, le=32)
    stop: str | list[str] | None = None
    seed: int | None = None
    stream: bool = False
    stream_options: Options | None = None
    user: str | None = None
    frequency_penalty: Literal[0] | None = None
    presence_penalty: Literal[0] | None = None
    logit_bias: dict[str, Literal[0]] | None = None

    def stops(self) -> tuple[str, ...]:
        strings = (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())
        if len(strings) > 16 or not all(strings):
            raise Refused("stop takes up to 16 texts, none of them empty", param="stop")
        return strings

    def sampling(self) -> Sampling:
        return Sampling(temperature=self.temperature, top_p=self.top_p, top_k=self.top_k, min_p=self.min_p)


class ChatBody(Common):
    messages: list[Turn] = Field(min_length=1)
    max_completion_tokens: int | None = Field(None, ge=1)
    logprobs: bool = False
    top_logprobs: int | None = Field(None, ge=0, le=20)
    response_format: Text | None = None


class Completion(Common):
    prompt: str | list[str] | list[int] | list[list[int]]
    logprobs: int | None = Field(None, ge=0, le=20)
    echo: bool = False
    prompt_logprobs: int | None = Field(None, ge=0, le=MOST_PROMPT_LOGPROBS)  # vLLM's, as a teacher is asked
    max_tokens: int | None = Field(16, ge=0)
    best_of: int | None = None
    suffix: None = None


class Served:
    """A model and its facts. name: its name in requests; context: most tokens of a prompt and its answer; decoding: the
    decoder that is the sampler of the conversations, None for plain answers; generation: how turns are written, "" one
    token after another."""

    def __init__(
        self,
        conversations: Conversations,
        *,
        name: str,
        context: int,
        decoding: ServedDecoder | None = None,
        generation: str = "",
    ) -> None:
        self.decoding, self.generation = decoding, generation
        self.conversations, self.name, self.context = conversations, name, context
        self.renderer = conversations.renderer
        self.begun = int(time.time())

    def knows(self, model: str) -> None:
        if model and model != self.name:
            raise Refused(
                f"the model {model!r} is not served here, {self.name!r} is",
                status=404,
                param="model",
                code="model_not_found",
            )

    def room(self, prompt: np.ndarray, wanted: int | None) -> int:
        """The tokens that an answer may have. Raises Refused if prompt and answer do not fit."""
        if not len(prompt):
            raise Refused("the prompt has no tokens", param="prompt")
        left = self.context - len(prompt)
        if (wanted or 1) > left:
            raise Refused(
                f"the prompt has {len(prompt)} tokens and max_tokens is {wanted or 1}: together they are more than the {self.context} "
                "of this model's context",
                code="context_length_exceeded",
            )
        return left if wanted is None else wanted

    def ids(self, prompt: str | Sequence[int]) -> np.ndarray:
        if isinstance(prompt, str):
            return np.asarray(self.renderer.tokenizer(prompt)["input_ids"], dtype=np.int64)
        most = len(self.renderer.tokenizer)
        if wrong := next((i for i in prompt if not 0 <= i < most), None):
            raise Refused(f"the prompt has the id {wrong}, and this tokenizer knows 0 to {most - 1}", param="prompt")
        return np.asarray(prompt, dtype=np.int64)

    def text(self, token: int) -> str:
        return str(self.renderer.tokenizer.decode([token]))

    def decodes(self, prompts: Sequence[np.ndarray], body: Common, top: int | None) -> None:
        """Raises Refused for what does not go with the decoder, or with how turns are written."""
        if self.generation and top is not None:
            raise Refused(
                f"logprobs are those of tokens drawn one after another, and this model writes its turns by {self.generation}: leave "
                "them out",
                param="logprobs",
            )
        if (by := self.decoding) is None:
            return
        if top is not None:
            raise Refused(
                f"logprobs are those of one plain draw, and here the decoder {by.name} makes or chooses the answers: "
                "leave them out, or serve the model without --decoder",
                param="logprobs",
            )
        own = by.temperature
        if own is not None and "temperature" in body.model_fields_set and body.temperature != own:
            raise Refused(
                f"the decoder {by.name} draws at temperature {own:g}: leave temperature out, or say {own:g}",
                param="temperature",
            )
        if by.budget and (longest := max(map(len, prompts))) >= by.budget:
            raise Refused(
                f"a budget of {by.budget} forward tokens has no room for an answer: the prompt alone has {longest}; "
                f"shorten it, or serve with --budget {longest + 1} or more",
                code="context_length_exceeded",
            )

    def start(
        self, prompts: Sequence[np.ndarray], body: Common, limits: Sequence[int], top: int | None
    ) -> tuple[list[Request], list[asyncio.Queue[Piece]]]:
        """Starts `n` answers to each prompt. Raises Refused if there are too many, and for what the decoder cannot do."""
        self.decodes(prompts, body, top)
        if self.conversations.busy + len(prompts) * body.n > MOST:
            raise Refused(f"more than {MOST} answers are asked for at a time: ask again later", status=429, code="busy")
        try:
            sampling = body.sampling()
        except ValueError as e:
            raise Refused(str(e)) from e
        loop, stops = asyncio.get_running_loop(), body.stops()
        seed = secrets.randbits(63) if body.seed is None else body.seed
        requests, queues = [], []
        for prompt, limit in zip(prompts, limits, strict=True):
            for k in range(body.n):
                queue: asyncio.Queue[Piece] = asyncio.Queue()
                requests.append(
                    Request(
                        prompt=prompt,
                        sampling=sampling,
                        seed=seed_for(seed, "serve", k),
                        max_tokens=limit,
                        hear=_to(loop, queue),
                        stop=stops,
                        top=top,
                    )
                )
                queues.append(queue)
        self.conversations.ask(requests)
        return requests, queues


def _to(loop: asyncio.AbstractEventLoop, queue: asyncio.Queue[Piece]) -> Callable[[Piece], None]:
    def hear(piece: Piece) -> None:
        loop.call_soon_threadsafe(queue.put_nowait, piece)

    return hear


async def _pieces(
    http: Http, requests: Sequence[Request], queues: Sequence[asyncio.Queue[Piece]]
) -> AsyncIterator[tuple[int, Piece]]:
    """(index of an answer, its new piece) until all are finished; sampling stops for a client that has left."""
    merged: asyncio.Queue[tuple[int, Piece]] = asyncio.Queue()

    async def forward(i: int, queue: asyncio.Queue[Piece]) -> None:
        while True:
            piece = await queue.get()
            merged.put_nowait((i, piece))
            if piece.over or piece.error:
                return

    tasks = [asyncio.create_task(forward(i, q)) for i, q in enumerate(queues)]
    left = len(queues)
    try:
        while left:
            try:
                i, piece = await asyncio.wait_for(merged.get(), 0.5)
            except TimeoutError:
                if await http.is_disconnected():
                    return
                continue
            left -= bool(piece.over or piece.error)
            yield i, piece
    finally:
        for request in requests:
            request.cancelled = True
        for task in tasks:
            task.cancel()


async def _whole(
    http: Http, requests: Sequence[Request], queues: Sequence[asyncio.Queue[Piece]]
) -> list[tuple[str, list[Token], Piece]]:
    """(text, tokens, last piece) of every answer. Raises Refused if one failed."""
    out: list[Any] = [("", [], Piece()) for _ in requests]
    async for i, piece in _pieces(http, requests, queues):
        if piece.error:
            raise Refused(piece.error) if piece.refused else Refused(_failed(piece), status=500)
        text, tokens, _ = out[i]
        out[i] = (text + piece.text, [*tokens, *piece.tokens], piece)
    return out


def _failed(piece: Piece) -> str:
    return f"the model could not answer: {piece.error}"


def _usage(prompts: int, last: Sequence[Piece]) -> dict[str, Any]:
    """Tokens of the prompts and of the answers, of which `last` are the last pieces; where a decoder answers, also the
    forward tokens of each model, of all answers together."""
    completion = sum(p.count for p in last)
    usage: dict[str, Any] = {
        "prompt_tokens": prompts,
        "completion_tokens": completion,
        "total_tokens": prompts + completion,
    }
    accounts = [p.forward_tokens for p in last if p.forward_tokens is not None]
    if accounts:
        usage["forward_tokens"] = {
            m: sum(a.get(m, 0) for a in accounts) for m in dict.fromkeys(m for a in accounts for m in a)
        }
    return usage


def _events(events: AsyncIterator[dict[str, Any]]) -> StreamingResponse:
    async def lines() -> AsyncIterator[str]:
        async for event in events:
            yield f"data: {json.dumps(event, ensure_ascii=False)}\n\n"
        yield "data: [DONE]\n\n"

    return StreamingResponse(lines(), media_type="text/event-stream", headers={"cache-control": "no-store"})


def application(served: Served) -> FastAPI:
    """The endpoints, without a guard."""
    app = FastAPI(title="espalier serve", docs_url=None, redoc_url=None, openapi_url=None)
    about = {"id": served.name, "object": "model", "created": served.begun, "owned_by": "espalier"}
    model = {**about, "max_model_len": served.context}

    @app.get("/health")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    @app.get("/v1/models")
    async def models() -> dict[str, Any]:
        return {"object": "list", "data": [model]}

    @app.get("/v1/models/{name:path}")
    async def one(name: str) -> dict[str, Any]:
        served.knows(name)
        return model

    @app.post("/v1/chat/completions", response_model=None)
    async def chat(body: ChatBody, http: Http) -> Any:
        return await _chat(served, body, http)

    @app.post("/v1/completions", response_model=None)
    async def completions(body: Completion, http: Http) -> Any:
        return await _completions(served, body, http)

    refusals(app, "there are /v1/models, /v1/chat/completions and /v1/completions here")
    return app


# --- /v1/chat/completions


async def _chat(served: Served, body: ChatBody, http: Http) -> Any:
    served.knows(body.model)
    if body.top_logprobs is not None and not body.logprobs:
        raise Refused("top_logprobs needs logprobs: true", param="top_logprobs")
    try:
        prompt = served.renderer.prompt([t.message() for t in body.messages])
    except Exception as e:  # templates may raise anything
        raise Refused(f"the chat template cannot write these messages: {e}", param="messages") from e
    limit = served.room(prompt, body.max_completion_tokens or body.max_tokens)
    top = (body.top_logprobs or 0) if body.logprobs else None
    requests, queues = served.start([prompt], body, [limit], top)
    if body.stream:
        return _events(_chat_events(served, body, len(prompt), _pieces(http, requests, queues)))
    answers = await _whole(http, requests, queues)
    choices = [
        {
            "index": i,
            "message": {"role": "assistant", "content": text, "refusal": None},
            "logprobs": _chat_logprobs(served, tokens) if body.logprobs else None,
            "finish_reason": last.over,
        }
        for i, (text, tokens, last) in enumerate(answers)
    ]
    usage = _usage(len(prompt), [last for _, _, last in answers])
    return {**_head(served, "chat.completion", "chatcmpl"), "choices": choices, "usage": usage}


async def _chat_events(
    served: Served, body: ChatBody, prompt: int, pieces: AsyncIterator[tuple[int, Piece]]
) -> AsyncIterator[dict[str, Any]]:
    """A streamed answer to a prompt of this many tokens."""
    begin, last = _head(served, "chat.completion.chunk", "chatcmpl"), [Piece()] * body.n
    for i in range(body.n):
        delta = {"role": "assistant", "content": ""}
        yield {**begin, "choices": [{"index": i, "delta": delta, "logprobs": None, "finish_reason": None}]}
    async for i, piece in pieces:
        if piece.error:
            yield (
                error(piece.error, "invalid_request_error") if piece.refused else error(_failed(piece), "server_error")
            )
            return
        last[i] = piece
        logprobs = _chat_logprobs(served, piece.tokens) if body.logprobs else None
        delta = {"content": piece.text} if piece.text else {}
        if piece.text or piece.tokens or piece.over:
            choice = {"index": i, "delta": delta, "logprobs": logprobs, "finish_reason": piece.over}
            yield {**begin, "choices": [choice]}
    if body.stream_options and body.stream_options.include_usage:
        yield {**begin, "choices": [], "usage": _usage(prompt, last)}


def _chat_logprobs(served: Served, tokens: Sequence[Token]) -> dict[str, Any]:
    def entry(i: int, logp: float | None) -> dict[str, Any]:
        text = served.text(i)
        return {"token": text, "logprob": logp, "bytes": list(text.encode())}

    return {
        "content": [{**entry(t.id, t.logp), "top_logprobs": [entry(*x) for x in t.top]} for t in tokens],
        "refusal": None,
    }


# --- /v1/completions


async def _completions(served: Served, body: Completion, http: Http) -> Any:
    served.knows(body.model)
    prompts, limits = _prompts(served, body)
    if body.max_tokens == 0:
        answers = [("", [], Piece(over="length")) for _ in range(len(prompts) * body.n)]
    else:
        requests, queues = served.start(prompts, body, limits, body.logprobs)
        if body.stream:
            return _events(_completion_events(served, body, prompts, _pieces(http, requests, queues)))
        answers = await _whole(http, requests, queues)
    model, choices, read = served.conversations.sampler.model, [], []
    if body.prompt_logprobs is not None:
        read = [await asyncio.to_thread(scored, model, prompt, 0, body.prompt_logprobs) for prompt in prompts]
    for i, (text, tokens, last) in enumerate(answers):
        prompt = prompts[i // body.n]
        if body.echo:
            text = str(served.renderer.tokenizer.decode(prompt.tolist())) + text
            if body.logprobs is not None:
                known = await asyncio.to_thread(scored, model, prompt, 0, body.logprobs)
                tokens = [*known, *tokens]
        detail = None if body.logprobs is None else _logprobs(served, tokens)
        choice = {"index": i, "text": text, "logprobs": detail, "finish_reason": last.over}
        if read:
            choice["prompt_logprobs"] = _prompt_logprobs(served, read[i // body.n])
        choices.append(choice)
    usage = _usage(sum(map(len, prompts)), [last for _, _, last in answers])
    return {**_head(served, "text_completion", "cmpl"), "choices": choices, "usage": usage}


def _prompts(served: Served, body: Completion) -> tuple[list[np.ndarray], list[int]]:
    """The ids of every prompt, and how many tokens may follow each. Raises Refused for what is not supported."""
    given = body.prompt
    several = isinstance(given, list) and (not given or not isinstance(given[0], int))
    texts: list[Any] = list(given) if several and isinstance(given, list) else [given]
    if not texts or len(texts) > 128:
        raise Refused("prompt takes 1 to 128 prompts", param="prompt")
    if body.best_of not in (None, body.n):
        raise Refused("best_of is not offered: ask for n answers and choose", param="best_of")
    for name, wanted in (("echo", body.echo), ("prompt_logprobs", body.prompt_logprobs is not None)):
        if body.stream and wanted:
            raise Refused(f"{name} is not streamed: set stream to false", param=name)
    if served.generation and body.prompt_logprobs is not None:
        raise Refused(
            f"prompt_logprobs are those of tokens that are written one after another, and this model writes its turns by "
            f"{served.generation}: leave them out",
            param="prompt_logprobs",
        )
    prompts = [served.ids(t) for t in texts]
    none = body.max_tokens == 0
    if none and not body.echo:
        raise Refused("max_tokens is 0, which makes sense with echo alone", param="max_tokens")
    limits = [0 if none else served.room(p, body.max_tokens) for p in prompts]
    if any(not len(p) or len(p) > served.context for p in prompts):
        raise Refused(f"a prompt has 1 to {served.context} tokens", param="prompt", code="context_length_exceeded")
    return prompts, limits


async def _completion_events(
    served: Served, body: Completion, prompts: Sequence[np.ndarray], pieces: AsyncIterator[tuple[int, Piece]]
) -> AsyncIterator[dict[str, Any]]:
    begin, last = _head(served, "text_completion", "cmpl"), [Piece()] * (len(prompts) * body.n)
    async for i, piece in pieces:
        if piece.error:
            yield (
                error(piece.error, "invalid_request_error") if piece.refused else error(_failed(piece), "server_error")
            )
            return
        last[i] = piece
        if piece.text or piece.tokens or piece.over:
            detail = None if body.logprobs is None else _logprobs(served, piece.tokens)
            choice = {"index": i, "text": piece.text, "logprobs": detail, "finish_reason": piece.over}
            yield {**begin, "choices": [choice]}
    if body.stream_options and body.stream_options.include_usage:
        yield {**begin, "choices": [], "usage": _usage(sum(map(len, prompts)), last)}


def _logprobs(served: Served, tokens: Sequence[Token]) -> dict[str, Any]:
    texts = [served.text(t.id) for t in tokens]
    return {
        "tokens": texts,
        "token_logprobs": [t.logp for t in tokens],
        "top_logprobs": [{served.text(i): v for i, v in t.top} if t.logp is not None else None for t in tokens],
        "text_offset": [sum(map(len, texts[:i])) for i in range(len(texts))],
    }


def _prompt_logprobs(served: Served, tokens: Sequence[Token]) -> list[dict[str, dict[str, Any]] | None]:
    """vLLM's format: for each token of the prompt, given those before it, the likeliest ids and the token itself; null at the first."""

    def told(token: Token) -> dict[str, dict[str, Any]]:
        each = [(token.id, token.logp, None), *((i, x, rank) for rank, (i, x) in enumerate(token.top, 1))]
        return {str(i): {"logprob": x, "rank": rank, "decoded_token": served.text(i)} for i, x, rank in each}

    return [None if t.logp is None else told(t) for t in tokens]


def _head(served: Served, kind: str, prefix: str) -> dict[str, Any]:
    begun = int(time.time())
    return {"id": f"{prefix}-{secrets.token_hex(12)}", "object": kind, "created": begun, "model": served.name}


# --- the guard before it


def told(status: int, why: str) -> tuple[bytes, bytes]:
    """A refusal of the guard, in the format of the API."""
    if status == 401:
        why = "send the key that `espalier serve` printed, as `Authorization: Bearer KEY`"
    code = "invalid_api_key" if status == 401 else None
    return b"application/json", json.dumps(error(why, "invalid_request_error", None, code)).encode()


def guarded(served: Served, key: str) -> local.Asgi:
    """The endpoints, for clients on this machine that know the key."""
    return local.Guard(application(served), token=key, max_body=_BODY, told=told)  # type: ignore[arg-type]
