"""Small worlds for merges: a model of four blocks has learned to answer in one way mostly, copies of it learn others to the end and
forget, and merges of them are measured. No merge is trained.

A question is a word for the way, then LENGTH tokens: `old` wants them as they are, `first` from the last to the first, `second` each as the
next in a circle. Of each question the right answer is one; the model's probability of it is what is measured, so that
seeds differ by more than whole answers:

    old   mean probability of right answers to questions of the base's way
    new   the same of the ways that were learned behind it
    both  the mean of `old` and `new`

`two_skills` merges a copy that learned `first` and one that learned `second`; `forgotten` has one that learned `first` alone.
A protocol compares the first of a recipe's `evaluate.merges` with another; `base` is the model as it was before.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from functools import lru_cache, partial

import numpy as np
import torch
from torch import nn

from synth.types import seed_for
from tasks.lab.decode_worlds import END, _Vocabulary
from tasks.lab.worlds import Place, Room
from tasks.planning.pieces import bind_all
from training.learner.learner import Learner, Optim, nll, score
from training.learner.pack import Row, pack
from training.model.model import new_model
from training.model.residual import input_sizes

LENGTH, FIRST, TOKENS, QUESTIONS, BATCH = 3, 3, 12, 200, 32
WAYS = {"old": 17, "first": 18, "second": 19}  # the word that asks for each
BASE, MORE = 400, 120  # steps of the base, and of each copy
SHARE = {"old": 0.8, "first": 0.1, "second": 0.1}  # of the base's lessons


def _row(way: str, rng: np.random.Generator) -> Row:
    ids = rng.integers(0, TOKENS, LENGTH)
    reply = {"old": ids, "first": ids[::-1], "second": (ids + 1) % TOKENS}[way]
    whole = np.concatenate([[WAYS[way]], ids + FIRST, reply + FIRST, [END]]).astype(np.int64)
    return Row(ids=whole, trainable=np.arange(len(whole)) > LENGTH)


def _learn(model: nn.Module, share: Mapping[str, float], steps: int, seed: int) -> nn.Module:
    rng, learner = np.random.default_rng(seed), Learner(model, Optim(lr=3e-3, warmup=10, steps=steps))
    for _ in range(steps):
        ways = rng.choice(list(share), BATCH, p=list(share.values()))
        learner.step(pack([_row(way, rng) for way in ways]), nll)
    return model


@lru_cache(maxsize=64)
def _learned(way: str, seed: int) -> nn.Module:
    """The base, or a copy of it that has learned a way."""
    if way != "old":
        return _learn(deepcopy(_learned("old", seed)), {way: 1.0}, MORE, seed_for(seed, "merge worlds", way))
    model = new_model(
        _Vocabulary(),  # type: ignore[arg-type]
        hidden=32,
        layers=4,
        heads=4,
        kv_heads=2,
        intermediate=64,
        max_length=16,
        init_range=0.1,
        seed=seed_for(seed, "merge worlds", "model"),
    )
    return _learn(model, SHARE, BASE, seed_for(seed, "merge worlds", "old"))


def _weights(model: nn.Module) -> dict[str, torch.Tensor]:
    return {n: p.detach() for n, p in model.named_parameters()}


def measure(ways: tuple[str, ...], room: Room) -> dict[str, float]:
    """See the head of this file."""
    model = deepcopy(_learned("old", room.seed))
    if "knobs" in room.kept:
        stage = room.kept["knobs"]["evaluate"]
        merge = bind_all(stage.pieces, stage.params, stage.settings)["merges"][0]
        rng = np.random.default_rng(seed_for(room.seed, "prompts"))
        prompts = [_row("old", rng).ids[: LENGTH + 1].tolist() for _ in range(32)]
        others = [_weights(_learned(w, room.seed)) for w in ways]
        chance = torch.Generator().manual_seed(seed_for(room.seed, "merge") % 2**63)
        weights = merge(_weights(model), others, input_sizes(model, prompts), chance)
        with torch.no_grad():
            for name, p in model.named_parameters():
                p.copy_(weights[name])
    right = {w: _right(model, w, room.seed) for w in ("old", *ways)}
    new = float(np.mean([right[w] for w in ways]))
    return {"old": right["old"], "new": new, "both": (right["old"] + new) / 2}


def _right(model: nn.Module, way: str, seed: int) -> float:
    rng = np.random.default_rng(seed_for(seed, "questions", way))
    batch = pack([_row(way, rng) for _ in range(QUESTIONS)])
    with torch.no_grad():
        return float(batch.row_sum(score(model, batch).logp).exp().mean())


def two_skills() -> Place:
    """See the head of this file."""
    return Place((), lambda room: None, partial(measure, ("first", "second")))


def forgotten() -> Place:
    """See the head of this file."""
    return Place((), lambda room: None, partial(measure, ("first",)))


WORLDS = (two_skills, forgotten)
