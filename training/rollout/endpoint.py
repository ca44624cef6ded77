"""A model behind an OpenAI-compatible endpoint (`vllm serve`, or any other) as a source of text: with a cache, a
budget, and an estimate before any request.

    POST {url}/chat/completions  {"model", "messages", "temperature", "top_p", "max_tokens", "stop", "seed"}
    -> {"choices": [{"message": {"content"}, "finish_reason"}], "usage": {"prompt_tokens", "completion_tokens"}}
    POST {url}/completions  {"model", "prompt": [ids], "max_tokens": 1, "prompt_logprobs": k}, of a teacher (vLLM)
    -> {"choices": [{"prompt_logprobs": [null, {id: {"logprob"}}, ...]}]}

Answers are kept in a SQLite file under the hash of everything that they depend on (endpoint, model, messages,
sampling), so a run that died or is repeated pays for nothing twice. 429, 5xx and lost connections are retried with
doubling waits (or as `Retry-After` says). The key is sent in the header and never appears in a message, cache or error;
it goes to this endpoint only: redirects are not followed. A reply is untrusted: its size, time, nesting and numbers are
limited, and an impossible usage is replaced by an estimate, so that a budget holds.
"""

from __future__ import annotations

import json
import re
import sqlite3
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from synth.types import Message, Sampling, digest

CHARS_PER_TOKEN = 3.5  # characters of English per token, a cautious value; used for estimates only
MOST_BYTES = 8_000_000  # of one answer
MOST_TOKENS = 10_000_000  # the most tokens of one request: a larger usage is a mistake
_LATER = {
    "min_p",
    "stop_ids",
    "choices",
}  # knobs that older caches do not have: not part of the hash unless they are set
_AGAIN = {408, 409, 425, 429, 500, 502, 503, 504}


class BudgetSpent(ValueError):
    """The next request could exceed the budget; earlier answers are in the cache."""


@dataclass(frozen=True, kw_only=True)
class Prices:
    """Per million tokens, in any currency. None: unknown, and then every cost is unknown."""

    prompt: float | None = None
    completion: float | None = None

    def cost(self, prompt: int, completion: int) -> float | None:
        """The cost of this many tokens."""
        if self.prompt is None or self.completion is None:
            return None
        return (prompt * self.prompt + completion * self.completion) / 1e6


@dataclass(frozen=True, kw_only=True)
class Budget:
    """The most that may be used, not counting cached answers; None: no limit. A limit on cost needs prices."""

    tokens: int | None = None
    cost: float | None = None
    requests: int | None = None


@dataclass(kw_only=True)
class Usage:
    """What was used. cached: answered from the file; failed: requests that were retried or given up."""

    requests: int = 0
    cached: int = 0
    failed: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """An estimate before any request: requests to be made, answers in the cache, tokens (completions at their limit),
    cost (None: no prices)."""

    requests: int
    cached: int
    prompt_tokens: int
    completion_tokens: int
    cost: float | None


