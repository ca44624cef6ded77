"""The model that is served: loaded as `espalier chat` loads it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from tasks.core.errors import UserError
from tasks.models import engines
from tasks.models.generation import trained_by, way_of
from tasks.planning import plan
from tasks.runtime.models import model_path
from tasks.serving.api import Served
from tasks.serving.conversations import Conversations
from tasks.serving.training_api import Trainer
from training.decode import ServedDecoder
from training.model.model import load_model
from training.model.render import Renderer


def _loaded(root: Path, model: str, device: str) -> tuple[str, Any, Renderer, str]:
    """The model's folder, network, renderer and device. Raises UserError if it cannot be loaded."""
    path = model_path(root, model)
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    if device != "cpu" and not torch.cuda.is_available():
        raise UserError(f"--device {device}: there is no GPU here; leave it out, or say cpu")
    network: Any
    try:
        network, tokenizer = load_model(path, dtype="float32" if device == "cpu" else "bfloat16", device=device)
        renderer = Renderer(tokenizer)
    except (ValueError, OSError) as e:
        raise UserError(f"the model {model} could not be loaded: {str(e).strip().splitlines()[0]}") from e
    return str(path), network, renderer, device


def trained(root: Path, model: str, *, name: str = "", device: str = "") -> Trainer:
    """The model as the base of policies. Raises UserError if it cannot be loaded."""
    path, network, renderer, _ = _loaded(root, model, device)
    if own := trained_by(Path(path)):
        raise UserError(
            f"the model {model} was trained to write its turns by {own[0]}, and --training samples and learns one token after another: "
            "name another model"
        )
    context = int(network.config.max_position_embeddings)
    states = root / ".espalier" / "training"
    return Trainer(network, renderer, name=name or str(model), context=context, states=states, tokenizer=path)


def served(
    root: Path,
    model: str,
    *,
    name: str = "",
    engine: str = "torch",
    device: str = "",
    decoding: ServedDecoder | None = None,
) -> Served:
    """Raises UserError for a model, an engine or a decoder that is not available, and for a decoder with an engine
    other than torch."""
    if decoding is not None and engine != "torch":
        raise UserError(
            f"a decoder reads and changes the layers of the model, which --engine {engine} does not give it: leave out "
            "--engine, or --decoder"
        )
    path, network, renderer, device = _loaded(root, model, device)
    context = int(network.config.max_position_embeddings)
    network.eval()
    sampler = engines.sampler(
        engine,
        network,
        renderer.end_id,
        folder=Path(path),
        work=root / ".espalier" / "serve",
        max_length=context,
        dtype="float32" if device == "cpu" else "bfloat16",
        memory=1.0 if device == "cpu" else 8.0,
    )
    spec = (
        plan.plans(root, changed=lambda params: params)["evaluate"]["params"]["generation"]
        if (root / "params.yaml").exists()
        else None
    )
    way = way_of(spec, model, network, renderer, Path(path))
    if way is not None:
        if engine != "torch":
            raise UserError(f"{engine} writes one token after another: leave out --engine, or evaluate.generation")
        sampler = way.sampler(network, renderer)
    if decoding is not None:
        sampler = decoding.around(sampler, renderer, device)
    mistakes = (UserError,) if way is None else (UserError, ValueError)
    conversations = Conversations(sampler, renderer, whole=decoding is not None or way is not None, mistakes=mistakes)
    return Served(
        conversations,
        name=name or str(model),
        context=context,
        decoding=decoding,
        generation=str(spec["piece"]) if spec is not None and way is not None else "",
    )
