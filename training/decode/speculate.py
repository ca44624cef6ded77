"""EAGLE: a small head drafts tokens from the model's own features, and the model checks them in one pass, exactly.

Li et al. 2024, "EAGLE: Speculative Sampling Requires Rethinking Feature Uncertainty" (arXiv 2401.15077); the exact rule is
Leviathan et al. 2023, "Fast Inference from Transformers via Speculative Decoding" (arXiv 2211.17192).

    f_t = draft(f_{t-1}, E[x_t])      q = softmax(head f_t)       x ~ q, `depth` times in a row: a chain of drafts
    x is kept with min(1, p(x) / q(x)), p the model's own; at the first that is not, x ~ max(p - q, 0) / sum max(p - q, 0)
    all kept: one more, x ~ p

f is the hidden state that the head reads. p has the temperature and the cuts of the sampling: what is drawn has exactly
the model's distribution, whatever the draft says, and at temperature 0 it is its greedy answer, but for rounding where
two tokens are equally likely. Log-probs are the model's. A pass reads depth + 1 tokens, and all of them count: it buys
fewer passes, not fewer forward tokens. c_peak (FastGRPO, arXiv 2509.21792): where B asks are answered, drafts are at most
c_peak / B - 1 deep, 0 for no bound. The head learns from the chosen answers of the pairs: the next feature, and the
model's own distribution there. draft: "uniform" is the control, all tokens alike.

Leaves out trees of drafts. Answers are drawn one after another.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import kl_div, log_softmax, smooth_l1_loss

from synth.types import Sampling, seed_for
from training.decode import Account, Ask, Decoded, Engine, Example
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


@dataclass(frozen=True, kw_only=True)
class Drafter:
    """net: the draft head, or None for uniform drafts; embedding, head [V, d]: the model's; loss: of the last step."""

    net: Any
    embedding: Tensor
    head: Tensor
    loss: float


