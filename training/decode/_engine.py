"""The models that a decoder may use, and the account of each answer.

A forward token is one token that one model has processed once: the tokens of a prompt when it is read, every token that
was drawn, and, if a reward model reads it, the whole conversation with the word of the verdict. Draws from the same
prompt that are requested together read the prompt once, as in the sampler, and changed ones what comes before the first change.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from synth.types import Sampling
from training.learner.learner import score
from training.learner.pack import Row, pack, shared_tokens
from training.model.residual import Edit, blocks_of, fitting, layer_of, read, read_out, untouched
from training.types import Batch, Segment

VERDICT = 1  # tokens that a reward model reads after a conversation


@dataclass(frozen=True, kw_only=True)
class Ask:
    """One prompt to be answered.

    prompt          [n] ids
    seed            of everything that is drawn for it
    max_tokens      at most, of the answer
    forward_tokens  that the answer may cost, of all models together; 0: no bound
    """

    prompt: np.ndarray
    seed: int
    max_tokens: int
    forward_tokens: int = 0


@dataclass(kw_only=True)
class Account:
    """The cost of one answer.

    limit    forward tokens that it may cost; 0: no bound
    tokens   forward tokens by model: "policy", "reward", "reference"
    seconds  wall seconds of the calls that included it: the time of a batch counts in full for each of its rows
    memory   peak bytes of the keys and values that were held for it
    path     how the policy was run (`Session.path` of the sampler), "" where the sampler does not say
    events   what happened on the way, a sentence each
    passes   of the policy behind the prompt, where a decoder drafts; 0 where each token takes one
    """

    limit: int = 0
    tokens: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    memory: int = 0
    path: str = ""
    events: list[str] = field(default_factory=list)
    passes: int = 0

    @property
    def spent(self) -> int:
        return sum(self.tokens.values())

    @property
    def left(self) -> float:
        """Forward tokens that may still be spent."""
        return self.limit - self.spent if self.limit else math.inf

    def charge(self, model: str, tokens: int) -> None:
        """Raises RuntimeError if a decoder spends more than its budget: that is a bug of the decoder."""
        self.tokens[model] = self.tokens.get(model, 0) + tokens
        if self.left < 0:
            raise RuntimeError(f"a decoder has spent {self.spent} forward tokens of a budget of {self.limit}")


@dataclass(frozen=True, kw_only=True)
class Decoded:
    """The turn that answers an ask, and its cost."""

    segment: Segment
    account: Account


@dataclass(frozen=True, kw_only=True)
class Draw:
    """One turn to draw, charged to an account; `edit` changes the residual stream while it is drawn."""

    account: Account
    prompt: np.ndarray
    seed: int
    max_tokens: int
    edit: Edit | None = None


@dataclass(frozen=True, kw_only=True)
class Example:
    """A preference pair as ids: the prompt [n], and the better and the worse answer, each with its end token. ratings: those
    of the two by dimension, where somebody rated them."""

    prompt: np.ndarray
    chosen: np.ndarray
    rejected: np.ndarray
    ratings: Mapping[str, tuple[float, float]] = field(default_factory=dict)


def _packed(rows: Sequence[tuple[np.ndarray, np.ndarray]]) -> Batch:
    whole = [np.concatenate(row) for row in rows]
    starts = [len(prompt) for prompt, _ in rows]
    return pack([Row(ids=x, trainable=np.arange(len(x)) >= start) for x, start in zip(whole, starts, strict=True)])


@dataclass(kw_only=True)
class Engine:
    """The models that a decoder may use.

    sampler   of the policy (training/rollout: TorchSampler, or one with its `open`)
    text      ids -> their text
    said      ids of a turn -> its answer, in the form in which answers are compared; "" for none
    sampling  how turns are drawn unless a decoder says otherwise
    rewards   whole conversations [n] -> a reward each, NaN for one that is too long; None: there is no reward model
    ids       a text -> its ids [n]; None: words mean nothing to this model
    called    the name of this model in accounts
    reference the model that preference training began with, called "reference"; None: it is not there
    steered   prompt [n] -> what changes the residual stream of every draw behind it; None: nothing does
    answer    the class that writes an answer where a decoder drafts; None: `Answer` (training/decode/_drafts.py)
    """

    sampler: Any
    text: Callable[[np.ndarray], str]
    said: Callable[[np.ndarray], str]
    sampling: Sampling = field(default_factory=Sampling)
    rewards: Callable[[Sequence[np.ndarray]], Sequence[float]] | None = None
    ids: Callable[[str], np.ndarray] | None = None
    called: str = "policy"
    reference: Engine | None = None
    steered: Callable[[np.ndarray], Edit] | None = None
    answer: type[Any] | None = None

    @property
    def writes(self) -> str:
        """How the sampler writes a turn: tokens one after another; `steps`, each of which is one forward token, but not all of
        them tokens; or `turns`, whole."""
        return getattr(self.sampler, "writes", "tokens")

    def token_by_token(self, what: str) -> None:
        """Raises ValueError where turns are not written so. what: the decoder does."""
        if self.writes != "tokens":
            raise ValueError(
                f"it {what}, and this model writes its turns by a generation of its own and not token by token: take greedy, "
                "sample, majority, best_of_n or tournament, or leave out the generation"
            )

    def room(self, ask: Ask, account: Account) -> int:
        """The most tokens that one answer may have. Raises ValueError for a budget too small for any answer."""
        room = min(ask.max_tokens, account.left - len(ask.prompt))
        if room < 1:
            raise ValueError(
                f"a budget of {ask.forward_tokens} forward tokens has no room for an answer: the prompt alone has "
                f"{len(ask.prompt)}; give {len(ask.prompt) + 1} or more"
            )
        return int(room)

    def sample(self, draws: Sequence[Draw], *, temperature: float | None = None) -> list[Segment]:
        """One turn per draw, charged to its account. temperature: replaces that of `sampling`."""
        if self.writes == "turns":
            raise ValueError(
                "this model's generation reads a whole turn several times, which an account of forward tokens does not count: leave out "
                "the decoder, or the generation"
            )
        if self.steered is not None:
            draws = [replace(d, edit=self.steered(d.prompt)) for d in draws]
        if any(d.edit is not None for d in draws):
            self.token_by_token("steers the residual stream")
        by_limit: dict[int, list[int]] = {}
        for i, d in enumerate(draws):
            by_limit.setdefault(d.max_tokens, []).append(i)
        out: dict[int, Segment] = {}
        for limit, places in by_limit.items():
            sampling = replace(self.sampling, max_tokens=limit)
            if temperature is not None:
                sampling = replace(sampling, temperature=temperature)
            mine, begun = [draws[i] for i in places], time.perf_counter()
            edits = [d.edit for d in mine]
            more = {"edits": edits} if any(e is not None for e in edits) else {}
            session = self.sampler.open([d.prompt for d in mine], [d.seed for d in mine], **more)
            segments = session.generate(sampling)
            self._charge(mine, segments, time.perf_counter() - begun, getattr(session, "path", ""))
            out |= dict(zip(places, segments, strict=True))
        return [out[i] for i in range(len(draws))]

    def _charge(self, draws: Sequence[Draw], segments: Sequence[Segment], seconds: float, path: str) -> None:
        held: dict[int, int] = {}
        accounts = {id(d.account): d.account for d in draws}
        read_once: set[tuple] = set()
        changed = any(d.edit is not None for d in draws)
        for d, segment in zip(draws, segments, strict=True):
            shared = untouched(d.edit, len(d.prompt)) if changed else len(d.prompt)
            key = (id(d.account), d.prompt[:shared].tobytes())
            tokens = len(segment.ids) + len(d.prompt) - (shared if key in read_once else 0)
            read_once.add(key)
            d.account.charge(self.called, tokens)
            held[id(d.account)] = held.get(id(d.account), 0) + tokens
        for key, account in accounts.items():
            account.seconds += seconds
            account.memory = max(account.memory, held[key] * self.bytes_per_token)
            account.path = path

    def rate(self, rows: Sequence[tuple[Account, np.ndarray]]) -> list[float]:
        """The reward model's reward of each conversation [n], charged to its account; NaN for one that is too long.
        Raises ValueError if there is no reward model."""
        if self.rewards is None:
            raise ValueError(
                "this decoder chooses by a reward model, and there is none: train one (the stage reward), or take a "
                "decoder that needs none, such as majority"
            )
        begun = time.perf_counter()
        values = [float(v) for v in self.rewards([ids for _, ids in rows])]
        spent = time.perf_counter() - begun
        for (account, ids), value in zip(rows, values, strict=True):
            if not math.isnan(value):
                account.charge("reward", len(ids) + VERDICT)
        for account in {id(a): a for a, _ in rows}.values():
            account.seconds += spent
        return values

    @cached_property
    def bytes_per_token(self) -> int:
        """Bytes of the keys and values of one token in all layers."""
        c = getattr(self.sampler.model, "config", None)
        if c is None:
            return 0
        heads = getattr(c, "num_key_value_heads", None) or c.num_attention_heads
        size = getattr(c, "head_dim", None) or c.hidden_size // c.num_attention_heads
        itemsize = next(self.sampler.model.parameters()).element_size()
        return 2 * c.num_hidden_layers * heads * size * itemsize

    # --- the residual stream

    @property
    def layers(self) -> int:
        """Blocks of the policy."""
        return len(blocks_of(self.sampler.model))

    def layer(self, layer: int) -> int:
        """The block of this number, counted from 0. Raises ValueError for a number out of range."""
        return layer_of(self.sampler.model, layer)

    def streams(self, rows: Sequence[np.ndarray], layers: Sequence[int]) -> list[Tensor]:
        """Per row of ids [n] the policy's residual streams [len(layers), n, d] after these blocks."""
        self.token_by_token("reads the residual stream")
        return read(self.sampler.model, rows, layers)

    def read(self, rows: Sequence[tuple[Account, np.ndarray]], layer: int) -> list[Tensor]:
        """The policy's residual stream [n, d] after a block of each conversation [n], charged to its account."""
        begun = time.perf_counter()
        streams = [s[0] for s in self.streams([ids for _, ids in rows], [layer])]
        spent = time.perf_counter() - begun
        for account, ids in rows:
            account.charge("policy", len(ids))
        for account in {id(a): a for a, _ in rows}.values():
            account.seconds += spent
        return streams

    @contextmanager
    def changed(self, weights: Mapping[str, Tensor]) -> Iterator[None]:
        """Within, the policy has these weights in the place of its own of the same names; afterwards every bit is as it
        was. Raises ValueError for a weight that the policy does not have."""
        own = dict(self.sampler.model.named_parameters())
        for name, weight in weights.items():
            if name not in own or own[name].shape != weight.shape:
                raise ValueError(
                    f"the policy has no weight {name} of the shape {list(weight.shape)}: it was made with another model; "
                    "make it anew with this one"
                )
        before = {name: own[name].detach().clone() for name in weights}
        try:
            with torch.no_grad():
                for name, weight in weights.items():
                    own[name].copy_(weight)
            yield
        finally:
            with torch.no_grad():
                for name, weight in before.items():
                    own[name].copy_(weight)

    def weights(self, ending: str) -> dict[str, tuple[int, Tensor]]:
        """Name of each weight of a block that ends so -> the block, from 0, and a copy. Raises ValueError for none."""
        out = {}
        for i, block in enumerate(blocks_of(self.sampler.model)):
            mine = {id(p): p for n, p in block.named_parameters() if n.endswith(ending)}
            for name, p in self.sampler.model.named_parameters():
                if id(p) in mine:
                    out[name] = (i, p.detach().clone())
        if not out:
            raise ValueError(f"this model has no weight called {ending}: take a decoder that does not change it")
        return out

    def logp(self, rows: Sequence[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
        """[n] log-probability that the policy gives to each (prompt, answer) at temperature 1."""
        self.token_by_token("reads log-probs of tokens")
        batch = _packed(rows)
        return batch.row_sum(score(self.sampler.model, batch).logp).double().cpu().numpy()

    def read_logp(self, account: Account, rows: Sequence[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
        """`logp` of each (prompt, answer), charged to the account; what rows begin with in common is read once."""
        begun = time.perf_counter()
        out, batch = self.logp(rows), _packed(rows)
        account.charge(self.called, len(batch.ids) - sum(shared_tokens(batch)))
        account.seconds += time.perf_counter() - begun
        return out

    def read_out(self) -> tuple[Callable[[Tensor], Tensor], Tensor]:
        """The norm behind the last block, and the head's weight [V, d]: logits = norm(x) weight^T."""
        self.token_by_token("reads the model's head")
        return read_out(self.sampler.model)

    def embedding(self) -> Tensor:
        """[V, d] of the policy's input ids."""
        model: Any = self.sampler.model
        return model.get_input_embeddings().weight.detach()

    def fitting(self, vector: Tensor) -> Tensor:
        """The vector, if it has the size of the policy's residual stream; else raises ValueError."""
        return fitting(self.sampler.model, vector)
