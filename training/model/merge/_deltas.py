"""Task vectors: what training has added to a model's weights, tensor by tensor."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

_BLOCK = re.compile(r"(?:^|\.)(?:layers|h|blocks)\.(\d+)\.")


def deltas(base: Mapping[str, Tensor], models: Sequence[Mapping[str, Tensor]], name: str) -> list[Tensor]:
    """The task vectors of one weight, in float64."""
    return [m[name].double() - base[name].double() for m in models]


def weights_of(models: Sequence[Mapping[str, Tensor]], weights: Sequence[float]) -> list[float]:
    """One weight per model; by default 1 each. Raises ValueError for a wrong number of weights."""
    if weights and len(weights) != len(models):
        raise ValueError(f"there are {len(models)} models and {len(weights)} weights: give one per model, or none")
    return list(weights) or [1.0] * len(models)


def trimmed(delta: Tensor, density: float) -> Tensor:
    """The share `density` of the entries that are largest by size, one at least; the others are 0. Yadav et al. 2023 (arXiv
    2306.01708), by tensor as in mergekit. Raises ValueError."""
    if not 0 < density <= 1:
        raise ValueError(f"density is {density}: it is the share of entries that is kept, above 0 and at most 1")
    if density == 1:
        return delta
    kept = torch.zeros_like(delta).view(-1)
    flat = delta.reshape(-1)
    largest = flat.abs().topk(max(1, int(density * len(flat)))).indices
    kept[largest] = flat[largest]
    return kept.view(delta.shape)


def dropped(delta: Tensor, density: float, rng: torch.Generator) -> Tensor:
    """Each entry is kept with probability `density`, and divided by it: the mean stays. Yu et al. 2023 (arXiv
    2311.03099). Raises ValueError."""
    if not 0 < density <= 1:
        raise ValueError(f"density is {density}: it is the share of entries that is kept, above 0 and at most 1")
    mask = torch.rand(delta.shape, generator=rng, dtype=torch.float64) < density
    return delta * mask / density


def elected(parts: Sequence[Tensor], weights: Sequence[float], *, sign: bool, mean: bool) -> Tensor:
    """The weighted sum of task vectors. sign: for each entry only those with the sign of the weighted sum count;
    mean: divided by the weights that count."""
    w = torch.tensor(list(weights), dtype=torch.float64).view(-1, *[1] * parts[0].dim())
    stacked = torch.stack(list(parts))
    weighted = stacked * w
    counts = torch.ones_like(weighted)
    if sign:
        majority = (weighted.sum(0) >= 0) * 2.0 - 1.0
        counts = (weighted.sign() == majority).double()
    total = (weighted * counts).sum(0)
    if not mean:
        return total
    by = (w * counts).sum(0)
    return total / torch.where(by.abs() < 1e-8, torch.ones_like(by), by)


def moved(base: Mapping[str, Tensor], name: str, by: Tensor) -> Tensor:
    """A weight of the base with a task vector added, in the base's type."""
    return (base[name].double() + by).to(base[name].dtype)


def depths(names: Sequence[str]) -> dict[str, float]:
    """Name -> the depth of a weight in the model, from 0 (the first block and everything before it) to 1 (the last
    block and everything after it)."""
    blocks = {n: int(match.group(1)) for n in names if (match := _BLOCK.search(n))}
    last = max(blocks.values(), default=0)
    outside = {n: 0.0 if "embed" in n or ".wte" in n or ".wpe" in n else 1.0 for n in names if n not in blocks}
    return outside | {n: block / last if last else 1.0 for n, block in blocks.items()}