@dataclass(kw_only=True)
class Endpoint:
    """A `synth.types.Generate`. Raises ValueError if the URL is invalid, a limit on cost has no prices, or the endpoint
    refuses or does not follow the protocol, and BudgetSpent.

    url       up to and including /v1
    model     the model's name at the endpoint
    key       sent as a bearer token, if not empty
    cache     SQLite file, created if it is missing
    workers   concurrent requests
    retries   of one request; `wait` sleeps between them
    """

    url: str
    model: str
    cache: Path
    key: str = field(default="", repr=False)
    prices: Prices = Prices()
    budget: Budget = Budget()
    workers: int = 8
    timeout: float = 120.0
    retries: int = 5
    wait: Callable[[float], None] = time.sleep
    usage: Usage = field(default_factory=Usage)

    def __post_init__(self) -> None:
        try:
            url = httpx.URL(self.url)
        except httpx.InvalidURL:
            url = httpx.URL("")
        if url.userinfo:
            raise ValueError(
                "the endpoint's URL holds a name or a password: give the key as the key, and the URL without"
            )
        if url.scheme not in ("http", "https") or not url.host or (url.port or 0) > 65535 or re.search(r"\s", self.url):
            raise ValueError(f"the endpoint {self.url!r} is no URL: write e.g. http://127.0.0.1:8000/v1")
        if not re.fullmatch(r"[!-~]*", self.key):
            raise ValueError("the key of the endpoint has signs that no key has (a space, a line's end, an accent?)")
        if self.budget.cost is not None and self.prices.cost(0, 0) is None:
            raise ValueError(
                "a budget in money needs the prices of a million prompt and completion tokens: state both, or limit tokens instead"
            )
        self.cache.parent.mkdir(parents=True, exist_ok=True)
        self._answers = sqlite3.connect(
            self.cache, check_same_thread=False
        )  # one at a time asks, but not always the one who made it
        self._answers.execute(
            "CREATE TABLE IF NOT EXISTS answer (key TEXT PRIMARY KEY, text TEXT, finish TEXT, prompt INTEGER, completion INTEGER)"
        )

    def __call__(self, conversations: Sequence[Sequence[Message]], sampling: Sampling) -> list[str]:
        """One completion for each conversation, in their order; equal conversations are requested once."""
        keys = [self._key(c, sampling) for c in conversations]
        missing = {k: c for k, c in zip(keys, conversations, strict=True) if self._known(k) is None}
        self.usage.cached += len(set(keys)) - len(missing)
        waiting = iter(missing.items())
        with self._client() as client, ThreadPoolExecutor(self.workers) as pool:
            running: dict[Any, str] = {}
            try:
                while True:
                    while len(running) < self.workers and (item := next(waiting, None)) is not None:
                        self._afford([c for k, c in missing.items() if k in running.values()] + [item[1]], sampling)
                        running[pool.submit(self._ask, client, item[1], sampling)] = item[0]
                    if not running:
                        break
                    done = next(as_completed(running))
                    self._keep(running.pop(done), done.result())
            finally:
                for done in [f for f in running if f.cancel() or not f.exception()]:  # keep what was paid for
                    if not done.cancelled():
                        self._keep(running[done], done.result())
        return [str(self._known(k)) for k in keys]

    def top_logprobs(self, rows: Sequence[np.ndarray], k: int) -> list[tuple[np.ndarray, np.ndarray]]:
        """For each row of ids [n] the k most likely ids [n, k] of each token, given those before it, and their
        log-probs [n, k] float32, as vLLM returns them (`prompt_logprobs`, at temperature 1). At the first token, which
        has no history, they are 0 and -inf. Kept in the cache; each row counts as one request. Raises ValueError and
        BudgetSpent."""
        token_rows = [[int(i) for i in row] for row in rows]
        keys = [digest(self.url, self.model, "prompt_logprobs", k, ids) for ids in token_rows]
        missing = {key: ids for key, ids in zip(keys, token_rows, strict=True) if self._known(key) is None}
        self.usage.cached += len(set(keys)) - len(missing)
        self._afford_prompts(missing.values())

        def ask(client: httpx.Client, ids: list[int]) -> tuple[str, str, int, int, int]:
            body = {"model": self.model, "prompt": ids, "max_tokens": 1, "temperature": 0.0, "prompt_logprobs": k}
            data, tried = self._answered(client, "completions", body)
            ids_of, logp = _top(data, self.url, len(ids), k)
            return json.dumps([ids_of[1:].tolist(), logp[1:].tolist()]), "stop", len(ids), 1, tried

        with self._client() as client, ThreadPoolExecutor(self.workers) as pool:
            running = {pool.submit(ask, client, ids): key for key, ids in missing.items()}
            try:
                for done in as_completed(running):
                    self._keep(running.pop(done), done.result())
            finally:
                for done in [f for f in running if f.cancel() or not f.exception()]:
                    if not done.cancelled():
                        self._keep(running[done], done.result())
        out = []
        for key in keys:
            ids, logp = json.loads(str(self._known(key)))
            first = np.zeros((1, k)), np.full((1, k), -np.inf)
            out.append(
                (
                    np.concatenate([first[0], np.reshape(ids, (-1, k))]).astype(np.int64),
                    np.concatenate([first[1], np.reshape(logp, (-1, k))]).astype(np.float32),
                )
            )
        return out

    def _afford_prompts(self, prompts: Collection[Sequence[int]]) -> None:
        """Raises BudgetSpent if reading these prompts could exceed a limit."""
        prompt, completion = sum(map(len, prompts)), len(prompts)
        self._check(self.usage.prompt_tokens + prompt, self.usage.completion_tokens + completion, completion)

    def estimate(self, conversations: Sequence[Sequence[Message]], sampling: Sampling) -> Estimate:
        """An upper bound of the usage of these requests."""
        missing = {k: c for c in conversations if self._known(k := self._key(c, sampling)) is None}
        prompt, completion = sum(map(_tokens, missing.values())), len(missing) * sampling.max_tokens
        cost = self.prices.cost(prompt, completion)
        cached = len({self._key(c, sampling) for c in conversations}) - len(missing)
        return Estimate(
            requests=len(missing), cached=cached, prompt_tokens=prompt, completion_tokens=completion, cost=cost
        )

    @property
    def spent(self) -> float | None:
        """The cost of the requests so far; None without prices."""
        return self.prices.cost(self.usage.prompt_tokens, self.usage.completion_tokens)

    # ----

    def _key(self, conversation: Sequence[Message], sampling: Sampling) -> str:
        drawn = {k: v for k, v in asdict(sampling).items() if v or k not in _LATER}
        return digest(self.url, self.model, [[m.role, m.content] for m in conversation], drawn)

    def _known(self, key: str) -> str | None:
        row = self._answers.execute("SELECT text FROM answer WHERE key = ?", (key,)).fetchone()
        return None if row is None else row[0]

    def _keep(self, key: str, answer: tuple[str, str, int, int, int]) -> None:
        text, finish, prompt, completion, failed = answer
        with self._answers:
            self._answers.execute(
                "INSERT OR REPLACE INTO answer VALUES (?, ?, ?, ?, ?)", (key, text, finish, prompt, completion)
            )
        self.usage.requests += 1
        self.usage.failed += failed
        self.usage.prompt_tokens += prompt
        self.usage.completion_tokens += completion

    def _afford(self, conversations: Sequence[Sequence[Message]], sampling: Sampling) -> None:
        """Raises BudgetSpent if the running requests and the next one could exceed a limit."""
        prompt = self.usage.prompt_tokens + sum(map(_tokens, conversations))
        completion = self.usage.completion_tokens + len(conversations) * sampling.max_tokens
        self._check(prompt, completion, len(conversations))

    def _check(self, prompt: int, completion: int, requests: int) -> None:
        """Raises BudgetSpent if this total of tokens, and these further requests, exceed a limit."""
        after = {
            "tokens": prompt + completion,
            "cost": self.prices.cost(prompt, completion),
            "requests": self.usage.requests + requests,
        }
        for name, limit in asdict(self.budget).items():
            if limit is not None and after[name] > limit:
                raise BudgetSpent(
                    f"the budget of {limit:g} {name} could be passed by the next request ({self.usage.requests} were made): what was answered "
                    f"is kept in {self.cache}, so raise it and run again"
                )

    def _client(self) -> httpx.Client:
        headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
        if self.key:
            headers["Authorization"] = f"Bearer {self.key}"
        limits = httpx.Limits(max_connections=self.workers)
        return httpx.Client(headers=headers, timeout=self.timeout, limits=limits, follow_redirects=False)

    def _ask(
        self, client: httpx.Client, conversation: Sequence[Message], sampling: Sampling
    ) -> tuple[str, str, int, int, int]:
        """(text, finish reason, prompt tokens, completion tokens, failed tries) of one request."""
        body: dict[str, Any] = {
            "model": self.model,
            "messages": [{"role": m.role, "content": m.content} for m in conversation],
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "max_tokens": sampling.max_tokens,
            "seed": sampling.seed,
        }
        if (
            conversation[-1].role == "assistant"
        ):  # the last message is to be continued, which vLLM and SGLang support; another endpoint refuses the request
            body |= {"continue_final_message": True, "add_generation_prompt": False}
        if sampling.stop:
            body["stop"] = list(sampling.stop)
        if sampling.top_k:
            body["top_k"] = sampling.top_k
        if sampling.min_p:
            body["min_p"] = sampling.min_p
        if sampling.stop_ids:
            body["stop_token_ids"] = list(sampling.stop_ids)
        if sampling.choices:
            body["structured_outputs"] = {"choice": list(sampling.choices)}
        data, tried = self._answered(client, "chat/completions", body)
        return (*_read(data, self.url, conversation), tried)

    def _answered(self, client: httpx.Client, path: str, body: dict[str, Any]) -> tuple[bytes, int]:
        """The body of the answer to one request, and the number of failed tries before it. Raises ValueError."""
        url = f"{self.url.rstrip('/')}/{path}"
        for tried in range(self.retries + 1):
            pause = 0.5 * 2**tried
            try:
                status, headers, data = self._post(client, url, body)
            except httpx.DecodingError as error:
                raise _foreign(self.url, error) from error
            except httpx.HTTPError as error:
                why = f"cannot be reached ({_shown(str(error) or type(error).__name__)})"
            else:
                if status == 200:
                    return data, tried
                shown = _shown(data[:500].decode("utf-8", "replace"))
                if 300 <= status < 400:
                    place = _shown(headers.get("location", "nowhere"))
                    raise ValueError(
                        f"{self.url} redirects to {place}, and the key goes to no other: name that address"
                    )
                if status not in _AGAIN:
                    raise ValueError(f"{self.url} refuses the request ({status}: {shown}): fix model, key or URL")
                after = headers.get("retry-after", "")
                pause = min(60.0, float(after)) if re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", after) else pause
                why = f"answers {status}"
            if tried < self.retries:
                self.wait(pause)
        raise ValueError(
            f"{self.url} {why} after {self.retries + 1} tries: start it, or fix the URL; what was answered is kept in {self.cache}"
        )

    def _post(self, client: httpx.Client, url: str, body: dict[str, Any]) -> tuple[int, httpx.Headers, bytes]:
        """(status, headers, body) of one reply. Raises httpx.HTTPError; a longer body is cut after MOST_BYTES."""
        until = time.monotonic() + self.timeout
        data = bytearray()
        with client.stream("POST", url, json=body) as response:
            for part in response.iter_bytes():
                data += part
                if time.monotonic() > until:
                    raise httpx.ReadTimeout(f"the reply is not whole after {self.timeout:g} seconds")
                if len(data) > MOST_BYTES:
                    break
        return response.status_code, response.headers, bytes(data)


