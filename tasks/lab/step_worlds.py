"""A small world of step verifiers: chains of two sums said in eight languages, of which one is in no pair."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial
from random import Random

import numpy as np

from synth.preferences.flawed import Flawed
from synth.preferences.makers.aligned_steps import TONGUES, Step, chain, told, translated, wrong
from synth.types import Generate, PreferencePair, Problem, seed_for
from tasks.lab.arena import Arena, Said, World, answer, worked
from tasks.lab.label_worlds import NOTHING, make
from tasks.lab.worlds import Place, Room, as_sft, taught

UNSEEN = "basque"
AGGREGATES = {"min": lambda r: r.min(), "product": lambda r: -np.logaddexp(0.0, -r).sum(), "last": lambda r: r[-1]}


@lru_cache
def _chains() -> tuple[Problem, ...]:
    rng, out = Random(3), {}
    while len(out) < 16:
        a, b, c = (rng.randint(1, 6) for _ in range(3))
        out[f"{a} + {b} + {c}"] = f"{a} + {b} = {a + b}, {a + b} + {c} = {a + b + c} {answer(str(a + b + c))}"
    return worked("chains", out)


@lru_cache
def _speaker() -> Arena:
    """A policy that says the right steps in each of the languages as often."""
    shares = [
        tuple(Said(1 / len(TONGUES), (told(chain(p.lineage["solution"]), x),)) for x in TONGUES) for p in _chains()
    ]
    return taught(World(_chains(), tuple(shares)), layers=2)


def _lay(room: Room) -> None:
    room.stand("sft", as_sft("chains", _speaker()))
    room.write("questions", problems=list(_chains()))
    room.write("kb", passages=NOTHING)


def _candidates(seed: int) -> list[tuple[Problem, list[list[Step]]]]:
    """Of each problem the right chain, and seven with one or two wrong steps."""
    out = []
    for p in _chains():
        rng, right = Random(seed_for(seed, "candidates", p.id)), chain(p.lineage["solution"])
        others = []
        for i in range(7):
            bad = {rng.randrange(2)} if i else {0, 1}
            others.append([wrong(s, "result", rng) if k in bad else s for k, s in enumerate(right)])
        out.append((p, [right, *others]))
    return out


def _measure(room: Room) -> dict[str, float]:
    """Step accuracy: share of the steps (right and wrong alike) whose verdict, reward above 0 or below, is right. `unseen`: in the
    language that is in no pair; `english`; `translated`: of the unseen language, translated into English first.
    earliest: unseen chains with an error whose first step below 0 is the first wrong one
    best_min, best_product, best_last: share of the problems whose right chain has the highest reward of eight, in the unseen language, by
    the least of the steps' log-odds, the product of their chances and the last step's"""
    cases = _candidates(room.seed)
    marks = np.array([[[s in chain(p.lineage["solution"]) for s in c] for c in tries] for p, tries in cases])
    out: dict[str, float] = {}
    for name, language in (("unseen", UNSEEN), ("english", "english"), ("translated", UNSEEN)):
        texts = [[told(c[: k + 1], language) for k in range(len(c))] for _, tries in cases for c in tries]
        if name == "translated":
            texts = [[translated(t, UNSEEN, "english") for t in row] for row in texts]
        rewards = _judged(room, [p for p, tries in cases for _ in tries], texts).reshape(marks.shape)
        fair = np.cumprod(marks, 2)[:, :, :-1]  # a step behind a wrong one is nobody's to judge
        judged = np.concatenate([np.ones_like(marks[:, :, :1]), fair], 2).astype(bool)
        hit = (rewards > 0) == marks
        out[name] = float((hit[judged & marks].mean() + hit[judged & ~marks].mean()) / 2)
        if name == "unseen":
            first = lambda wrong_steps: wrong_steps.argmax(1)
            bad = ~marks.reshape(-1, 2).all(1)
            seen = (rewards <= 0).reshape(-1, 2)[bad]
            truth = (~marks).reshape(-1, 2)[bad]
            out["earliest"] = float((seen.any(1) & (first(seen) == first(truth))).mean())
            for how, of in AGGREGATES.items():
                worth = np.array([[of(r) for r in tries] for tries in rewards])
                out[f"best_{how}"] = float((worth.argmax(1) == 0).mean())
    return out


def _judged(room: Room, problems: Sequence[Problem], texts: Sequence[Sequence[str]]) -> np.ndarray:
    """Rewards of texts, in order."""
    from training.preference.reward_rows import RewardRows

    judge, model = RewardRows(_speaker().renderer, None, 192, "cpu", 16384), room.model("reward")
    flat = [(p, t) for p, row in zip(problems, texts, strict=True) for t in row]
    pairs = [
        PreferencePair.make(prompt=p.prompt, chosen=t, rejected="-", source="c", split="valid", problem=str(i))
        for i, (p, t) in enumerate(flat)
    ]
    return judge.rewards(model, judge.rows(pairs, {})[0::2])


def chains() -> Place:
    """Sixteen chains of two sums; the first policy says each in eight languages, of which one is in no pair."""

    def flawed(room: Room) -> Generate:
        return Flawed(_chains())

    return Place(("preferences", "reward"), _lay, _measure, partial(make, lambda room: _chains(), flawed, 16))


WORLDS = (chains,)
