"""What decoders that draft share: who may draft for a model, how a token is drawn, and an answer that passes check."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import kl_div, log_softmax, smooth_l1_loss

from synth.types import Sampling
from training.decode._engine import Account, Ask, Decoded, Engine, Example
from training.decode._networks import seeded
from training.model.kv_cache import CachedRows
from training.model.model import hidden_states
from training.rollout.ending import Ending
from training.rollout.torch_sampler import truncated
from training.types import Segment


class Draft(nn.Module):
    """Features [n, d] and embeddings [n, d] of the tokens behind them -> the next features [n, d]."""

    def __init__(self, width: int, seed: int) -> None:
        super().__init__()
        with seeded(seed):
            self.net = nn.Sequential(nn.Linear(2 * width, 2 * width), nn.SiLU(), nn.Linear(2 * width, width))

    def forward(self, feature: Tensor, embedded: Tensor) -> Tensor:
        return feature + self.net(torch.cat([feature, embedded], -1))


def near(net: Draft, before: Tensor, embedded: Tensor, after: Tensor, weight: Tensor) -> Tensor:
    """The loss on features and tokens: before [n, d], the tokens' embeddings [n, d] -> after [n, d]; weight [V, d]: the
    model's head, or its rows that drafts may be of."""
    guess = net(before, embedded)
    want = log_softmax(after @ weight.T, 1)
    return smooth_l1_loss(guess, after) + kl_div(
        log_softmax(guess @ weight.T, 1), want, reduction="batchmean", log_target=True
    )


def common(tokens: Tensor, words: int, most: int) -> Tensor | None:
    """The `words` of `most` ids that tokens [m] have most often, in order of their ids (FR-Spec, arXiv 2502.14856); None, all of
    them, for 0 words and for as many as there are."""
    if not 0 < words < most:
        return None
    counts = torch.bincount(tokens, minlength=most)
    return counts.argsort(descending=True, stable=True)[:words].sort().values


def vocabulary(engine: Engine) -> dict[str, int] | None:
    """Token -> id of the model's tokenizer; None for a sampler without one."""
    renderer = engine.sampler.renderer
    return None if renderer is None else renderer.tokenizer.get_vocab()


def drafting(engine: Engine, fitted: Any, temperature: float | None, name: str) -> Sampling:
    """How tokens are drawn where a drafter helps: `fitted` has the `head` [V, d] that it read, and the `vocabulary` of its
    model's tokenizer. Raises ValueError if they are not the model's, and for one of some choices; name: the decoder's."""
    if fitted.head.shape != engine.read_out()[1].shape:
        raise ValueError(
            "the drafter was made with another model, of another tokenizer or width: make it anew with this one"
        )
    words = vocabulary(engine)
    if words is not None and fitted.vocabulary is not None and words != fitted.vocabulary:
        raise ValueError(
            "the drafter was made with a model whose tokenizer gives other ids to the same text: make it anew with this one"
        )
    sampling = engine.sampling if temperature is None else replace(engine.sampling, temperature=temperature)
    if sampling.choices:
        raise ValueError(f"{name} draws tokens and not one of some choices: take the decoder sample")
    return sampling


def chances(logits: Tensor, sampling: Sampling) -> Tensor:
    """[V] double: what a token is drawn from; at temperature 0 the model's own, of which the likeliest is taken."""
    z = logits.double()
    if sampling.temperature not in (0, 1):
        z = z / sampling.temperature
    if sampling.temperature > 0:
        z = truncated(z[None], sampling)[0]
    return torch.softmax(z, 0)


def drawn(p: Tensor, sampling: Sampling, rng: np.random.Generator) -> int:
    """A token from p [V]; at temperature 0 the likeliest."""
    if sampling.temperature == 0:
        return int(p.argmax())
    cdf = p.cumsum(0)
    return int(torch.searchsorted(cdf, cdf[-1:] * rng.random(), right=True).clamp(max=len(p) - 1))


