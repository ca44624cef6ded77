"""A small world of prompts for a painter (synth/scenes/painter.py): a rewriter, a ranker made from it by a preference loss, and
pictures that are painted and measured.

A prompt names two things, of which the first shall be the larger; a rewrite is a frame and a relation, a token each. The rewriter (the
reference of the decoder) is taught rewrites of which half were measured to work and half are any of the forty. Pairs are eight draws of
it for each of the prompts of training: the first that works over the first that does not, as the maker `best_vs_worst` has them. The
ranker begins as the rewriter and learns from them with the recipe's `prefer.loss`. Asked are prompts of which there are no pairs, and
which the rewriter was not taught. What is measured:

    wanted          share of the chosen rewrites whose pictures show the first thing as the larger one, by `synth.verify`
    surprise        nats per token under the rewriter
    forward_tokens  of both models, an answer
"""

from __future__ import annotations

from copy import deepcopy
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import nn

from synth.scenes.painter import FRAMES, NAMES, RELATIONS, honoured, phrased
from synth.types import Problem, Sampling, Scored, seed_for, split_of
from synth.verify import verify
from tasks.lab.worlds import Place, Room
from tasks.planning.pieces import bind, bind_all
from training.decode import Ask, Engine
from training.learner.learner import Learner, Optim, nll
from training.learner.pack import Row, pack
from training.model.model import new_model
from training.preference.objective import PairObjective
from training.rollout.torch_sampler import TorchSampler

END, NAME, FRAME = 2, 3, 3 + len(NAMES)
RELATION = FRAME + len(FRAMES)
TAUGHT, LEARNED, DRAWS, ASKED = 300, 40, 8, 4  # steps of the rewriter and of the ranker, draws a prompt, asks a prompt
PAIRS = [(a, b) for b in range(len(NAMES)) for a in range(b)]
HELD = [p for p in PAIRS if split_of(f"painter:{p}") != "train"]
KNOWN = [p for p in PAIRS if p not in HELD]
Rng = np.random.Generator


class _Vocabulary:
    """In the place of a tokenizer."""

    eos_token_id, pad_token_id = END, 0

    def __len__(self) -> int:
        return RELATION + len(RELATIONS)


def prompt_of(a: int, b: int) -> np.ndarray:
    return np.array([NAME + a, NAME + b], dtype=np.int64)