def _tokens(conversation: Sequence[Message]) -> int:
    return int(sum(len(m.content) for m in conversation) / CHARS_PER_TOKEN) + 8 * len(conversation)


def _shown(text: str) -> str:
    """The other side's text for one line of our error: short, and without characters that control a terminal."""
    line = " ".join(text[:1000].split())
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in line)[:300]


def _foreign(url: str, error: Exception) -> ValueError:
    why = _shown(f"{type(error).__name__}: {error}")
    return ValueError(
        f"{url} does not speak the chat-completions protocol ({why}): is it an OpenAI-compatible endpoint?"
    )


def _read(data: bytes, url: str, conversation: Sequence[Message]) -> tuple[str, str, int, int]:
    """(text, finish reason, prompt tokens, completion tokens). Raises ValueError for an answer that does not follow the
    protocol."""
    try:
        if len(data) > MOST_BYTES:
            raise ValueError(f"more than {MOST_BYTES} bytes")
        value = json.loads(data)
        choice, usage = value["choices"][0], value.get("usage")
        text = choice["message"]["content"]
        if not isinstance(text, str):
            raise TypeError("the content is no text")
        finish = str(choice.get("finish_reason"))[:100]
    except (KeyError, IndexError, TypeError, AttributeError, ValueError, RecursionError) as error:
        raise _foreign(url, error) from error
    text, finish = (x.encode("utf-16", "surrogatepass").decode("utf-16", "replace") for x in (text, finish))
    usage = usage if isinstance(usage, dict) else {}
    prompt = _count(usage.get("prompt_tokens"), _tokens(conversation))
    completion = _count(usage.get("completion_tokens"), int(len(text) / CHARS_PER_TOKEN) + 1)
    return text, finish, prompt, completion