def speculate(
    engine: Engine,
    asks: Sequence[Ask],
    fitted: Any,
    *,
    depth: int = 4,
    c_peak: int = 0,
    steps: int = 200,
    lr: float = 3e-3,
    draft: Literal["learned", "uniform"] = "learned",
    temperature: float | None = None,
    seed: int = 0,
) -> list[Decoded]:
    if depth < 1:
        raise ValueError(f"depth is {depth}: it is how many tokens are drafted in a row, 1 or more")
    sampling = drafting(engine, fitted.head, temperature, "speculate")
    deep = depth if not c_peak else max(0, min(depth, c_peak // max(1, len(asks)) - 1))
    engine.sampler.sync()
    return [_answered(engine, ask, fitted, deep, sampling) for ask in asks]


def drafting(engine: Engine, head: Tensor, temperature: float | None, name: str) -> Sampling:
    """How tokens are drawn where a drafter that read this head helps. Raises ValueError if it is not the model's, and for
    one of some choices; name: the decoder's."""
    if head.shape != engine.read_out()[1].shape:
        raise ValueError(
            "the drafter was made with another model, of another tokenizer or width: make it anew with this one"
        )
    sampling = engine.sampling if temperature is None else replace(engine.sampling, temperature=temperature)
    if sampling.choices:
        raise ValueError(f"{name} draws tokens and not one of some choices: take the decoder sample")
    return sampling


@torch.inference_mode()
def _answered(engine: Engine, ask: Ask, drafter: Drafter, depth: int, sampling: Sampling) -> Decoded:
    sampler, account = engine.sampler, Account(limit=ask.forward_tokens)
    most, begun = engine.room(ask, account), time.perf_counter()
    device = drafter.head.device
    cache = CachedRows(1, device)
    ending = Ending.of(sampling, sampler.end_id, sampler.renderer, len(drafter.head))
    rng = np.random.default_rng(seed_for(ask.seed, "speculate"))

    def read(ids: Sequence[int] | np.ndarray) -> Tensor:
        """The features [n, d] of the next ids, which the cache then holds."""
        account.charge("policy", len(ids))
        x = torch.as_tensor(np.asarray(ids, dtype=np.int64), device=device)[None]
        out = hidden_states(sampler.model, x, cache.begin(len(ids)), cache)[0]
        cache.advance()
        return out

    ids: list[int] = []
    logp: list[float] = []
    entropy: list[float] = []
    passes = drafted = kept = 0

    def take(token: int, p: Tensor) -> bool:
        """Write a token that has the distribution p [V]; whether the turn goes on."""
        ids.append(token)
        logp.append(float(p[token].log()))
        entropy.append(float(-(p * p.clamp(min=1e-30).log()).sum()))
        return ending.why(token, np.array(ids)) is None and len(ids) < most

    feature = read(ask.prompt)[-1]
    p = _chances(sampler.logits(feature[None])[0], sampling)
    on = take(_drawn(p, sampling, rng), p)
    while on and account.left >= 2:
        k = int(min(depth, account.left - 2, most - len(ids) - 1))
        tokens, q = _drafts(drafter, feature, ids[-1], k, sampling, rng)
        features = read([ids[-1], *tokens])
        chances = [_chances(x, sampling) for x in sampler.logits(features)]
        passes, drafted = passes + 1, drafted + len(tokens)
        good = 0
        for i, token in enumerate(tokens):
            new, same = _checked(chances[i], q[i], token, sampling, rng)
            good += same
            kept += same
            on = take(new, chances[i])
            if not same or not on:
                break
        else:
            on = take(_drawn(chances[-1], sampling, rng), chances[-1])
        feature = features[good]
        cache.held[0] -= len(tokens) - good
        cache.window(0, 1)
    if account.left >= 1 and len(ids):
        read(ids[-1:])  # the last token is read as a sampler does, so that accounts compare
    account.seconds = time.perf_counter() - begun
    account.memory = (len(ask.prompt) + len(ids)) * engine.bytes_per_token
    account.path, account.passes = "own layers", passes
    account.events.append(f"{len(ids)} tokens in {passes} passes, {kept} of {drafted} drafts kept")
    why = ending.why(ids[-1], np.array(ids)) or "length"
    segment = Segment(
        ids=np.array(ids, dtype=np.int64),
        role="model",
        logp=np.array(logp, dtype=np.float32),
        entropy=np.array(entropy, dtype=np.float32),
        stop=why,
        version=sampler.version,
        sampling=replace(sampling, max_tokens=ask.max_tokens),
    )
    return Decoded(segment=segment, account=account)


def _chances(logits: Tensor, sampling: Sampling) -> Tensor:
    """[V] double: what a token is drawn from; at temperature 0 the model's own, of which the likeliest is taken."""
    z = logits.double()
    if sampling.temperature not in (0, 1):
        z = z / sampling.temperature
    if sampling.temperature > 0:
        z = truncated(z[None], sampling)[0]
    return torch.softmax(z, 0)


def _drawn(p: Tensor, sampling: Sampling, rng: np.random.Generator) -> int:
    if sampling.temperature == 0:
        return int(p.argmax())
    cdf = p.cumsum(0)
    return int(torch.searchsorted(cdf, cdf[-1:] * rng.random(), right=True).clamp(max=len(p) - 1))


def _checked(p: Tensor, q: Tensor, token: int, sampling: Sampling, rng: np.random.Generator) -> tuple[int, bool]:
    """A draft from q [V] -> a token that has the distribution p [V], and whether it is the draft."""
    if sampling.temperature == 0:
        best = int(p.argmax())
        return best, best == token
    if rng.random() * float(q[token]) < float(p[token]):
        return token, True
    rest = (p - q).clamp(min=0)
    return _drawn(rest if float(rest.sum()) > 0 else p, sampling, rng), False


def _drafts(
    drafter: Drafter, feature: Tensor, token: int, k: int, sampling: Sampling, rng: np.random.Generator
) -> tuple[list[int], list[Tensor]]:
    """A chain of k tokens behind a token, and the distribution [V] that each was drawn from."""
    tokens: list[int] = []
    chances: list[Tensor] = []
    for _ in range(k):
        if drafter.net is None:
            q = torch.full((len(drafter.head),), 1 / len(drafter.head), dtype=torch.float64)
            token = int(rng.integers(len(q)))
        else:
            feature = drafter.net(feature[None].float(), drafter.embedding[token][None].float())[0]
            q = _chances(drafter.head.float() @ feature, sampling)
            token = _drawn(q, sampling, rng)
        tokens.append(token)
        chances.append(q)
    return tokens, chances


def fit(
    engine: Engine,
    pairs: Sequence[Example],
    *,
    depth: int = 4,
    c_peak: int = 0,
    steps: int = 200,
    lr: float = 3e-3,
    draft: Literal["learned", "uniform"] = "learned",
    temperature: float | None = None,
    seed: int = 0,
) -> Drafter:
    """The draft head, trained on the model's features of the chosen answers."""
    norm, head = engine.read_out()
    embedding = engine.embedding()
    if draft == "uniform":
        return Drafter(net=None, embedding=embedding, head=head, loss=0.0)
    rows = [np.concatenate([p.prompt, p.chosen]) for p in pairs]
    with torch.no_grad():
        features = [norm(s[0].to(head.dtype)).float() for s in engine.streams(rows, [engine.layers - 1])]
    before, after = torch.cat([f[:-1] for f in features]), torch.cat([f[1:] for f in features])
    token = torch.from_numpy(np.concatenate([r[1:] for r in rows])).to(before.device)
    net = Draft(head.shape[1], seed_for(seed, "draft")).to(before.device)
    optimizer = torch.optim.Adam(net.parameters(), lr=lr)
    weight, loss = head.float(), torch.zeros(())
    chance = torch.Generator().manual_seed(seed_for(seed, "rows"))
    for _ in range(steps):
        few = torch.randint(len(before), (min(256, len(before)),), generator=chance).to(before.device)
        guess = net(before[few], embedding[token[few]].float())
        want = log_softmax(after[few] @ weight.T, 1)
        near = kl_div(log_softmax(guess @ weight.T, 1), want, reduction="batchmean", log_target=True)
        loss = smooth_l1_loss(guess, after[few]) + near
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    for p in net.parameters():
        p.requires_grad_(False)
    return Drafter(net=net, embedding=embedding, head=head, loss=float(loss.detach()))
