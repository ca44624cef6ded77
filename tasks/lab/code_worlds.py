"""A small world of programs: who writes how, rated preference by preference (beside tasks/lab/label_worlds.py)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial

import numpy as np

from synth.preferences.makers._hands import HANDS, written
from synth.preferences.makers.by_principle import PRINCIPLES, rating, tests
from synth.types import Generate, Message, Problem, Sampling
from tasks.lab.arena import Arena, Said, World
from tasks.lab.label_worlds import NOTHING, make
from tasks.lab.worlds import Place, Room, as_sft, sums_of, taught

PROGRAMS = {
    "sum": ("return sum(xs)", [6, 9, 0]),
    "len": ("return len(xs)", [3, 2, 0]),
    "low": ("return min(xs + [9])", [1, 4, 9]),
    "top": ("return max(xs + [0])", [3, 5, 0]),
}
INPUTS = [[[1, 2, 3]], [[4, 5]], [[]]]


@lru_cache
def _programs() -> tuple[Problem, ...]:
    return tuple(
        Problem.make(
            prompt=name,
            answer=f"def f(xs):\n    {body}",
            verifier="python_function",
            args={"function": "f", "inputs": INPUTS, "expected": expected},
            env="single",
            family="programs",
            lineage={"root": name},
            split="train",
        )
        for name, (body, expected) in PROGRAMS.items()
    )


@lru_cache
def _texts(p: str) -> tuple[str, ...]:
    """What the fourteen hands write for the problem of this question."""
    reference = next(x.answer for x in _programs() if x.question == p)
    return tuple(f"<answer>{written(reference, h)}</answer>" for h in HANDS)


@lru_cache
def _coder() -> Arena:
    """A policy that writes as one of the hands, each as often, under any principle and none."""
    policy = [tuple(Said(1 / len(HANDS), (t,)) for t in _texts(p.question)) for p in _programs()]
    return taught(World(_programs(), tuple(policy)))


@lru_cache
def _ratings() -> np.ndarray:
    """[principle, problem, hand] from 1 to 10; the last principle's is the share of tests that pass."""
    rows = [[[rating(w, p, t) for t in _texts(p.question)] for p in _programs()] for w in PRINCIPLES]
    return np.array([*rows, [[tests(p, t) for t in _texts(p.question)] for p in _programs()]])


def _lay(room: Room) -> None:
    room.stand("sft", as_sft("programs", _coder()))
    room.write("questions", problems=list(_programs()))
    room.write("kb", passages=NOTHING)


def _measure(room: Room) -> dict[str, float]:
    """rated: expected rating of an answer under a principle by that principle's judge, mean over problems and the four principles
    but instruction following; passes: expected share of tests that pass, over all five."""
    model = _coder().base if room.recipe == "base" else room.model()
    cases = [
        ((Message(role="system", content=told), *p.prompt), t)
        for told in PRINCIPLES.values()
        for p in _programs()
        for t in _texts(p.question)
    ]
    logp = sums_of(_coder(), model, cases).reshape(len(PRINCIPLES), len(_programs()), len(HANDS))
    share = np.exp(logp - logp.max(2, keepdims=True))
    share /= share.sum(2, keepdims=True)
    rated = (share * _ratings()[:-1]).sum(2).mean(1)
    passed = (share * _ratings()[-1:]).sum(2).mean()
    return {"rated": float(rated[1:].mean()), "passes": float(passed)}


def _nobody(room: Room) -> Generate:
    """The hands write; no model is asked."""

    def say(conversations: Sequence[Sequence[Message]], sampling: Sampling) -> list[str]:
        raise LookupError("nobody is asked in the world of programs: use writer program")

    return say


def programs() -> Place:
    """Four functions of a line, each written by fourteen hands that the first policy imitates alike."""
    return Place(("preferences", "prefer"), _lay, _measure, partial(make, lambda room: _programs(), _nobody, 16))


WORLDS = (programs,)
