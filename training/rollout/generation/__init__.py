"""How a language model writes a turn, where that is not one token after another: one file for each way.

A way of generation replaces two things of a run and nothing else: the sampler, which records in `Segment.extras` what it
really did (sets of tokens, vectors), and the function that turns a pass of the learner over that record into
`TokenStats`. Advantages, ratios and losses see log-probs as ever. What is recorded is read again on the same inputs, so
that a ratio compares two policies and not two inputs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from training.learner.pack import Row
from training.model.render import Renderer
from training.rollout.play import Sampler
from training.types import Batch, Terms, TokenStats


class Generation:
    """What a piece makes. name: of its own layers in the model, "" if it has none. lessons: whether supervised
    fine-tuning has to teach it (`lesson`, `taught`, `loss`)."""

    name: ClassVar[str] = ""
    lessons: ClassVar[bool] = False

    def begin(self, model: nn.Module, renderer: Renderer, folder: Path | None = None) -> nn.Module:
        """The same model, with the layers that this way of generation adds, from `folder` if they were saved there.
        Raises ValueError for a folder whose layers have other sizes."""
        return model

    def sampler(self, model: nn.Module, renderer: Renderer) -> Sampler:
        """Samples turns, and records them."""
        raise NotImplementedError

    def read(self, model: nn.Module, batch: Batch, *, temperature: float = 1.0) -> TokenStats:
        """logp [T] and entropy [T] of what was recorded, 0 elsewhere, as `token_stats` gives them of tokens."""
        raise NotImplementedError

    def logp(self, **numbers: Tensor) -> Tensor:
        """[n] log-probs of n recorded steps by the formula alone, which `read` uses too."""
        raise NotImplementedError

    def lesson(self, row: Row, renderer: Renderer, rng: np.random.Generator) -> Row:
        """A demonstration as the model is taught it."""
        raise NotImplementedError

    def taught(self, model: nn.Module, batch: Batch, *, temperature: float = 1.0) -> TokenStats:
        """What `loss` reads, of a batch of lessons."""
        raise NotImplementedError

    def loss(self, stats: TokenStats, batch: Batch) -> list[Terms]:
        """The loss of a batch of lessons."""
        raise NotImplementedError


class GenerationPiece(Protocol):
    """Makes a way of generation.

    Returns:
        a sampler, the function that reads its records as log-probs, and what supervised fine-tuning needs

    Check gives:
        drawn: per step the log-probs of the tokens of a set, in the order of the draws
        weight: per step the weights of these tokens
        mean: per step the mean of a normal distribution of vectors
        log_deviation: per step the logarithms of its standard deviations
        latent: per step the vector that was drawn
        stop: per step the log-prob of ending the thought instead
        confidence: per step the confidence of each position
        rank: per step when each position was chosen, from 1; 0 if it was not
        open: per step whether each position could be chosen, 1 or 0

    Check expects:
        logp: per step
        gradient: of the sum, with respect to each number that was given and has one
    """

    def __call__(self) -> Generation: ...


def own_layers(model: nn.Module, name: str, layers: nn.Module, folder: Path | None) -> nn.Module:
    """The model with `layers` under this name. `save_model` writes them into a file of their own beside its weights, from which
    they are read again. Raises ValueError if what was saved has other sizes."""
    file = folder / f"{name}.safetensors" if folder is not None else None
    if file is not None and file.exists():
        held = load_file(file)
        mine = {k: tuple(v.shape) for k, v in layers.state_dict().items()}
        if odd := sorted(k for k in mine.keys() | held.keys() if k not in held or mine.get(k) != tuple(held[k].shape)):
            raise ValueError(
                f"{folder} holds layers {name!r} of other sizes ({odd[0]}): name the generation with the knobs that it was trained with"
            )
        layers.load_state_dict(held)
    weight: Any = next(model.parameters())
    model.add_module(name, layers.to(weight.device, weight.dtype))
    model.own_layers = (*getattr(model, "own_layers", ()), name)  # type: ignore[assignment]
    return model


def spread(x: Tensor, at: Tensor, n: int) -> Tensor:
    """Numbers [N] at their places [N] among n tokens, 0 elsewhere; differentiable."""
    return torch.zeros(n, dtype=x.dtype, device=x.device).index_add(0, at, x)


def found(ids: np.ndarray, tag: np.ndarray) -> int:
    """Where the tag begins in ids [n] for the first time, -1 if nowhere."""
    n = len(tag)
    return next((i for i in range(len(ids) - n + 1) if np.array_equal(ids[i : i + n], tag)), -1)
