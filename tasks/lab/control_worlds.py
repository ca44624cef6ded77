"""Recipes whose policy writes no tokens, in the world of numbers that they name: the real stage `rl`, then episodes of seeds
that it never played."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np

from synth.types import Sampling, Scored, seed_for
from tasks.lab.worlds import Place, Room
from tasks.models.control import actor, kind
from tasks.planning.pieces import bind_all
from training.model.control import load_policy
from training.rollout.control import seeds

EPISODES = 200
PARTS = ("success", "stage", "exact", "return", "rate", "eaten", "trapped", "shd")
# Knobs of a world that are otherwise while a policy learns, and what they are afterwards; samples are made by the flow
# itself, of prompts that were never asked.
ALONE = {"teacher": "none", "unseen": True, "prompts": "test", "rewarded": "own", "noise": 0.0, "branch": 1}


def control() -> Place:
    """One protocol's `steps` are those of the stage. See the head of this file."""
    return Place(("rl",), lambda room: None, _measure)


def _measure(room: Room) -> dict[str, float]:
    """Of EPISODES played with what is drawn at temperature 1. success: the share that the world calls a success; return:
    their mean return; others: the mean of the part of this name, 0 where the world has none; env_steps: those that
    training took."""
    stage = room.kept["knobs"]["rl"]
    changed = {k: v for k, v in ALONE.items() if k in stage.params["control"]}
    alone = replace(stage, params={**stage.params, "control": {**stage.params["control"], **changed}})
    world = bind_all(alone.pieces, alone.params, alone.settings)["control"]()
    _, player = actor(
        world,
        seed=room.seed,
        sampling=Sampling(temperature=1.0),
        max_steps=stage.params["max_steps"],
        model=load_policy(room.root / "artifacts" / "rl" / "model", kind(world)),
    )
    groups = player.play(seeds(EPISODES, seed=seed_for(room.seed, "measure"), family="measure"), 1, room.seed)
    scores = [r.score for g in groups for r in g.rollouts if isinstance(r.score, Scored)]
    card = json.loads((room.root / "artifacts" / "rl" / "card.json").read_text(encoding="utf-8"))
    mean = lambda name: float(np.mean([s.parts.get(name, 0.0) for s in scores]))  # noqa: E731
    return {name: mean(name) for name in PARTS} | {"env_steps": float(card["env_steps"])}
