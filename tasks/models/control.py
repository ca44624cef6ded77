"""Set-up of the stage `rl` for a policy that writes no tokens: the knob `control` replaces problems and the SFT
model."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from synth.types import Problem, Sampling, seed_for
from tasks.core.errors import UserError
from training.env.control import World
from training.learner.learner import Read
from training.model.control import ControlPolicy, ControlValue, action_stats, control_values, save_policy
from training.rollout.control import ActionSampler, ControlPlayer, seeds

# Knobs that need a language model -> their values when nobody has set them.
OF_TEXT: dict[str, Any] = {
    "teacher": "",
    "lora": {},
    "router_loss": 0.0,
    "router_replay": False,
    "judge": {},
    "ratings": {},
    "turn_budget": None,
    "gradient_checkpointing": False,
    "shards": 1,
    "generation": None,
}


@dataclass(frozen=True, kw_only=True)
class Start:
    """The arguments of `compose`; `save` writes the policy into a folder."""

    policy: ControlPolicy
    reference: nn.Module | None
    body: Callable[[], nn.Module]
    player: ControlPlayer
    problems: list[Problem]
    read: Read
    read_value: Read
    save: Callable[[Path], None]


def start(
    make: Any,
    *,
    seed: int,
    needs: frozenset[str],
    temperature: float,
    device: str,
    max_steps: int,
    knobs: Mapping[str, Any],
) -> Start:
    """make: the bound piece of the knob `control`. Raises UserError for a world that cannot be created here, and for a
    knob that does not apply to a policy of actions."""
    for name, default in OF_TEXT.items():
        if knobs[name] != default:
            raise UserError(f"rl: {name} is for a model that writes text, and rl.control is set: leave one of them out")
    for transform in knobs["group_transforms"]:
        if not getattr(sys.modules[transform.func.__module__], "STEPS", False):
            name = transform.piece.rpartition("/")[2]
            raise UserError(
                f"rl: group_transforms: {name} asks for texts, and rl.control is set: leave it out, or choose one that pays steps "
                "(return_decomposition)"
            )
    if knobs["asynchrony"].staleness:
        raise UserError(
            "rl: a policy of actions is played before it learns: leave out rl.asynchrony where rl.control is set"
        )
    if wanted := needs & {"distribution", "rates"} - {"distribution"}:
        raise UserError(f"rl: a piece needs {sorted(wanted)[0]}, which no policy of actions has: choose another piece")
    try:
        world: World = make()
    except ValueError as e:
        raise UserError(f"rl: {e}") from e
    shape = world.shape
    policy = lambda: ControlPolicy(  # noqa: E731
        observation=shape.observation,
        actions=shape.actions,
        continuous=shape.continuous,
        seed=seed_for(seed, "rl", "control", "policy"),
    ).to(device)
    learned = policy()
    return Start(
        policy=learned,
        reference=policy() if "reference" in needs else None,
        body=lambda: ControlValue(observation=shape.observation, seed=seed_for(seed, "rl", "control", "value")).to(
            device
        ),
        player=ControlPlayer(
            sampler=ActionSampler(model=learned),
            world=world,
            sampling=Sampling(temperature=temperature),
            max_steps=max_steps,
        ),
        problems=seeds(512, seed=seed, family=getattr(make, "piece", "control").rpartition("/")[2]),
        read=action_stats,
        read_value=control_values,
        save=lambda folder: save_policy(learned, folder),
    )
