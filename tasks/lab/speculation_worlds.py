"""Small worlds for drafters (beside tasks/lab/decode_worlds.py, whose models, pairs and comparisons these are).

What is measured, of a decoder that drafts or of plain draws:

    tokens_per_pass  of the model, behind the prompt; 1 without drafts
    forward_tokens   an answer, prompt and rejected drafts included
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from functools import partial

import numpy as np
from torch import nn

from synth.types import seed_for
from tasks.lab.decode_worlds import END, HIGH, PROMPT, Rng, Tongue, _ended, _prompt, _taught, engine_of
from tasks.lab.worlds import Place, Room
from tasks.planning.pieces import bind, bind_all
from training.decode import Ask, Decoded, Engine, Example
from training.learner.learner import Learner, Optim, nll
from training.learner.pack import Row, pack

QUESTIONS, TAUGHT, ROUNDS, BATCH, KEPT, LENGTH = 40, 150, 20, 8, 3, 12
TABLE = np.random.default_rng(7).permuted(np.tile(np.arange(3, 16), (16, 1)), axis=1)  # [16, 13]: what follows a token


def _spoken(rng: Rng, prompt: np.ndarray) -> np.ndarray:
    """LENGTH tokens, each behind the last by the world's table: its first four entries in 60, 25, 10 and 5 of a hundred."""
    ids, last = [], int(prompt[-1])
    for _ in range(LENGTH):
        last = int(TABLE[last, rng.choice(4, p=[0.6, 0.25, 0.1, 0.05])])
        ids.append(last)
    return _ended(ids)


_GRAMMAR = Tongue(
    answer=_spoken,
    pair=lambda rng, prompt, taste: (_spoken(rng, prompt), _spoken(rng, prompt)),
    wanted=lambda answer, prompt, taste: float(np.isin(answer, HIGH).mean()) if len(answer) else 0.0,
    tokens=LENGTH + 1,
    steps=TAUGHT,
)


def _asks(seed: int, place: str, n: int) -> list[Ask]:
    rng = np.random.default_rng(seed_for(seed, place))
    return [Ask(prompt=_prompt(rng), seed=seed_for(seed, place, i), max_tokens=_GRAMMAR.tokens) for i in range(n)]


def _measured(done: list[Decoded]) -> dict[str, float]:
    """The first token is the prompt's pass; the others are those of passes behind it."""
    tokens = sum(len(d.segment.ids) - 1 for d in done)
    passes = sum(d.account.passes or len(d.segment.ids) - 1 for d in done)
    return {
        "tokens_per_pass": tokens / max(passes, 1),
        "forward_tokens": float(np.mean([d.account.spent for d in done])),
    }


def _measure(rate: float, room: Room) -> dict[str, float]:
    model = _taught(_GRAMMAR, room.seed)
    decode = bind("decode", {"piece": "sample"})
    if "knobs" in room.kept:
        stage = room.kept["knobs"]["evaluate"]
        decode = bind_all(stage.pieces, stage.params, stage.settings)["decoders"][0]
    rng = np.random.default_rng(seed_for(room.seed, "pairs"))
    pairs = []
    for prompt in (_prompt(rng) for _ in range(_GRAMMAR.pairs)):
        chosen, rejected = _GRAMMAR.pair(rng, prompt, np.zeros(0))
        pairs.append(Example(prompt=prompt, chosen=chosen, rejected=rejected))
    if rate:
        model = deepcopy(model)
    engine = engine_of(_GRAMMAR, model, np.zeros(0), room.seed)
    fitted = decode.fit(engine, pairs) if decode.fit else None  # type: ignore[attr-defined]
    if rate:
        return _moved(engine, model, decode, fitted, rate, room.seed)
    return _measured(decode(engine, _asks(room.seed, "questions", QUESTIONS), fitted))


def _moved(
    engine: Engine,
    model: nn.Module,
    decode: Callable[..., list[Decoded]],
    fitted: object,
    rate: float,
    seed: int,
) -> dict[str, float]:
    """ROUNDS updates, at this learning rate, of the policy on the KEPT best of BATCH rollouts, all of them drafted; the last five are measured."""
    learner, late = Learner(model, Optim(lr=rate, warmup=1, steps=ROUNDS)), []
    for r in range(ROUNDS):
        asks = _asks(seed, f"round {r}", BATCH)
        done = decode(engine, asks, fitted)
        if r >= ROUNDS - 5:
            late += done
        worth = [
            _GRAMMAR.wanted(d.segment.ids[d.segment.ids != END], a.prompt, np.zeros(0)) for a, d in zip(asks, done)
        ]
        rows = []
        for i in np.argsort(worth)[-KEPT:]:
            ids = np.concatenate([asks[i].prompt, done[i].segment.ids])
            rows.append(Row(ids=ids, trainable=np.arange(len(ids)) >= PROMPT))
        learner.step(pack(rows), nll)
    return _measured(late)


def grammar() -> Place:
    """A model of a language in which a token has four followers, the likeliest in six cases of ten; drafters learn from its
    sentences."""
    return Place((), lambda room: None, partial(_measure, 0.0))


def moving() -> Place:
    """As `grammar`, while the policy learns from the best of its own rollouts, 20 updates, to say tokens of one kind; what
    the drafter is worth in the last five."""
    return Place((), lambda room: None, partial(_measure, 1e-2))


def drifting() -> Place:
    """As `moving`, at a fifth of its rate: the policy moves and still says many things at the end."""
    return Place((), lambda room: None, partial(_measure, 2e-3))


WORLDS = (grammar, moving, drifting)
