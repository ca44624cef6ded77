"""Active requests: one thread samples a few tokens of each in turn, so that no request waits for another to finish.

Requests with the same settings that wait at the same time are sampled together. The answer depends only on the prompt,
the settings and the seed, except for rounding (a matrix product of another size may differ in the last bit).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import torch

from synth.types import Sampling
from tasks.core.errors import UserError
from training.model.attention import PackedRows
from training.model.model import head_weight, hidden_states
from training.model.render import Renderer
from training.rollout.play import Sampler

CHUNK = 16  # tokens that a request samples before the next request's turn
_ROWS = 64  # of log-probs in one product
_HALF = "\ufffd"  # the decoding of bytes that are not a whole character

Reason = Literal["stop", "length"]


@dataclass(frozen=True, kw_only=True)
class Token:
    """An id, its log-prob at temperature 1 (None for the first of a prompt), and the most likely tokens at its
    position."""

    id: int
    logp: float | None
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Piece:
    """A new piece of an answer: text, its tokens if log-probs were requested, and the number of tokens so far; `over`
    says why the answer ended, `error` what failed (`refused`: because of the request). A decoder's last piece has its
    forward tokens by model."""

    text: str = ""
    tokens: tuple[Token, ...] = ()
    count: int = 0
    over: Reason | None = None
    error: str = ""
    refused: bool = False
    forward_tokens: Mapping[str, int] | None = None


@dataclass
class Request:
    """One answer to be sampled.

    max_tokens  at most, of this answer        stop   texts that end it and are not part of it
    top         None: no log-probs; 0 or more: those of each token and of so many likeliest ones
    hear        is called with every piece, from another thread
    """

    prompt: np.ndarray
    sampling: Sampling
    seed: int
    max_tokens: int
    hear: Callable[[Piece], None]
    stop: tuple[str, ...] = ()
    top: int | None = None
    cancelled: bool = False
    ids: list[int] = field(default_factory=list)


class Writer:
    """Ids -> the text that can be sent already. An incomplete character, and a possible beginning of a stop text, are
    held back."""

    def __init__(self, renderer: Renderer, stop: Sequence[str]) -> None:
        self.renderer, self.stop = renderer, tuple(stop)
        self.said = 0  # characters

    def add(self, ids: Sequence[int], new: int, over: bool) -> tuple[str, int, bool]:
        """All ids so far, of which `new` were not heard of -> (new text, ids that count, whether a stop text came)."""
        if self.stop:
            for n in range(len(ids) - new + 1, len(ids) + 1):
                text = self.renderer.decode(ids[:n])
                if places := [at for at in (text.find(s) for s in self.stop) if at >= 0]:
                    return self._new(text[: min(places)]), n, True
        text = self.renderer.decode(ids)
        return self._new(text if over else text[: len(text) - self._held(text)]), len(ids), False

    def _new(self, text: str) -> str:
        new, self.said = text[self.said :], max(self.said, len(text))
        return new

    def _held(self, text: str) -> int:
        half = len(text) - len(text.rstrip(_HALF))
        begun = (n for s in self.stop for n in range(min(len(s) - 1, len(text)), 0, -1) if text.endswith(s[:n]))
        return max(half, max(begun, default=0))


class _Group:
    """Requests that are sampled together: one session, one row each."""

    def __init__(self, sampler: Sampler, renderer: Renderer, requests: Sequence[Request], whole: bool) -> None:
        self.whole = whole
        self.requests = list(requests)
        self.writers = [Writer(renderer, r.stop) for r in requests]
        self.session: Any = sampler.open([r.prompt for r in requests], [r.seed for r in requests])
        self.sampling = requests[0].sampling
        self.alive = list(range(len(requests)))

    def step(self, model: torch.nn.Module) -> None:
        """Samples a few tokens of each request."""
        self.alive = [i for i in self.alive if not self.requests[i].cancelled]
        if not self.alive:
            return
        left = min(r.max_tokens - len(r.ids) for r in (self.requests[i] for i in self.alive))
        self.session.rows = list(self.alive)
        segments = self.session.generate(replace(self.sampling, max_tokens=left if self.whole else min(CHUNK, left)))
        accounts = getattr(self.session, "accounts", None) or [None] * len(segments)
        alive = []
        for i, segment, account in zip(self.alive, segments, accounts, strict=True):
            request, new = self.requests[i], [int(x) for x in segment.ids]
            if segment.stop == "lost":
                request.hear(Piece(error="the engine was lost"))
                continue
            before = len(request.ids)
            request.ids += new
            ended = segment.stop == "end"
            over = self.whole or ended or len(request.ids) >= request.max_tokens
            text, count, stopped = self.writers[i].add(request.ids, len(new), over)
            tokens = ()
            if request.top is not None:
                tokens = scored(
                    model, np.append(request.prompt, request.ids), len(request.prompt) + before, request.top
                )
                tokens = tuple(tokens[: max(0, count - before)])
            reason: Reason | None = "stop" if stopped or ended else "length" if over else None
            cost = None if account is None else dict(account.tokens)
            request.hear(Piece(text=text, tokens=tokens, count=count, over=reason, forward_tokens=cost))
            if reason is None:
                alive.append(i)
        self.alive = alive


class Conversations:
    """The sampling thread. `ask` queues requests; `close` ends the thread.

    whole     answers are drawn at once: the sampler is a decoder (DecodingSampler), which chooses among whole answers, or
              writes turns by a generation of its own
    mistakes  what the sampler raises for a request that it cannot answer
    """

    def __init__(
        self,
        sampler: Sampler,
        renderer: Renderer,
        *,
        whole: bool = False,
        mistakes: tuple[type[Exception], ...] = (UserError,),
    ) -> None:
        self.sampler, self.renderer, self.whole, self.mistakes = sampler, renderer, whole, mistakes
        self.waiting: list[Request] = []
        self.groups: list[_Group] = []
        self.ended = False
        self._something = threading.Condition()
        self._thread = threading.Thread(target=self._work, name="sampling", daemon=True)
        self._thread.start()

    @property
    def busy(self) -> int:
        """The number of requests that wait or are active."""
        return len(self.waiting) + sum(len(g.alive) for g in self.groups)

    def ask(self, requests: Sequence[Request]) -> None:
        with self._something:
            self.waiting += requests
            self._something.notify()

    def close(self) -> None:
        with self._something:
            self.ended = True
            self._something.notify()
        self._thread.join(60)

    def _work(self) -> None:
        while True:
            with self._something:
                while not (self.waiting or self.groups or self.ended):
                    self._something.wait()
                if self.ended:
                    return
                new, self.waiting = self.waiting, []
            by_sampling: dict[tuple[Sampling, int], list[Request]] = {}
            for request in new:
                key = (request.sampling, request.max_tokens if self.whole else 0)
                by_sampling.setdefault(key, []).append(request)
            for requests in by_sampling.values():
                self._guarded(requests, lambda requests=requests: self._open(requests))
            for group in list(self.groups):
                self._guarded(
                    [group.requests[i] for i in group.alive], lambda group=group: group.step(self.sampler.model)
                )
            self.groups = [g for g in self.groups if g.alive]

    def _open(self, requests: Sequence[Request]) -> None:
        self.groups.append(_Group(self.sampler, self.renderer, requests, self.whole))

    def _guarded(self, requests: Sequence[Request], do: Callable[[], None]) -> None:
        """Reports a failure to the requests that it concerns; the others continue."""
        try:
            do()
        except Exception as e:  # noqa: BLE001 (said to who asked)
            self.groups = [g for g in self.groups if not any(r in requests for r in g.requests)]
            for request in requests:
                why = (str(e).strip().splitlines() or [type(e).__name__])[0]
                request.hear(Piece(error=why, refused=isinstance(e, self.mistakes)))


@torch.inference_mode()
def scored(model: torch.nn.Module, ids: np.ndarray, begin: int, top: int) -> list[Token]:
    """The tokens `ids[begin:]` with their log-probs at temperature 1, and the `top` most likely tokens at each
    position."""
    at = torch.from_numpy(np.asarray(ids, dtype=np.int64))
    head = head_weight(model)
    out = [Token(id=int(at[0]), logp=None)] if begin == 0 else []
    first = max(begin, 1)
    rows = PackedRows([len(at)], head.device)
    hidden = hidden_states(model, at.to(head.device), torch.arange(len(at), device=head.device), rows)[first - 1 : -1]
    for lo in range(0, len(hidden), _ROWS):
        logp = torch.log_softmax((hidden[lo : lo + _ROWS] @ head.T).float(), -1).cpu()
        tokens = at[first + lo : first + lo + len(logp)]
        best = logp.topk(min(top, logp.shape[-1]), -1) if top else None
        for k, token in enumerate(tokens.tolist()):
            pairs = zip(best.indices[k].tolist(), best.values[k].tolist(), strict=True) if best is not None else ()
            out.append(Token(id=token, logp=float(logp[k, token]), top=tuple(pairs)))
    return out
