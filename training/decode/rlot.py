"""RL of Thoughts: a navigator of a few thousand weights decides after each piece which block of reasoning comes next.

"RL of Thoughts: Navigating LLM Reasoning with Inference-time Reinforcement Learning" 2025 (arXiv 2505.14140);
the blocks and the learner are the paper's; how each is done with one small model is our reading.

    reason      one more piece of `piece_tokens`                    decompose   two pieces of half the length, each the
    debate      the best of three candidates for the next piece                 better of two
    refine      the last piece anew; the better of the two stays    end         the rest in one draw

Better is what the reward model, in the place of a process reward model, gives the conversation so far. State [7]: what is
written and how many blocks were used, as shares; mean log-prob and entropy of the last piece; the reward and its last
change; whether the last block was refine. Reward of a block: the change of the reward, less `toll` times the share of
forward tokens of `max_steps` plain answers. The navigator (training/decode/_dqn.py) learns on the prompts of the pairs,
epsilon falling from 1 to 0.05. refine needs a piece; at max_steps, or where the budget is short, end is all that is left.
navigator: "random" is the control.

Leaves out the model that grades its own work, and training on hard questions alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from synth.types import seed_for
from training.decode import Ask, Decoded, Engine, Example
from training.decode._dqn import Choose, Step, Values, chosen, explored
from training.decode._segments import Writing, begun, continued, finish, options

NEEDS = {"reward_model"}
BLOCKS = ("reason", "decompose", "debate", "refine", "end")
DRAWS = {"reason": 1, "decompose": 2, "debate": 3, "refine": 1}


@dataclass(frozen=True, kw_only=True)
class Navigator:
    """values: Q; weights: how many it has; returns: mean return of the first and the last tenth of the episodes."""

    values: Any
    weights: int
    returns: tuple[float, float]


@dataclass(kw_only=True)
class _Course:
    """One answer on its way: its reward now, the change by the last block, and the last block."""

    writing: Writing
    value: float = 0.0
    change: float = 0.0
    last: int = -1
    used: int = 0

    def state(self, max_steps: int) -> np.ndarray:
        w, part = self.writing, self.writing.parts[-1] if self.writing.parts else None
        logp = float(np.mean(part.logp)) if part is not None and part.logp is not None and len(part.logp) else 0.0
        doubt = (
            float(np.mean(part.entropy)) if part is not None and part.entropy is not None and len(part.entropy) else 0.0
        )
        shares = [len(w.ids) / w.ask.max_tokens, self.used / max_steps]
        return np.array([*shares, logp, doubt, self.value, self.change, float(self.last == 3)])


def rlot(
    engine: Engine,
    asks: Sequence[Ask],
    fitted: Any,
    *,
    piece_tokens: int = 8,
    max_steps: int = 8,
    hidden: int = 32,
    gamma: float = 0.9,
    toll: float = 0.1,
    episodes: int = 400,
    navigator: Literal["learned", "random"] = "learned",
    seed: int = 0,
) -> list[Decoded]:
    def choose(places: Sequence[int], states: Sequence[np.ndarray], allowed: Sequence[np.ndarray]) -> list[int]:
        if navigator == "learned":
            return chosen(fitted.values, states, allowed)
        return [
            _any(seed_for(asks[i].seed, "navigator", str(s.tolist())), a)
            for i, s, a in zip(places, states, allowed, strict=True)
        ]

    return [
        c.writing.decoded() for c in _walked(engine, asks, choose, piece_tokens, max_steps, toll, lambda i, step: None)
    ]


def _any(seed: int, allowed: np.ndarray) -> int:
    return int(np.random.default_rng(seed).choice(np.flatnonzero(allowed)))


def _walked(
    engine: Engine,
    asks: Sequence[Ask],
    choose: Choose,
    piece: int,
    max_steps: int,
    toll: float,
    hear: Callable[[int, Step], None],
) -> list[_Course]:
    """Answers by blocks that `choose` names; `hear` is told each step of each, by its place."""
    courses = [_Course(writing=w) for w in begun(asks)]
    before: dict[int, tuple[np.ndarray, int, float]] = {}
    while open_ := [i for i, c in enumerate(courses) if not c.writing.over]:
        states = [courses[i].state(max_steps) for i in open_]
        allowed = [_allowed(courses[i], piece, max_steps) for i in open_]
        for i, s, a in zip(open_, states, allowed, strict=True):
            if i in before:
                hear(i, Step(state=before[i][0], action=before[i][1], reward=before[i][2], after=(s, a)))
        actions = choose(open_, states, allowed)
        spent = [courses[i].writing.account.spent for i in open_]
        for block, name in enumerate(BLOCKS):
            mine = [courses[i] for i, a in zip(open_, actions, strict=True) if a == block]
            if mine:
                _take(engine, mine, name, piece)
        for i, s, a, was in zip(open_, states, actions, spent, strict=True):
            c = courses[i]
            c.last, c.used = a, c.used + 1
            plain = max_steps * (len(c.writing.ask.prompt) + c.writing.ask.max_tokens)
            before[i] = (s, a, c.change - toll * (c.writing.account.spent - was) / plain)
            if c.writing.over:
                hear(i, Step(state=s, action=a, reward=before[i][2], after=None))
    return courses


def _allowed(course: _Course, piece: int, max_steps: int) -> np.ndarray:
    w = course.writing
    context = len(w.context) + piece
    # The dearest block, with its verdicts, and the rest behind it.
    short = w.account.left < 5 * (2 * context + piece) + context + w.ask.max_tokens
    if course.used >= max_steps - 1 or short:
        return np.array([False, False, False, False, True])
    return np.array([True, True, True, bool(w.parts), True])


def _take(engine: Engine, courses: Sequence[_Course], name: str, piece: int) -> None:
    """Carry one block out for each of these answers, and have the reward model read what is written."""
    writings = [c.writing for c in courses]
    was = [c.value for c in courses]
    if name == "end":
        finish(engine, writings)
        _read(engine, courses)
    elif name == "decompose":
        for _ in range(2):
            _best(engine, [c for c in courses if not c.writing.over], DRAWS[name], max(1, piece // 2))
    elif name == "refine":
        kept = [(w.parts[-1], c.value) for w, c in zip(writings, courses, strict=True)]
        for w in writings:
            w.cut(len(w.ids) - len(w.parts[-1].ids))
        _best(engine, courses, DRAWS[name], piece)
        for c, (part, value) in zip(courses, kept, strict=True):
            if c.value < value:
                c.writing.cut(len(c.writing.ids) - len(c.writing.parts[-1].ids))
                c.writing.take(part)
                c.value = value
    else:
        _best(engine, courses, DRAWS[name], piece)
    for c, value in zip(courses, was, strict=True):
        c.change = c.value - value


def _best(engine: Engine, courses: Sequence[_Course], k: int, size: int) -> None:
    """The best of k candidates for the next piece of each."""
    writings = [c.writing for c in courses]
    drawn = options(engine, writings, k, size, least=1, reads=True)
    rows = continued(writings, drawn)
    values = iter(np.nan_to_num(engine.rate(rows), nan=0.0).tolist() if rows else [])
    for c, few in zip(courses, drawn, strict=True):
        mine = [next(values) for _ in few]
        if few:
            place = int(np.argmax(mine))
            c.writing.take(few[place])
            c.value = mine[place]


def _read(engine: Engine, courses: Sequence[_Course]) -> None:
    """The reward of what is written, where the budget lets the reward model read it."""
    can = [c for c in courses if c.writing.account.left > len(c.writing.context)]
    if can:
        values = engine.rate([(c.writing.account, c.writing.context) for c in can])
        for c, value in zip(can, np.nan_to_num(values, nan=0.0).tolist(), strict=True):
            c.value = value


def fit(
    engine: Engine,
    pairs: Sequence[Example],
    *,
    piece_tokens: int = 8,
    max_steps: int = 8,
    hidden: int = 32,
    gamma: float = 0.9,
    toll: float = 0.1,
    episodes: int = 400,
    navigator: Literal["learned", "random"] = "learned",
    seed: int = 0,
) -> Navigator:
    """The navigator, after so many episodes on the prompts of the pairs, 16 at a time. Raises ValueError for fewer than two
    steps."""
    if max_steps < 2 or piece_tokens < 1:
        raise ValueError(
            f"max_steps is {max_steps} and piece_tokens {piece_tokens}: steps are 2 or more, a piece has 1 token or more"
        )
    values = Values(7, len(BLOCKS), hidden, seed_for(seed, "navigator"))
    returns = explored(
        engine,
        pairs,
        values,
        lambda asks, choose, hear: _walked(engine, asks, choose, piece_tokens, max_steps, toll, hear),
        episodes=episodes if navigator == "learned" else 0,
        gamma=gamma,
        floor=0.05,
        seed=seed,
    )
    return Navigator(values=values, weights=sum(p.numel() for p in values.parameters()), returns=returns)
