"""Weights of several wishes, set anew for each sentence by a small recurrent controller that steers the frozen model.

"Learning to Generate Research Idea with Dynamic Control" 2024; read in the abstract, the equations are our reading.

    D_p = mean x(chosen) - mean x(rejected)     R_pd = rating_d(chosen) - rating_d(rejected)      x: the stream after `layer`
    V = pinv(R) D        row d: what one more point of d changes, the other dimensions held;  u_d = V_d / ||V_d||
    m_s = GRU([x of the last token, mean x of the last sentence], m_{s-1})      before sentence s; before the first, the prompt
    eps_sd ~ softmax(W_d m_s) over `levels` weights from 0 to eps_max           the likeliest, once it has learned
    x <- x + alpha N sum_d eps_sd u_d           from the last token before sentence s to its end;  N = mean ||x||
    G_s = R_s - R_{s-1} + gamma G_{s+1}         R_s: the reward model's of what is written up to the end of sentence s
    A_s = (G_s - mean G_s) / (std G_s + 1e-6) in a group of one prompt      -mean sum_s A_s sum_d log p(eps_sd)      GRPO

Dimensions are the attributes that the pairs' ratings name (the column `ratings`, {dimension: [chosen, rejected]}), or those
of `dims`; pairs without ratings have one, `preferred`. `weights` ("name: number" each) sets those of all sentences by hand
and needs no reward model. A sentence ends with a token that ends in . ! ?
or a line, or after `sentence_tokens`. The controller reads what is written before each sentence, which costs as much as
drawing it does; answering needs no reward model. Where the budget is short, the rest is one draw under the last weights. Controls: controller "static", of
all weights that hold for every sentence the best, each tried on an even share of as many answers as the controller learns
from; "random", drawn anew for each sentence.

Leaves out a reward model for each dimension (one rates the whole) and training the model itself on their weighted sum.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from synth.types import Sampling, seed_for
from training.decode import Account, Ask, Decoded, Engine, Example
from training.decode._networks import seeded
from training.decode._segments import ENDS, Writing, begun, options
from training.model.residual import AddVector
from training.types import Segment

NEEDS = {"reward_model"}
PREFERRED = "preferred"
PROMPTS = 16  # of a step


class Controller(nn.Module):
    """What is read before a sentence [n, 2 d] and the memory [n, h] -> log-chances of the weights of each dimension
    [n, k, levels], and the memory behind it."""

    def __init__(self, reads: Tensor, dims: int, levels: int, hidden: int, seed: int) -> None:
        super().__init__()
        self.shape = (dims, levels)
        self.center, self.spread = reads.mean(0), reads.std(0, correction=0).clamp(min=1e-6)
        with seeded(seed):
            self.cell, self.out = nn.GRUCell(reads.shape[1], hidden), nn.Linear(hidden, dims * levels)

    def forward(self, read: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        memory = self.cell((read - self.center) / self.spread, memory)
        return self.out(memory).view(-1, *self.shape).log_softmax(-1), memory

    def memory(self, n: int) -> Tensor:
        """[n, h] before anything was read."""
        return torch.zeros(n, self.cell.hidden_size)


@dataclass(frozen=True, kw_only=True)
class Steers:
    """vectors [d] of length 1 by dimension; layer: where they are added; length: the mean of the stream's there; ends: the
    ids that end a sentence; controller, static: what was learned, None and () where it was not; rewards: the mean reward
    of the first and of the last step."""

    vectors: dict[str, Tensor]
    layer: int
    length: float
    ends: tuple[int, ...]
    controller: Any = None
    static: tuple[float, ...] = ()
    rewards: tuple[float, float] = (0.0, 0.0)


@dataclass(kw_only=True, eq=False)
class _Course:
    """One answer on its way: the weights of each sentence so far, where the last one began, and, of a controller, its memory,
    what it read before each sentence and which of its levels were taken there."""

    writing: Writing
    eps: list[tuple[float, ...]] = field(default_factory=list)
    since: int = 0
    memory: Tensor | None = None
    reads: list[Tensor] = field(default_factory=list)
    taken: list[Tensor] = field(default_factory=list)


Choose = Callable[[Engine, list[_Course]], None]  # appends to `eps` of each


def dynamic_control(
    engine: Engine,
    asks: Sequence[Ask],
    fitted: Any,
    *,
    dims: Sequence[str] = (),
    weights: Sequence[str] = (),
    controller: Literal["learned", "static", "random"] = "learned",
    eps_max: float = 5.0,
    levels: int = 6,
    alpha: float = 0.2,
    layer: int | None = None,
    sentence_tokens: int = 32,
    hidden: int = 16,
    gamma: float = 0.5,
    group: int = 8,
    steps: int = 30,
    lr: float = 0.1,
    seed: int = 0,
    temperature: float | None = None,
) -> list[Decoded]:
    grid = np.linspace(0, eps_max, levels)
    for vector in fitted.vectors.values():
        engine.fitting(vector)
    if weights or controller == "static":
        choose = _always(_set(weights, fitted.vectors, eps_max) if weights else fitted.static)
    elif controller == "random":
        choose = _by_chance(grid, len(fitted.vectors))
    else:
        choose = _learned(fitted, grid, sentence_tokens, None)
    courses = _written(engine, asks, fitted, choose, alpha, sentence_tokens, temperature)
    for c in courses:
        for s, eps in enumerate(c.eps, 1):
            told = ", ".join(f"{d} {e:g}" for d, e in zip(fitted.vectors, eps, strict=True))
            c.writing.account.events.append(f"sentence {s}: {told}")
    return [c.writing.decoded() for c in courses]


def _set(weights: Sequence[str], vectors: dict[str, Tensor], eps_max: float) -> tuple[float, ...]:
    """The weights of all dimensions, 0 for those that are not named. Raises ValueError."""
    out = dict.fromkeys(vectors, 0.0)
    for text in weights:
        name, _, number = (part.strip() for part in text.rpartition(":"))
        try:
            value = float(number)
        except ValueError:
            value = -1.0
        if name not in out or not 0 <= value <= eps_max:
            raise ValueError(
                f'the weight {text!r}: write "name: number", a number from 0 to eps_max ({eps_max:g}), of {", ".join(out)}'
            )
        out[name] = value
    return tuple(out.values())


def _always(eps: Sequence[float]) -> Choose:
    def choose(engine: Engine, courses: list[_Course]) -> None:
        for c in courses:
            c.eps.append(tuple(eps))

    return choose


def _by_chance(grid: np.ndarray, k: int) -> Choose:
    def choose(engine: Engine, courses: list[_Course]) -> None:
        for c in courses:
            rng = np.random.default_rng(seed_for(c.writing.ask.seed, "weights", len(c.eps)))
            c.eps.append(tuple(rng.choice(grid, k).tolist()))

    return choose


def _learned(steers: Steers, grid: np.ndarray, size: int, chance: torch.Generator | None) -> Choose:
    """What the controller says: the likeliest weights, or, with `chance`, drawn ones, which the course keeps."""

    def choose(engine: Engine, courses: list[_Course]) -> None:
        able = [c for c in courses if _room(c.writing, size)]
        streams = engine.read([(c.writing.account, c.writing.context) for c in able], steers.layer) if able else []
        for c, stream in zip(able, streams, strict=True):
            x = stream.float().cpu()
            c.reads.append(torch.cat([x[-1], x[c.since :].mean(0)]))
        by = steers.controller
        if able:
            by: Controller = steers.controller
            before = torch.cat([by.memory(1) if c.memory is None else c.memory for c in able])
            with torch.no_grad():
                logp, after = by(torch.stack([c.reads[-1] for c in able]), before)
            k, n = logp.shape[1:]
            drawn = torch.multinomial(logp.exp().view(-1, n), 1, generator=chance) if chance else logp.argmax(2)
            for c, level, memory in zip(able, drawn.view(-1, k), after.split(1), strict=True):
                c.memory = memory
                c.taken.append(level)
                c.eps.append(tuple(grid[level.numpy()].tolist()))
        for c in courses:
            if c not in able:
                c.eps.append(c.eps[-1] if c.eps else (0.0,) * len(steers.vectors))

    return choose


def _room(w: Writing, size: int) -> bool:
    """Whether the budget lets the controller read before the next sentence, with a rest behind that."""
    n = len(w.context)
    return w.account.left >= 3 * n + size + w.ask.max_tokens


def _written(
    engine: Engine,
    asks: Sequence[Ask],
    steers: Steers,
    choose: Choose,
    alpha: float,
    size: int,
    temperature: float | None,
) -> list[_Course]:
    """Answers, sentence by sentence, under the weights that are chosen before each."""
    plain = engine.sampling
    engine = replace(engine, sampling=replace(plain, stop_ids=(*plain.stop_ids, *steers.ends)))
    vectors = torch.stack(list(steers.vectors.values()))
    courses = [_Course(writing=w) for w in begun(asks)]
    while open_ := [c for c in courses if not c.writing.over]:
        choose(engine, open_)
        edits = {}
        for c in open_:
            push = alpha * steers.length * (torch.tensor(c.eps[-1], dtype=vectors.dtype) @ vectors.cpu())
            c.since = len(c.writing.context)
            edits[id(c.writing)] = AddVector(vector=push, layer=steers.layer, start=c.since - 1)
        mine = [c.writing for c in open_]
        drawn = options(
            engine, mine, 1, size, least=1, temperature=temperature, edit=lambda w, edits=edits: edits[id(w)]
        )
        for w, few in zip(mine, drawn, strict=True):
            for piece in few:
                w.take(_sentence(piece, plain, steers.ends))
    for c in courses:
        c.writing.parts = [
            replace(p, sampling=replace(plain, max_tokens=c.writing.ask.max_tokens)) for p in c.writing.parts
        ]
    return courses


def _sentence(piece: Segment, plain: Sampling, ends: Sequence[int]) -> Segment:
    """A piece that a sentence's end has stopped, and not the turn's: the answer goes on behind it."""
    last = int(piece.ids[-1])
    ended = piece.stop == "stop_id" and last in ends and last not in plain.stop_ids
    return replace(piece, stop="length") if ended else piece


def fit(
    engine: Engine,
    pairs: Sequence[Example],
    *,
    dims: Sequence[str] = (),
    weights: Sequence[str] = (),
    controller: Literal["learned", "static", "random"] = "learned",
    eps_max: float = 5.0,
    levels: int = 6,
    alpha: float = 0.2,
    layer: int | None = None,
    sentence_tokens: int = 32,
    hidden: int = 16,
    gamma: float = 0.5,
    group: int = 8,
    steps: int = 30,
    lr: float = 0.1,
    seed: int = 0,
    temperature: float | None = None,
) -> Steers:
    """A direction for each dimension, and the controller or the best static weights. Raises ValueError for a dimension that no
    pair rates or that gives no direction, a layer that is not there, and where there is no reward model to learn from."""
    if levels < 2 or eps_max <= 0 or group < 2 or sentence_tokens < 1:
        raise ValueError(
            f"levels {levels}, eps_max {eps_max:g}, group {group}, sentence_tokens {sentence_tokens}: there are 2 levels or more "
            "up to a largest weight above 0, 2 answers or more of a prompt, and a sentence has 1 token or more"
        )
    layer = engine.layers // 2 if layer is None else engine.layer(layer)
    vectors, length = _directions(engine, pairs, dims, layer)
    vocabulary = len(engine.read_out()[1])
    ends = tuple(i for i in range(vocabulary) if ENDS.search(engine.text(np.array([i], dtype=np.int64))))
    steers = Steers(vectors=vectors, layer=layer, length=length, ends=ends)
    if weights:
        _set(weights, vectors, eps_max)
        return steers
    if controller == "random":
        return steers
    engine.rate([])  # raises where there is no reward model
    grid, n = np.linspace(0, eps_max, levels), len(pairs)

    def tried(places: Sequence[int], seeds: Sequence[int], choose: Choose) -> tuple[list[_Course], np.ndarray]:
        """Answers to the prompts of these pairs, and their rewards, 0 for one that is too long."""
        asks = [
            Ask(prompt=pairs[i].prompt, seed=s, max_tokens=engine.sampling.max_tokens)
            for i, s in zip(places, seeds, strict=True)
        ]
        done = _written(engine, asks, steers, choose, alpha, sentence_tokens, temperature)
        values = engine.rate([(Account(), c.writing.context) for c in done])
        return done, np.nan_to_num(values, nan=0.0)

    if controller == "static":
        every = list(itertools.product(grid.tolist(), repeat=len(vectors)))
        each = max(1, steps * PROMPTS * group // len(every))
        seeds = [seed_for(seed, "static", j) for j in range(each)]
        means = [float(tried([j % n for j in range(each)], seeds, _always(eps))[1].mean()) for eps in every]
        return replace(steers, static=every[int(np.argmax(means))], rewards=(float(np.mean(means)), max(means)))
    streams = [s[0].float().cpu() for s in engine.streams([p.prompt for p in pairs], [layer])]
    reads = torch.stack([torch.cat([x[-1], x.mean(0)]) for x in streams])
    by = Controller(reads, len(vectors), levels, hidden, seed_for(seed, "controller"))
    steers = replace(steers, controller=by)
    optimizer = torch.optim.Adam(by.parameters(), lr=lr)
    rng, seen = np.random.default_rng(seed_for(seed, "prompts")), [0.0, 0.0]
    for t in range(steps):
        places = np.repeat(rng.integers(n, size=PROMPTS), group).tolist()
        chance = torch.Generator().manual_seed(seed_for(seed, "weights", t))
        seeds = [seed_for(seed, "answer", t, j) for j in range(len(places))]
        courses, values = tried(places, seeds, _learned(steers, grid, sentence_tokens, chance))
        gains = _gains(engine, courses, gamma).reshape(PROMPTS, group, -1)
        advantage = (gains - gains.mean(1, keepdims=True)) / (gains.std(1, keepdims=True) + 1e-6)
        logp = _replayed(by, courses)
        optimizer.zero_grad()
        (-(torch.from_numpy(advantage).float().view_as(logp) * logp).sum(1).mean()).backward()
        optimizer.step()
        seen = [float(values.mean()) if t == 0 else seen[0], float(values.mean())]
    for p in by.parameters():
        p.requires_grad_(False)
    return replace(steers, rewards=(seen[0], seen[1]))


def _directions(
    engine: Engine, pairs: Sequence[Example], dims: Sequence[str], layer: int
) -> tuple[dict[str, Tensor], float]:
    """The vectors by dimension, and the mean length of the stream."""
    rated = [p.ratings or {PREFERRED: (1.0, 0.0)} for p in pairs]
    names = list(dims) or sorted({d for r in rated for d in r})
    places = [i for i, r in enumerate(rated) if all(d in r for d in names)]
    if not places:
        known = ", ".join(sorted({d for r in rated for d in r}))
        raise ValueError(
            f"no pair rates all of {', '.join(names)}; the pairs rate {known}: name those in dims, or add the column ratings, "
            "{dimension: [chosen, rejected]}"
        )
    sides = [
        [
            s[0, len(pairs[i].prompt) :].float().cpu()
            for i, s in zip(
                places,
                engine.streams([np.concatenate([pairs[i].prompt, getattr(pairs[i], side)]) for i in places], [layer]),
                strict=True,
            )
        ]
        for side in ("chosen", "rejected")
    ]
    apart = torch.stack([a.mean(0) - b.mean(0) for a, b in zip(*sides, strict=True)]).double()
    points = torch.tensor([[rated[i][d][0] - rated[i][d][1] for d in names] for i in places], dtype=torch.float64)
    vectors = torch.linalg.pinv(points) @ apart
    out = {}
    for name, v in zip(names, vectors, strict=True):
        if not v.norm() > 1e-9:
            raise ValueError(
                f"the pairs' ratings of {name} give no direction: they are alike on both sides, or the answers leave the same "
                "residual stream; rate answers that differ in it, or leave it out of dims"
            )
        out[name] = (v / v.norm()).float()
    length = float(torch.cat([x for side in sides for x in side]).norm(dim=1).mean())
    return out, length


def _gains(engine: Engine, courses: Sequence[_Course], gamma: float) -> np.ndarray:
    """[n, sentences] G of each answer, 0 behind its last; a reward of what is too long for the reward model is 0."""
    rows, whose = [], []
    for i, c in enumerate(courses):
        w = c.writing
        for s in range(1, len(w.parts) + 1):
            rows.append((Account(), np.concatenate([w.ask.prompt, *(p.ids for p in w.parts[:s])])))
            whose.append((i, s))
    reward = np.zeros((len(courses), 1 + max(len(c.writing.parts) for c in courses)))
    for (i, s), value in zip(whose, np.nan_to_num(engine.rate(rows), nan=0.0), strict=True):
        reward[i, s:] = value
    out = np.diff(reward, axis=1)
    for s in range(out.shape[1] - 2, -1, -1):
        out[:, s] += gamma * out[:, s + 1]
    return out


def _replayed(by: Controller, courses: Sequence[_Course]) -> Tensor:
    """[n, sentences] the log-probability of the weights that each answer took, with its gradient; 0 behind its last."""
    memory, out = by.memory(len(courses)), []
    for s in range(max(len(c.writing.parts) for c in courses)):
        on = torch.tensor([i for i, c in enumerate(courses) if s < len(c.reads)], dtype=torch.long)
        mine = torch.zeros(len(courses))
        if len(on):
            logp, after = by(torch.stack([courses[i].reads[s] for i in on.tolist()]), memory[on])
            taken = torch.stack([courses[i].taken[s] for i in on.tolist()])
            mine = mine.index_add(0, on, logp.gather(2, taken[..., None])[..., 0].sum(1))
            memory = memory.index_copy(0, on, after)
        out.append(mine)
    return torch.stack(out, 1)
