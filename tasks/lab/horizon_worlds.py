"""Regret over the length of episodes, in the chain of tool calls of training/env/control/calls.py.

The real stage `rl` runs once for each length of HORIZONS, with as many steps of episodes in all as the recipe has at the longest: a policy
of short episodes sees more of them. What is measured has no sampling in it: the distribution over all states of the chain, step by step.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from synth.types import UserError
from tasks.lab.worlds import Place, Room, run_stage
from tasks.planning.pieces import bind_all
from training.env.control.calls import Calls
from training.model.control import load_policy

HORIZONS = (5, 10, 20, 40)


def horizons() -> Place:
    """One protocol's `steps` are those of the stage, at each length. See the head of this file."""
    return Place((), lambda room: None, _measure)


def regret(p: np.ndarray, steps: int) -> float:
    """Steps that go unpaid, expected, of an episode; an expert whose every action comes out as it is has 0. p [n, n + 1, 2n]: the probability of each action where tool q is asked for and,
    from 1 on, fault f - 1 is there (0: none)."""
    n = len(p)
    at = np.zeros((n, n + 1))
    at[:, 0] = 1 / n
    paid = 0.0
    q, f = np.arange(n), np.arange(1, n + 1)
    for _ in range(steps):
        right = at[:, 0] * p[q, 0, q]
        paid += right.sum()
        undone = at[:, 1:] * p[:, f, n + f - 1]
        after = np.zeros_like(at)
        after[:, 0] = right.sum() / n + undone.sum(1)
        wrong = at[:, :1] * p[:, 0]
        wrong[q, q] = 0
        after[:, 1:] = at[:, 1:] - undone + wrong[:, :n] + wrong[:, n:]
        at = after
    return steps - float(paid)


def slope(steps: np.ndarray, regrets: np.ndarray) -> float:
    """Of the least squares line through log regret over log steps: 2 where regret grows with the square."""
    return float(np.polyfit(np.log(steps), np.log(regrets), 1)[0])


def slipped(p: np.ndarray, slips: float) -> np.ndarray:
    """[..., a] the probability that an action comes out, where a share of them comes out as one of the others."""
    return (1 - slips) * p + slips * (1 - p) / (p.shape[-1] - 1)


def chances(world: Calls, model: torch.nn.Module) -> np.ndarray:
    """[n, n + 1, 2n] of `regret`."""
    n = world.tools
    seen = np.stack([world.seen(q, f) for q in range(n) for f in range(-1, n)])
    with torch.no_grad():
        p = torch.softmax(model(torch.from_numpy(seen).float()).double(), -1).numpy()
    return p.reshape(n, n + 1, 2 * n)


def _measure(room: Room) -> dict[str, float]:
    """slope: see `slope`, of the regret of a policy for each of HORIZONS in episodes of its own length; regret: at the longest one;
    error: of a call where nothing is broken, mean over requests, there."""
    stage = room.kept["knobs"]["rl"] if "knobs" in room.kept else None
    world = bind_all(stage.pieces, stage.params, stage.settings)["control"]() if stage else None
    if stage is None or not isinstance(world, Calls):
        raise UserError("the world horizons plays control/calls: set rl.control to it in the protocol or the recipe")
    out, slopes = {}, []
    for h in HORIZONS:
        many = stage.params["prompts_per_step"] * HORIZONS[-1] // h
        control = {**stage.params["control"], "steps": h}
        own = Room(Path(room.root / str(h)), room.seed, room.recipe)
        own.root.mkdir(exist_ok=True)
        resolved = replace(stage, params={**stage.params, "control": control, "prompts_per_step": many, "max_steps": h})
        run_stage(own, "rl", resolved)
        p = chances(world, load_policy(own.root / "artifacts" / "rl" / "model"))
        slopes.append(regret(slipped(p, world.slips), h))
        q = np.arange(world.tools)
        out |= {f"regret_{h}": slopes[-1], "error": float(1 - p[q, 0, q].mean())}
    return out | {"slope": slope(np.array(HORIZONS), np.array(slopes)), "regret": slopes[-1]}