def _top(data: bytes, url: str, n: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The k most likely ids [n, k] of a prompt of n tokens, most likely first, and their log-probs; 0 and -inf at the
    first token. Raises ValueError for an answer that does not follow the protocol, and if it has fewer ids."""
    ids, logp = np.zeros((n, k), dtype=np.int64), np.full((n, k), -np.inf, dtype=np.float32)
    try:
        if len(data) > MOST_BYTES:
            raise ValueError(f"more than {MOST_BYTES} bytes")
        told = json.loads(data)["choices"][0]["prompt_logprobs"]
        if len(told) != n:
            raise ValueError(f"log-probs of {len(told)} tokens for a prompt of {n}")
        for t, each in enumerate(told[1:], start=1):
            best = sorted(((float(x["logprob"]), -int(i)) for i, x in each.items()), reverse=True)[:k]
            if len(best) < k or not all(-1e9 < x <= 1e-6 for x, _ in best):
                raise ValueError(f"{len(best)} log-probs of a token, asked for {k}")
            logp[t], ids[t] = [x for x, _ in best], [-i for _, i in best]
    except (KeyError, IndexError, TypeError, AttributeError, ValueError, RecursionError, OverflowError) as error:
        why = _shown(f"{type(error).__name__}: {error}")
        raise ValueError(
            f"{url} does not tell the log-probs of a prompt ({why}): serve the teacher with vLLM, `vllm serve MODEL "
            f"--max-logprobs {k}`, or name the model's folder as the teacher"
        ) from error
    return ids, np.minimum(logp, 0.0)


def _count(told: object, estimate: int) -> int:
    """The endpoint's token count, or the estimate if the count is missing or impossible."""
    return told if type(told) is int and 0 < told <= MOST_TOKENS else estimate
