"""A small world of writers: words under clauses, in drafts with and without faults (as tasks/lab/tone_worlds.py has clients)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial
from random import Random
from typing import Any

import numpy as np

from synth.preferences.makers.by_critics import clauses_of, draft, length
from synth.types import Generate, Message, Problem, Sampling, seed_for
from tasks.lab.arena import Arena, Said, World, answer
from tasks.lab.label_worlds import NOTHING, make
from tasks.lab.worlds import Place, Room, as_sft, sums_of, taught

WANTED = ("red sun moon", "big cat hat", "old tree leaf", "hot soup cup", "low sea wind", "dry hay field")
DRAFTS = 8


@lru_cache
def _tasks() -> tuple[Problem, ...]:
    out = []
    for reference in WANTED:
        words = reference.split()
        clauses = [
            {"kind": "words", "n": len(words)},
            {"kind": "begins", "text": words[0][0]},
            {"kind": "ends", "text": words[-1]},
            {"kind": "lacks", "text": "z"},
            {"kind": "capitals", "n": 0},
        ]
        prompt = f"{len(words)} words, from {words[0][0]}, end {words[-1]}"
        out.append(
            Problem.make(
                prompt=prompt,
                answer=reference,
                verifier="clauses",
                args={"clauses": clauses},
                env="single",
                family="writers",
                lineage={"root": prompt},
                split="train",
            )
        )
    return tuple(out)


def _texts(p: Problem) -> tuple[str, ...]:
    """The reference and seven other drafts."""
    rng = Random(seed_for(0, "writers", p.answer))
    texts = {answer(p.answer): None}
    while len(texts) < DRAFTS:
        texts[answer(draft(p.answer, rng))] = None
    return tuple(texts)


@lru_cache
def _writer() -> Arena:
    """A policy that says each draft as often."""
    return taught(World(_tasks(), tuple(tuple(Said(1 / DRAFTS, (t,)) for t in _texts(p)) for p in _tasks())), layers=2)


def _lay(room: Room) -> None:
    room.stand("sft", as_sft("writers", _writer()))
    room.write("questions", problems=list(_tasks()))
    room.write("kb", passages=NOTHING)


def _measure(room: Room) -> dict[str, float]:
    """rated: expected share of the clauses that the eight drafts keep; passes: expected share of drafts that keep all; length: expected
    number of words more than asked for."""
    model = _writer().base if room.recipe == "base" else room.model()
    cases = [(p, t) for p in _tasks() for t in _texts(p)]
    logp = sums_of(_writer(), model, [(p.prompt, t) for p, t in cases]).reshape(len(_tasks()), -1)
    share = np.exp(logp - logp.max(1, keepdims=True))
    share /= share.sum(1, keepdims=True)
    kept = np.array([np.mean(clauses_of(p, t)) for p, t in cases]).reshape(share.shape)
    more = np.array([length(t) - length(answer(p.answer)) for p, t in cases]).reshape(share.shape)
    return {
        "rated": float((share * kept).sum(1).mean()),
        "passes": float((share * (kept == 1)).sum(1).mean()),
        "length": float((share * more).sum(1).mean()),
    }


def _nobody(room: Room) -> Generate:
    """Drafts are written by the program; no model is asked."""

    def say(conversations: Sequence[Sequence[Message]], sampling: Sampling) -> list[str]:
        raise LookupError("nobody is asked in the world of writers: use writer program")

    return say


def writers() -> Place:
    """Six tasks of three words under five clauses, each in eight drafts that the first policy imitates alike."""
    problems: Any = lambda room: _tasks()
    return Place(("preferences", "prefer"), _lay, _measure, partial(make, problems, _nobody, 16))


WORLDS = (writers,)
