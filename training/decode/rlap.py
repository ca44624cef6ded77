"""RLAP: a task of several sub-tasks, done one at a time in an order that a small network has learned.

"RLAP: A Reinforcement Learning Enhanced Adaptive Planning Framework for Multi-step NLP Task Solving" 2025; read in the
abstract, what the network reads and how sub-tasks are asked is our reading.

    s = the prompt and the results so far     a = a sub-task that is left     r = what its result adds to the reward
    y = r + gamma max_a' Q'(s', a')           the next sub-task: argmax_a Q(s, a)

`tasks` are texts; the model reads the prompt, the sub-task's text and the results so far, and writes up to `piece_tokens`
of its result. Behind the results of all of them the answer is finished plainly. The network (training/decode/_dqn.py) reads
the mean input embedding of the prompt, that of the results, and which sub-tasks are left: no forward tokens. It learns on
the prompts of the pairs, epsilon falling from 1 to 0.1, from the reward model, which reads the results after each sub-task;
answering needs no reward model. order: "random" and "listed" are the controls. Where the budget is short, the rest is drawn
plainly.

Leaves out an encoder that reads the words of a sub-task (it is one action of a list), and the score of each task by gold
labels (the reward model's reward).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from synth.types import seed_for
from training.decode import Account, Ask, Decoded, Engine, Example
from training.decode._dqn import Choose, Step, Values, chosen, explored
from training.decode._segments import Writing, begun, finish, options

NEEDS = {"reward_model"}
TASKS = ("First, what is given?\n", "Now, what is asked?\n", "Next, one step.\n")


@dataclass(frozen=True, kw_only=True)
class Planner:
    """values: Q; returns: mean return of the first and the last tenth of the episodes."""

    values: Any
    returns: tuple[float, float]


def rlap(
    engine: Engine,
    asks: Sequence[Ask],
    fitted: Any,
    *,
    tasks: Sequence[str] = TASKS,
    piece_tokens: int = 8,
    hidden: int = 64,
    gamma: float = 0.9,
    episodes: int = 400,
    order: Literal["learned", "random", "listed"] = "learned",
    seed: int = 0,
) -> list[Decoded]:
    embedding = engine.embedding() if order == "learned" else None
    if embedding is not None:
        _fits(fitted, embedding, tasks)

    def choose(places: Sequence[int], states: Sequence[np.ndarray], allowed: Sequence[np.ndarray]) -> list[int]:
        if order == "learned":
            return chosen(fitted.values, states, allowed)
        if order == "listed":
            return [int(np.argmax(a)) for a in allowed]
        chance = [
            np.random.default_rng(seed_for(asks[i].seed, "order", int(a.sum())))
            for i, a in zip(places, allowed, strict=True)
        ]
        return [int(rng.choice(np.flatnonzero(a))) for rng, a in zip(chance, allowed, strict=True)]

    writings = begun(asks)
    _done(engine, writings, embedding, choose, tasks, piece_tokens, None)
    return [w.decoded() for w in writings]


def _fits(fitted: Any, embedding: Tensor, tasks: Sequence[str]) -> None:
    reads, knows = fitted.values.body[0].in_features, fitted.values.advantage.out_features
    if knows != len(tasks) or reads != 2 * embedding.shape[1] + knows:
        raise ValueError(
            f"this planner was made for {knows} sub-tasks and embeddings of {(reads - knows) // 2}, and there are "
            f"{len(tasks)} and {embedding.shape[1]}: fit it anew with this model and these tasks"
        )


def _state(w: Writing, left: np.ndarray, embedding: Tensor | None) -> np.ndarray:
    if embedding is None:
        return left.astype(np.float64)
    read = [
        embedding[torch.from_numpy(ids)].float().mean(0) if len(ids) else embedding.new_zeros(embedding.shape[1])
        for ids in (w.ask.prompt, w.ids)
    ]
    return np.concatenate([*(r.cpu().numpy() for r in read), left])


def _done(
    engine: Engine,
    writings: Sequence[Writing],
    embedding: Tensor | None,
    choose: Choose,
    tasks: Sequence[str],
    piece: int,
    hear: Callable[[int, Step], None] | None,
) -> None:
    """Every sub-task once, in the order that `choose` names, then the rest; `hear` is told each step of each, by its place,
    and has the reward model read the results."""
    texts = [engine.ids(t) if engine.ids is not None else np.zeros(0, dtype=np.int64) for t in tasks]
    longest = max((len(t) for t in texts), default=0)
    left = [np.ones(len(tasks), dtype=bool) for _ in writings]
    value = [0.0] * len(writings)
    while open_ := [i for i, w in enumerate(writings) if left[i].any() and _room(w, longest, piece)]:
        mine = [writings[i] for i in open_]
        states = [_state(w, left[i], embedding) for i, w in zip(open_, mine, strict=True)]
        actions = choose(open_, states, [left[i] for i in open_])
        for i, w, a in zip(open_, mine, actions, strict=True):
            left[i][a] = False
            w.hint = texts[a]
        for w, few in zip(mine, options(engine, mine, 1, piece, least=1), strict=True):
            for one in few:
                w.take(_open(one))
                w.over = len(w.ids) >= w.ask.max_tokens
            w.hint = texts[0][:0]
        if hear is None:
            continue
        read = np.nan_to_num(engine.rate([(Account(), w.context) for w in mine]), nan=0.0).tolist()
        for i, w, s, a, now in zip(open_, mine, states, actions, read, strict=True):
            more = left[i].any() and _room(w, longest, piece)
            after = (_state(w, left[i], embedding), left[i].copy()) if more else None
            hear(i, Step(state=s, action=a, reward=now - value[i], after=after))
            value[i] = now
    if rest := [w for w in writings if not w.over and hear is None]:
        finish(engine, rest)


def _room(w: Writing, longest: int, piece: int) -> bool:
    """Whether the budget has room for one more sub-task, and the rest of the answer behind it."""
    read = len(w.context) + longest
    return not w.over and w.account.left >= 2 * read + piece + w.ask.max_tokens


def _open(part: Any) -> Any:
    """A result without the token that ends a turn: the answer goes on behind it."""
    if part.stop == "length":
        return part
    short = {k: v[:-1] for k, v in (("logp", part.logp), ("entropy", part.entropy)) if v is not None}
    return replace(part, ids=part.ids[:-1], stop="length", **short)


def fit(
    engine: Engine,
    pairs: Sequence[Example],
    *,
    tasks: Sequence[str] = TASKS,
    piece_tokens: int = 8,
    hidden: int = 64,
    gamma: float = 0.9,
    episodes: int = 400,
    order: Literal["learned", "random", "listed"] = "learned",
    seed: int = 0,
) -> Planner | None:
    """The planner, after so many episodes on the prompts of the pairs, 16 at a time; None for an order that is not learned.
    Raises ValueError for fewer than two tasks, and for a piece of no tokens."""
    if len(tasks) < 2 or len(set(tasks)) < len(tasks) or piece_tokens < 1:
        raise ValueError(
            f"tasks are {list(tasks)} and piece_tokens is {piece_tokens}: an order needs two sub-tasks or more, each of "
            "them once, and a result has 1 token or more"
        )
    if order != "learned":
        return None
    embedding = engine.embedding()
    values = Values(2 * embedding.shape[1] + len(tasks), len(tasks), hidden, seed_for(seed, "planner"))
    returns = explored(
        engine,
        pairs,
        values,
        lambda asks, choose, hear: _done(engine, begun(asks), embedding, choose, tasks, piece_tokens, hear),
        episodes=episodes,
        gamma=gamma,
        floor=0.1,
        seed=seed,
    )
    return Planner(values=values, returns=returns)
