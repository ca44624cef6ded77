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
c_peak / B - 1 deep, 0 for no bound. words (FR-Spec, arXiv 2502.14856): the head drafts among so many ids alone, those that its
lessons have most often, 0 for all; where the model is small, reading all rows of its head is most of a draft. The head learns from the chosen answers of the pairs: the next feature, and the
model's own distribution there. draft: "uniform" is the control, all tokens alike.

Leaves out trees of drafts. Answers are drawn one after another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from synth.types import Sampling, seed_for
from training.decode import Ask, Decoded, Engine, Example
from training.decode._drafts import Answer, Draft, Learned, chances, common, drafting, drawn, near, vocabulary


Rule = Callable[[Tensor, Tensor, int, Sampling, np.random.Generator], tuple[int, bool]]


@dataclass(frozen=True, kw_only=True)
class Drafter:
    """net: the draft head, or None for uniform drafts; embedding, head [V, d]: the model's; few: the ids that are drafted, None for
    all, and `weight` the rows of the head that are theirs; vocabulary: of its tokenizer; loss: of the last step."""

    net: Any
    embedding: Tensor
    head: Tensor
    few: Tensor | None
    weight: Tensor
    vocabulary: dict[str, int] | None
    loss: float


def speculate(
    engine: Engine,
    asks: Sequence[Ask],
    fitted: Any,
    *,
    depth: int = 4,
    c_peak: int = 0,
    words: int = 0,
    steps: int = 200,
    lr: float = 3e-3,
    draft: Literal["learned", "uniform"] = "learned",
    temperature: float | None = None,
    seed: int = 0,
) -> list[Decoded]:
    if depth < 1:
        raise ValueError(f"depth is {depth}: it is how many tokens are drafted in a row, 1 or more")
    sampling = drafting(engine, fitted, temperature, "speculate")
    deep = depth if not c_peak else max(0, min(depth, c_peak // max(1, len(asks)) - 1))
    engine.sampler.sync()
    return [answered(engine, ask, fitted, deep, sampling) for ask in asks]


def checked(p: Tensor, q: Tensor, token: int, sampling: Sampling, rng: np.random.Generator) -> tuple[int, bool]:
    """A draft from q [V] -> a token that has the distribution p [V], and whether it is the draft."""
    if sampling.temperature == 0:
        best = int(p.argmax())
        return best, best == token
    if rng.random() * float(q[token]) < float(p[token]):
        return token, True
    rest = (p - q).clamp(min=0)
    return drawn(rest if float(rest.sum()) > 0 else p, sampling, rng), False


@torch.inference_mode()
def answered(
    engine: Engine, ask: Ask, drafter: Drafter, depth: int, sampling: Sampling, rule: Rule = checked
) -> Decoded:
    """One answer, of drafts of that depth. rule: what becomes of a draft."""
    answer = Answer.of(engine, ask, sampling, drafter.head)
    account, most = answer.account, answer.most
    rng = np.random.default_rng(seed_for(ask.seed, "speculate"))
    proposed = kept = 0
    feature = answer.read(ask.prompt)[-1]
    p = answer.chances(feature[None])[0]
    on = answer.take(drawn(p, sampling, rng), p)
    while on and account.left >= 2:
        k = int(min(depth, account.left - 2, most - len(answer.ids) - 1))
        tokens, q = _drafts(drafter, feature, answer.ids[-1], k, sampling, rng)
        features = answer.read([answer.ids[-1], *tokens])
        model = answer.chances(features)
        answer.passes, proposed = answer.passes + 1, proposed + len(tokens)
        good = 0
        for i, token in enumerate(tokens):
            new, same = rule(model[i], q[i], token, sampling, rng)
            good += same
            kept += same
            on = answer.take(new, model[i])
            if not same or not on:
                break
        else:
            on = answer.take(drawn(model[-1], sampling, rng), model[-1])
        feature = features[good]
        answer.cache.held[0] -= len(tokens) - good
        answer.cache.window(0, 1)
    return answer.decoded(f"{kept} of {proposed} drafts kept")


def _drafts(
    drafter: Drafter, feature: Tensor, token: int, k: int, sampling: Sampling, rng: np.random.Generator
) -> tuple[list[int], list[Tensor]]:
    """A chain of k tokens behind a token, and the distribution [V] that each was drawn from."""
    tokens: list[int] = []
    proposals: list[Tensor] = []
    for _ in range(k):
        if drafter.net is None:
            q = torch.full((len(drafter.head),), 1 / len(drafter.head), dtype=torch.float64)
            token = int(rng.integers(len(q)))
        else:
            feature = drafter.net(feature[None].float(), drafter.embedding[token][None].float())[0]
            q = chances(drafter.weight @ feature, sampling)
            if drafter.few is not None:
                q = q.new_zeros(len(drafter.head)).index_copy_(0, drafter.few, q)
            token = drawn(q, sampling, rng)
        tokens.append(token)
        proposals.append(q)
    return tokens, proposals


def fit(
    engine: Engine,
    pairs: Sequence[Example],
    *,
    depth: int = 4,
    c_peak: int = 0,
    words: int = 0,
    steps: int = 200,
    lr: float = 3e-3,
    draft: Literal["learned", "uniform"] = "learned",
    temperature: float | None = None,
    seed: int = 0,
) -> Drafter:
    """The draft head, trained on the model's features of the chosen answers."""
    head = engine.read_out()[1]
    model: dict[str, Any] = {"embedding": engine.embedding(), "head": head, "vocabulary": vocabulary(engine)}
    if draft == "uniform":
        return Drafter(net=None, few=None, weight=head, loss=0.0, **model)
    learned = Learned.of(engine, pairs)
    few = common(learned.token, words, len(head))
    weight = (head if few is None else head[few]).float()
    net = Draft(head.shape[1], seed_for(seed, "draft")).to(head.device)
    optimizer = torch.optim.Adam(net.parameters(), lr=lr)
    loss = torch.zeros(())
    chance = torch.Generator().manual_seed(seed_for(seed, "rows"))
    for _ in range(steps):
        before, token, after = learned.some(chance)
        loss = near(net, before, model["embedding"][token].float(), after, weight)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    for p in net.parameters():
        p.requires_grad_(False)
    return Drafter(net=net, few=few, weight=weight, loss=float(loss.detach()), **model)