@dataclass(kw_only=True)
class Learned:
    """Rows of examples as the model reads them: ids [n], the features [n, d] of each, and over all rows the features
    `before` [m, d] a token [m] and `after` [m, d] it."""

    rows: list[np.ndarray]
    features: list[Tensor]
    before: Tensor
    token: Tensor
    after: Tensor

    @staticmethod
    def of(engine: Engine, pairs: Sequence[Example]) -> Learned:
        norm, head = engine.read_out()
        rows = [np.concatenate([p.prompt, p.chosen]) for p in pairs]
        with torch.no_grad():
            features = [norm(s[0].to(head.dtype)).float() for s in engine.streams(rows, [engine.layers - 1])]
        before, after = torch.cat([f[:-1] for f in features]), torch.cat([f[1:] for f in features])
        token = torch.from_numpy(np.concatenate([r[1:] for r in rows])).to(before.device)
        return Learned(rows=rows, features=features, before=before, token=token, after=after)

    def some(self, chance: torch.Generator, n: int = 256) -> tuple[Tensor, Tensor, Tensor]:
        """before, token, after of at most n places, drawn with replacement."""
        return some((self.before, self.token, self.after), chance, n)


def some(of: tuple[Tensor, Tensor, Tensor], chance: torch.Generator, n: int = 256) -> tuple[Tensor, Tensor, Tensor]:
    """The same at most n places, drawn with replacement, of each tensor [m, ...]."""
    few = torch.randint(len(of[0]), (min(n, len(of[0])),), generator=chance).to(of[0].device)
    return of[0][few], of[1][few], of[2][few]


@dataclass(kw_only=True)
class Answer:
    """An answer that is written in passes of the model, with its account; `of` begins one.

    most    tokens that it may have
    passes  behind the prompt
    """

    engine: Engine
    ask: Ask
    sampling: Sampling
    account: Account
    most: int
    cache: CachedRows
    ending: Ending
    begun: float
    ids: list[int] = field(default_factory=list)
    logp: list[float] = field(default_factory=list)
    entropy: list[float] = field(default_factory=list)
    passes: int = 0

    @staticmethod
    def of(engine: Engine, ask: Ask, sampling: Sampling, head: Tensor) -> Answer:
        """Raises ValueError for a budget too small for any answer. head [V, d]: the model's."""
        sampler, account = engine.sampler, Account(limit=ask.forward_tokens)
        return (engine.answer or Answer)(
            engine=engine,
            ask=ask,
            sampling=sampling,
            account=account,
            most=engine.room(ask, account),
            cache=CachedRows(1, head.device),
            ending=Ending.of(sampling, sampler.end_id, sampler.renderer, len(head)),
            begun=time.perf_counter(),
        )

    def read(self, ids: Sequence[int] | np.ndarray, parents: np.ndarray | None = None) -> Tensor:
        """The features [n, d] of the next ids. The cache then holds them; with `parents` (`CachedRows.branch`) it holds
        what `cache.follow` says next."""
        self.account.charge("policy", len(ids))
        x = torch.as_tensor(np.asarray(ids, dtype=np.int64), device=self.cache.device)[None]
        shape = self.cache.begin(len(ids)) if parents is None else self.cache.branch(parents)
        out = hidden_states(self.engine.sampler.model, x, shape, self.cache)[0]
        if parents is None:
            self.cache.advance()
        return out

    def chances(self, features: Tensor) -> list[Tensor]:
        """The distribution [V] behind each of the features [n, d]."""
        return [chances(z, self.sampling) for z in self.engine.sampler.logits(features)]

    def take(self, token: int, p: Tensor) -> bool:
        """Write a token that has the distribution p [V]; whether the turn goes on."""
        self.ids.append(token)
        self.logp.append(float(p[token].log()))
        self.entropy.append(float(-(p * p.clamp(min=1e-30).log()).sum()))
        return self._why() is None and len(self.ids) < self.most

    def decoded(self, event: str, drafts: int = 0) -> Decoded:
        """The turn and its account; drafts: the most that the cache held beside it; event: added to the account."""
        if self.account.left >= 1:
            self.read(self.ids[-1:])  # the last token is read as a sampler does, so that accounts compare
        self.account.seconds = time.perf_counter() - self.begun
        self.account.memory = (len(self.ask.prompt) + len(self.ids) + drafts) * self.engine.bytes_per_token
        self.account.path, self.account.passes = "own layers", self.passes
        self.account.events.append(f"{len(self.ids)} tokens in {self.passes} passes, {event}")
        segment = Segment(
            ids=np.array(self.ids, dtype=np.int64),
            role="model",
            logp=np.array(self.logp, dtype=np.float32),
            entropy=np.array(self.entropy, dtype=np.float32),
            stop=self._why() or "length",
            version=self.engine.sampler.version,
            sampling=replace(self.sampling, max_tokens=self.ask.max_tokens),
        )
        return Decoded(segment=segment, account=self.account)

    def _why(self) -> Any:
        return self.ending.why(self.ids[-1], np.array(self.ids))
