"""How a model writes its turns where it is asked: one token after another, or as `evaluate.generation` says."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tasks.core.errors import UserError
from tasks.planning.pieces import bind, files
from training.model.render import Renderer
from training.rollout.generation import Generation


def trained_by(folder: Path) -> list[str]:
    """The pieces of the kind generation whose layers lie in a model's folder."""
    names = {piece: bind("generation", {"piece": piece})().name for piece in sorted(files("generation"))}
    return [piece for piece, name in names.items() if name and (folder / f"{name}.safetensors").exists()]


def way_of(
    spec: Mapping[str, Any] | None, model: str, network: Any, renderer: Renderer, folder: Path
) -> Generation | None:
    """The way of generation of `evaluate.generation` (`spec`), its layers read from the model's folder into the network; None
    for one token after another, which `base` always writes. Raises UserError for a model that was not trained so, or
    that was trained otherwise."""
    piece = str(spec["piece"]) if spec and model != "base" else ""
    own = trained_by(folder)
    if own and piece not in own:
        raise UserError(
            f"the model {model} was trained to write its turns by {own[0]}, and evaluate.generation is {piece or 'not set'}: set it to "
            f"{{piece: {own[0]}, ...}} with the knobs of the training (params.yaml, `set`), or name another model"
        )
    if spec is None or not piece:
        return None
    try:
        way = bind("generation", spec)()
    except ValueError as e:
        raise UserError(f"evaluate.generation: {e}") from e
    if way.name and piece not in own:
        raise UserError(
            f"evaluate.generation is {piece}, and the model {model} has no layers for it ({way.name}.safetensors in its folder): train it "
            "so (sft.generation), name a model that was, or leave evaluate.generation out"
        )
    try:
        way.begin(network, renderer, folder)
    except ValueError as e:
        raise UserError(f"evaluate.generation: {e}") from e
    return way