def rewrite(k: int) -> np.ndarray:
    """Ids of phrasing k, with their end."""
    return np.array([FRAME + k // len(RELATIONS), RELATION + k % len(RELATIONS), END], dtype=np.int64)


def works(a: int, b: int, ids: np.ndarray) -> bool:
    """Whether the picture of a rewrite shows a as larger than b; ids that are no rewrite do not work."""
    if len(ids) < 2 or not FRAME <= ids[0] < RELATION <= ids[1]:
        return False
    k = int(ids[0] - FRAME) * len(RELATIONS) + int(ids[1] - RELATION)
    problem = Problem.make(
        prompt="?",
        answer=phrased(honoured(NAMES[a])[0], NAMES[a], NAMES[b]),
        verifier="painted",
        args={"a": NAMES[a], "b": NAMES[b]},
        family="painter",
        split="train",
    )
    score = verify(problem, phrased(k, NAMES[a], NAMES[b]))
    return isinstance(score, Scored) and score.value == 1.0


def _row(prompt: np.ndarray, answer: np.ndarray) -> Row:
    ids = np.concatenate([prompt, answer])
    return Row(ids=ids, trainable=np.arange(len(ids)) >= len(prompt))


@lru_cache(maxsize=2)
def rewriter(seed: int) -> nn.Module:
    """Taught KNOWN prompts alone."""
    rng = np.random.default_rng(seed_for(seed, "painter"))
    model = new_model(
        _Vocabulary(),  # type: ignore[arg-type]
        hidden=32,
        layers=2,
        heads=4,
        kv_heads=2,
        intermediate=48,
        max_length=16,
        init_range=0.1,
        seed=seed_for(seed, "painter", "model"),
    )
    learner = Learner(model, Optim(lr=5e-3, warmup=5, steps=TAUGHT))
    for _ in range(TAUGHT):
        rows = []
        for _ in range(24):
            a, b = KNOWN[rng.integers(len(KNOWN))]
            k = rng.choice(honoured(NAMES[a])) if rng.random() < 0.5 else rng.integers(len(FRAMES) * len(RELATIONS))
            rows.append(_row(prompt_of(a, b), rewrite(int(k))))
        learner.step(pack(rows), nll)
    return model


def engine_of(model: nn.Module, called: str = "policy", reference: Engine | None = None) -> Engine:
    return Engine(
        sampler=TorchSampler(model, END),
        text=lambda ids: " ".join(map(str, ids)),
        said=lambda ids: " ".join(map(str, ids)),
        sampling=Sampling(max_tokens=3),
        called=called,
        reference=reference,
    )


def drawn_pairs(before: Engine, seed: int) -> list[Row]:
    """Rows chosen, rejected, chosen, ... of the prompts of training whose draws hold both."""
    prompts = [p for p in KNOWN for _ in range(DRAWS)]
    seeds = [seed_for(seed, "drawn", i) for i in range(len(prompts))]
    session = before.sampler.open([prompt_of(*p) for p in prompts], seeds)
    drawn = [s.ids for s in session.generate(before.sampling)]
    rows = []
    for i in range(0, len(prompts), DRAWS):
        worked = [works(*prompts[i], ids) for ids in drawn[i : i + DRAWS]]
        if len(set(worked)) == 2:
            rows += [_row(prompt_of(*prompts[i]), drawn[i + worked.index(side)]) for side in (True, False)]
    return rows


def ranker(first: nn.Module, rows: list[Row], loss: Any, seed: int) -> nn.Module:
    """A copy of the rewriter after LEARNED steps of 16 pairs."""
    model = deepcopy(first)
    objective = PairObjective(loss=loss, reference=first)
    learner = Learner(model, Optim(lr=1e-3, warmup=0, steps=LEARNED))
    rng = np.random.default_rng(seed_for(seed, "ranker"))
    for _ in range(LEARNED):
        some = rng.choice(len(rows) // 2, min(16, len(rows) // 2), replace=False)
        batch = pack([rows[2 * int(i) + side] for i in some for side in range(2)])
        batch.totals["pairs"] = float(len(some))
        objective.prepare(batch)
        learner.step(batch, objective)
    return model


def _measure(room: Room) -> dict[str, float]:
    first = rewriter(room.seed)
    before = engine_of(first, "reference")
    asks = [
        Ask(prompt=prompt_of(*p), seed=seed_for(room.seed, "ask", *p, i), max_tokens=3)
        for p in HELD
        for i in range(ASKED)
    ]
    if "knobs" in room.kept:
        evaluate, prefer = room.kept["knobs"]["evaluate"], room.kept["knobs"]["prefer"]
        decode = bind_all(evaluate.pieces, evaluate.params, evaluate.settings)["decoders"][0]
        loss = bind_all(prefer.pieces, prefer.params, prefer.settings)["loss"]
        model = ranker(first, drawn_pairs(before, room.seed), loss, room.seed)
        done = decode(engine_of(model, reference=before), asks, None)
    else:  # the recipe "base": one draw of the rewriter
        done = bind("decode", {"piece": "sample"})(before, asks, None)
    drawn = [d.segment.ids for d in done]
    chosen = [works(*p, ids) for p, ids in zip((p for p in HELD for _ in range(ASKED)), drawn, strict=True)]
    with torch.no_grad():
        logp = before.logp([(a.prompt, ids) for a, ids in zip(asks, drawn, strict=True)])
    return {
        "wanted": float(np.mean(chosen)),
        "surprise": float(-logp.sum() / sum(map(len, drawn))),
        "forward_tokens": float(np.mean([d.account.spent for d in done])),
    }


def painter() -> Place:
    """Prompts for a painter with a habit. Wanted: a rewrite whose picture shows the usually smaller thing as the larger."""
    return Place((), lambda room: None, _measure)


WORLDS = (painter,)
