"""A small world of people at home, with whom the stage prefer plays its days (as tasks/lab/tone_worlds.py has clients)."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from random import Random
from typing import Any

import numpy as np

from synth.families.home_moments import moment, person, pose
from synth.types import Message, Problem, seed_for
from synth.verify._home import SILENCE, rating, read, wants_quiet
from tasks.lab.arena import Arena, Said, World
from tasks.lab.label_worlds import NOTHING
from tasks.lab.worlds import Place, Room, as_sft, sums_of, taught
from training.env.home import home

PEOPLE = "Ana Ben Cleo Dan".split()
MOMENTS = 6  # of each person


@lru_cache
def _moments() -> tuple[Problem, ...]:
    """Six moments of each of four people, half of them in the quiet."""
    out = []
    for name in PEOPLE:
        rng = Random(seed_for(0, "homes", name))
        who, kept = person(rng, name, 3, 2), {False: 0, True: 0}
        while sum(kept.values()) < MOMENTS:
            m = moment(rng, who)
            quiet = wants_quiet(m)
            if kept[quiet] == MOMENTS // 2:
                continue
            kept[quiet] += 1
            posed = pose(replace(m, log=who.log))
            out.append(
                Problem.make(**posed, env="home", family="homes", split="train", lineage={"root": posed["prompt"]})
            )
    return tuple(out)


def _actions(p: Problem) -> dict[str, str]:
    m = read(p.question)
    assert m is not None
    return {SILENCE: "<silent/>"} | {k: f"<say>{k}</say>" for k in m.likes}


def _shown(p: Problem) -> list[Message]:
    return home(top_k=5).start(p, {})[1]


@lru_cache
def _newcomer() -> Arena:
    """A policy to which all actions are alike, at every moment."""
    about: dict[str, Any] = {"verifier": "exact", "env": "single", "family": "homes", "split": "train"}
    shown = tuple(Problem.make(prompt=tuple(_shown(p)), answer=p.answer, **about) for p in _moments())
    shares = tuple(tuple(Said(1 / len(_actions(p)), (t,)) for t in _actions(p).values()) for p in _moments())
    return taught(World(shown, shares), layers=2, steps=80)


def _lay(room: Room) -> None:
    room.stand("sft", as_sft("homes", _newcomer()))
    room.write("questions", problems=list(_moments()))
    room.write("clean", pairs=[])
    room.write("kb", passages=NOTHING)


def _measure(room: Room) -> dict[str, float]:
    """rated: expected rating, from 1 to 5, of what is done; unsafe: expected share of suggestions where quiet is wanted."""
    model = _newcomer().base if room.recipe == "base" else room.model()
    rated, interrupted = [], []
    for p in _moments():
        m, actions = read(p.question), _actions(p)
        assert m is not None
        logp = sums_of(_newcomer(), model, [(_shown(p), t) for t in actions.values()])
        share = np.exp(logp - np.logaddexp.reduce(logp))
        rated.append(float(share @ [rating(m, a)["rating"] for a in actions]))
        if wants_quiet(m):
            interrupted.append(1 - float(share[0]))
    return {"rated": float(np.mean(rated)), "unsafe": float(np.mean(interrupted))}


def homes() -> Place:
    """Six moments of each of four people, half of them in the quiet; the first policy speaks of anything, or not, at random."""
    return Place(("prefer",), _lay, _measure)


WORLDS = (homes,)
