"""A small world of clients: the same answer in six tones, rated beside what is meant by the question (as tasks/lab/code_worlds.py)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np

from synth.preferences.makers.by_tone import asked, inferred, rating, replies
from synth.types import Generate, Message, Problem, Sampling
from tasks.lab.arena import Arena, Said, World
from tasks.lab.label_worlds import NOTHING, make
from tasks.lab.worlds import Place, Room, as_sft, sums_of, taught

MEANT = ("xIntent", "xReact")  # relations that the recipe infers
ASKED = {"tax b": "b", "fund c": "c", "loan d": "d", "price f": "f"}


@lru_cache
def _clients() -> tuple[Problem, ...]:
    about: dict[str, Any] = {"verifier": "exact", "env": "single", "family": "clients", "split": "train"}
    return tuple(Problem.make(prompt=q, answer=x, lineage={"root": q}, **about) for q, x in ASKED.items())


def _texts(p: Problem) -> list[str]:
    """What the clerks say: right, and each of them with an answer that is none."""
    right = replies(p, inferred(p.question, MEANT))
    return [*right, *(t.replace(f"<answer>{p.answer}<", "<answer>?<") for t in right)]


@lru_cache
def _clerk() -> Arena:
    """A policy that speaks in each tone as often, rightly nine times in ten, behind what is meant."""
    policy = []
    for p in _clients():
        texts = _texts(p)
        half = len(texts) // 2
        policy.append(tuple(Said((0.9 if i < half else 0.1) / half, (t,)) for i, t in enumerate(texts)))
    about: dict[str, Any] = {"verifier": "exact", "env": "single", "family": "clients", "split": "train"}
    behind = [Problem.make(prompt=asked(p, inferred(p.question, MEANT)), answer=p.answer, **about) for p in _clients()]
    return taught(World(tuple(behind), tuple(policy)))


def _lay(room: Room) -> None:
    room.stand("sft", as_sft("clients", _clerk()))
    room.write("questions", problems=list(_clients()))
    room.write("kb", passages=NOTHING)


def _measure(room: Room) -> dict[str, float]:
    """rated: expected rating of the tone of a reply, behind what is meant; passes: expected share of right replies."""
    model = _clerk().base if room.recipe == "base" else room.model()
    cases, worth, right = [], [], []
    for p in _clients():
        meant = inferred(p.question, MEANT)
        texts = _texts(p)
        cases += [(asked(p, meant), t) for t in texts]
        worth.append([float(np.mean(list(rating(t, meant).values()))) for t in texts])
        right.append([f"<answer>{p.answer}<" in t for t in texts])
    logp = sums_of(_clerk(), model, cases).reshape(len(worth), -1)
    share = np.exp(logp - logp.max(1, keepdims=True))
    share /= share.sum(1, keepdims=True)
    return {
        "rated": float((share * np.array(worth)).sum(1).mean()),
        "passes": float((share * np.array(right)).sum(1).mean()),
    }


def _nobody(room: Room) -> Generate:
    """The clerks write; no model is asked."""

    def say(conversations: Sequence[Sequence[Message]], sampling: Sampling) -> list[str]:
        raise LookupError("nobody is asked in the world of clients: use writer program")

    return say


UNSEEN = {"brackets g": "g", "deposit h": "h", "debt j": "j", "cost k": "k"}


@lru_cache
def _strangers() -> tuple[Problem, ...]:
    """A question of each theme in a word that no client of training uses."""
    about: dict[str, Any] = {"verifier": "exact", "env": "single", "family": "clients", "split": "test"}
    return tuple(Problem.make(prompt=q, answer=x, lineage={"root": q}, **about) for q, x in UNSEEN.items())


@lru_cache
def _frank_clerk() -> Arena:
    """A policy that speaks in each tone as often, rightly seven times in ten, to clients and strangers."""
    policy, behind = [], []
    about: dict[str, Any] = {"verifier": "exact", "env": "single", "family": "clients", "split": "train"}
    for p in (*_clients(), *_strangers()):
        texts = _texts(p)
        half = len(texts) // 2
        policy.append(tuple(Said((0.7 if i < half else 0.3) / half, (t,)) for i, t in enumerate(texts)))
        behind.append(Problem.make(prompt=asked(p, inferred(p.question, MEANT)), answer=p.answer, **about))
    return taught(World(tuple(behind), tuple(policy)), layers=2)


def _lay_apart(room: Room) -> None:
    room.stand("sft", as_sft("clients apart", _frank_clerk()))
    room.write("questions", problems=list(_clients()))
    room.write("kb", passages=NOTHING)


def _measure_apart(room: Room) -> dict[str, float]:
    """passes: probability that a reply to a stranger is right and has the best tone; known: that one to those who were learned from is."""
    model = _frank_clerk().base if room.recipe == "base" else room.model()
    out = {}
    for name, people in (("passes", _strangers()), ("known", _clients())):
        good = []
        for p in people:
            meant = inferred(p.question, MEANT)
            texts = _texts(p)
            logp = sums_of(_frank_clerk(), model, [(asked(p, meant), t) for t in texts])
            share = np.exp(logp - np.logaddexp.reduce(logp))
            fine = [min(rating(t, meant).values()) == 1 and f"<answer>{p.answer}<" in t for t in texts]
            good.append(float(share[fine].sum()))
        out[name] = float(np.mean(good))
    return out


def clients_apart() -> Place:
    """Four questions of clients to learn from, and four of the same themes in other words to be measured on."""
    return Place(
        ("preferences", "prefer"), _lay_apart, _measure_apart, partial(make, lambda room: _clients(), _nobody, 16)
    )


def clients() -> Place:
    """Four questions of clients, each answered in six tones that the first policy imitates alike."""
    return Place(("preferences", "prefer"), _lay, _measure, partial(make, lambda room: _clients(), _nobody, 16))


WORLDS = (clients, clients_apart)
