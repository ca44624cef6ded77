"""Policies that a world brings: from scratch, or with a warm start, which is fitted once and then read from the user's cache."""

from __future__ import annotations

import inspect
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from platformdirs import user_cache_path
from safetensors.torch import load, save

from synth.types import digest, seed_for
from training.model import flow, in_context, molecule, particles

NETWORKS: dict[str, tuple[Any, Any]] = {
    "in_context": (in_context, in_context.InContextPolicy),
    "flow": (flow, flow.FlowPolicy),
    "molecules": (molecule, molecule.MoleculePolicy),
    "particles": (particles, particles.ParticlePolicy),
}

_KNOWN: dict[str, bytes] = {}  # key -> weights, of this process


def brought(world: Any, seed: int) -> Any:
    """The policy of a world that brings one (`network`): `warm` where its module can `fit`, else with the initial weights of this seed."""
    module, make = NETWORKS[world.network]
    return warm(world) if hasattr(module, "fit") else make(**_made(world), seed=seed)


def _made(world: Any) -> dict[str, Any]:
    """The sizes of its network."""
    shape = world.shape
    return {
        "observation": shape.observation,
        "actions": shape.actions,
        "hidden": world.hidden,
        **getattr(world, "sizes", {}),
    }


def warm(world: Any, cache: Path | None = None) -> Any:
    """The policy of a world that brings one (`network`), after its warm start. It depends on the world, its `warm` and this code, and not on
    the run's seed: all runs and recipes start from the same weights, as from one pretrained model. cache: the folder that keeps them; None:
    the user's own."""
    module, make = NETWORKS[world.network]
    world_config = _made(world)
    code = [inspect.getsource(module), inspect.getsource(sys.modules[type(world).__module__])]
    key = digest([code, world_config, dict(world.warm), torch.__version__])
    model = make(**world_config, seed=seed_for(key, world.network))
    if key not in _KNOWN:
        _KNOWN[key] = _weights(cache or user_cache_path("espalier"), key, world, model, module.fit)
    model.load_state_dict(load(_KNOWN[key]))
    return model


def _weights(folder: Path, key: str, world: Any, model: Any, fit: Any) -> bytes:
    """Those of the cache, or of a fit, which is then cached."""
    kept = folder / f"{world.network}-{key[:16]}.safetensors"
    if kept.is_file():
        return kept.read_bytes()
    how: Any = {k: world.warm[k] for k in ("steps", "rows", "lr")}
    fit(model, world.examples, **how, seed=seed_for(key, "warm"))
    weights = save({k: v.contiguous() for k, v in model.state_dict().items()})
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder, delete=False) as part:
            part.write(weights)
        os.replace(part.name, kept)
    except OSError:
        pass  # a cache that cannot be written costs time at the next run, and nothing else
    return weights
