"""Recipes whose policy writes no tokens, in the world of numbers that they name: the real stage `rl`, then episodes of seeds
that it never played."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from synth.types import Sampling, Scored, seed_for
from tasks.lab.worlds import Place, Room
from tasks.models.control import actor, kind
from tasks.planning.pieces import bind_all
from training.model.control import load_policy
from training.rollout.control import seeds
from training.types import Rollout

EPISODES = 200
PARTS = ("success", "stage", "exact", "return", "rate", "eaten", "trapped", "shd")
# Knobs of a world that are otherwise while a policy learns, and what they are afterwards; samples are made by the flow
# itself, of prompts that were never asked.
ALONE = {
    "teacher": "none",
    "unseen": True,
    "prompts": "test",
    "rewarded": "own",
    "noise": 0.0,
    "branch": 1,
    "heat": 0.001,
}


def control() -> Place:
    """One protocol's `steps` are those of the stage. See the head of this file."""
    return Place(("rl",), lambda room: None, _measure)


def _measure(room: Room) -> dict[str, float]:
    """Of EPISODES played with what is drawn at temperature 1. success: the share that the world calls a success; return:
    their mean return; others: the mean of the part of this name, 0 where the world has none; env_steps: those that
    training took; joint: `joint_error`; welfare: `welfare`."""
    stage = room.kept["knobs"]["rl"]
    changed = {k: v for k, v in ALONE.items() if k in stage.params["control"]}
    if stage.params["control"].get("few"):
        changed["steps"] = stage.params["control"]["few"]
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
    played = [r for g in groups for r in g.rollouts]
    beside = {"env_steps": float(card["env_steps"]), "joint": joint_error(played), "welfare": welfare(played)}
    return {name: mean(name) for name in PARTS} | beside


def welfare(rollouts: Sequence[Rollout], floor: float = 0.01) -> float:
    """The sum over the sources of reward of the logarithm of their mean return, to which `floor` is added; 0 where a world has no
    sources."""
    paid = [[s.extras["rewards"][0] for s in r.segments if "rewards" in s.extras] for r in rollouts]
    if not paid or not all(paid):
        return 0.0
    return float(np.log(np.mean([np.sum(one, axis=0) for one in paid], axis=0) + floor).sum())


def joint_error(rollouts: Sequence[Rollout], gamma: float = 0.99) -> float:
    """Energy distance (Szekely and Rizzo 2013) between the particles of the best action where an episode begins and the vectors of returns of
    the episodes that begin there and take it; mean over the beginnings, weighted by their episodes. 0 where a policy has no particles."""
    begun: dict[bytes, tuple[np.ndarray, list[np.ndarray]]] = {}
    for r in rollouts:
        steps = [s for s in r.segments if s.role == "model"]
        if not steps or "ahead" not in steps[0].extras:
            return 0.0
        paid = np.sum([gamma**t * s.extras["rewards"][0] for t, s in enumerate(steps)], axis=0)
        begun.setdefault(steps[0].extras["observation"].tobytes(), (steps[0].extras["ahead"][0], []))[1].append(paid)

    def far(a: np.ndarray, b: np.ndarray) -> float:
        return float(np.linalg.norm(a[:, None] - b[None], axis=-1).mean())

    distances = [
        (len(y), 2 * far(z, np.array(y)) - far(z, z) - far(np.array(y), np.array(y))) for z, y in begun.values()
    ]
    return sum(n * d for n, d in distances) / sum(n for n, _ in distances)
