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
from tasks.models.flow import NETWORKS, brought
from tasks.planning import code
from tasks.planning.pieces import locate
from training.env.control import World
from training.learner.learner import Read
from training.model.control import ControlPolicy, ControlValue, action_stats, control_values, save_policy
from training.model.flow import FlowPolicy
from training.rollout.control import ActionSampler, ControlPlayer, seeds
from training.rollout.denoise import DenoisingPlayer, FlowSampler

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

    policy: nn.Module
    reference: nn.Module | None
    body: Callable[[], nn.Module]
    player: ControlPlayer | DenoisingPlayer
    problems: list[Problem]
    read: Read
    read_value: Read
    save: Callable[[Path], None]
    world: Any


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
    except ImportError as e:
        raise UserError(f"rl.control: {_name(make)} needs what is not here ({e}): install it, or fix the name") from e
    except TypeError as e:
        if (name := _no_texts(make)) is None:
            raise
        raise UserError(
            f'rl.control.{name} is {make.keywords[name]!r}, and {_name(make)} reads texts there: write each in quotes, as "[C]" '
            "(without them YAML reads a list, a number, true or nothing)"
        ) from e
    shape = world.shape
    learned, player = actor(
        world, seed=seed, sampling=Sampling(temperature=temperature), max_steps=max_steps, device=device
    )
    reference = None
    if "reference" in needs:
        reference, _ = actor(world, seed=seed, sampling=player.sampling, max_steps=max_steps, device=device)
    return Start(
        policy=learned,
        reference=reference,
        body=lambda: ControlValue(observation=shape.observation, seed=seed_for(seed, "rl", "control", "value")).to(
            device
        ),
        player=player,
        problems=seeds(512, seed=seed, family=_name(make)),
        read=action_stats,
        read_value=control_values,
        save=lambda folder: save_policy(learned, folder),
        world=world,
    )


def _name(make: Any) -> str:
    """The name of a bound piece of `control`."""
    return getattr(make, "piece", "control").rpartition("/")[2]


def _no_texts(make: Any) -> str | None:
    """The knob of a world whose list has entries that are no texts, of those of which its file does not say what entries are: a bare
    `list`, empty by default (of others the plan says it)."""
    known = code.knobs(locate("control", _name(make))) if hasattr(make, "piece") else {}
    for name, knob in known.items():
        value = make.keywords.get(name)
        if isinstance(value, list | tuple) and knob.default == [] and not all(isinstance(v, str) for v in value):
            return name
    return None


def actor(
    world: Any, *, seed: int, sampling: Sampling, max_steps: int, device: str = "cpu", model: Any = None
) -> tuple[Any, Any]:
    """(network, player) of a world. A world of numbers has a network of its shape with the initial weights of this seed; one that
    brings a network has that one, after its warm start if it has one. model: plays in its place."""
    network = model
    if network is None and kind(world) is not ControlPolicy:
        network = brought(world, seed_for(seed, "rl", "control", "policy")).to(device)
    elif network is None:
        shape = world.shape
        network = ControlPolicy(
            observation=shape.observation,
            actions=shape.actions,
            continuous=shape.continuous,
            seed=seed_for(seed, "rl", "control", "policy"),
        ).to(device)
    if isinstance(network, FlowPolicy):
        return network, DenoisingPlayer(sampler=FlowSampler(model=network), world=world, sampling=sampling)
    return network, ControlPlayer(
        sampler=ActionSampler(model=network), world=world, sampling=sampling, max_steps=max_steps
    )


def kind(world: Any) -> type:
    """The class of a world's network."""
    network = getattr(world, "network", "")
    return NETWORKS[network][1] if network else ControlPolicy
