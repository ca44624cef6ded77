"""A learner's model split over processes: each holds a share of every weight, of its gradient and of its optimizer
state, and gathers a layer's weights while the layer computes.

This is torch's `fully_shard` (FSDP2; Zhao et al. 2023, arXiv 2304.11277), applied layer by layer and then to the rest.
On a mesh of two dimensions (HSDP) weights are split within a group of processes and replicated over the groups.
Gradients are summed, never averaged: denominators are of the whole step (training/learner/world.py).

The given model stays whole, for the code that samples from it or saves it, and `publish` copies the learned weights to
it. A checkpoint is written by all processes, each its shares (torch.distributed.checkpoint, as safetensors), and read by
any number of them. torch.distributed is imported only if a model is split.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn
from transformers.modeling_layers import GradientCheckpointingLayer

from training.learner.world import World, talking
from training.model.attention import through_body
from training.model.quantised import n_quantised


def is_split(x: Any) -> bool:
    """Whether a tensor, or a model, is split, so that this process holds a share of it."""
    return hasattr(x, "enter") if isinstance(x, nn.Module) else hasattr(x, "full_tensor")


def whole(x: Tensor) -> Tensor:
    """The whole tensor, gathered from the shares; all processes must call this."""
    split: Any = x
    return split.full_tensor() if is_split(x) else x


def own(x: Tensor) -> Tensor:
    """The share of this process, without a copy; under no_grad."""
    split: Any = x
    return split.to_local() if is_split(x) else x


def like(x: Tensor, target: Tensor) -> Tensor:
    """Splits a whole tensor, which every process has, as `target` is split; nothing is sent."""
    if not is_split(target) or is_split(x):
        return x
    from torch.distributed.tensor import distribute_tensor

    goal: Any = target
    x = x.to(goal.device)
    return distribute_tensor(x, goal.device_mesh, goal.placements, src_data_rank=None)


def of_shares(share: Tensor, target: Tensor) -> Tensor:
    """The whole tensor, gathered from shares that are laid out as those of `target`; all processes must call this."""
    if not is_split(target):
        return share
    from torch.distributed.tensor import DTensor

    goal: Any = target
    shape, stride = target.shape, target.stride()
    return DTensor.from_local(
        share, goal.device_mesh, goal.placements, run_check=False, shape=shape, stride=stride
    ).full_tensor()


@dataclass(frozen=True)
class Saved:
    """A tensor in a folder that `write` wrote, of which a process reads its share alone."""

    folder: Path
    name: str
    dtype: torch.dtype


def write(folder: Path, tensors: Mapping[str, Tensor], world: World) -> None:
    """Write split tensors into a folder that is there, each process its shares, into a file of its own; all processes
    call it with the same names, and it returns when all have written. Raises the error of the disk in each of them if
    one could not write, and Lost if one has died."""
    from torch.distributed.checkpoint.api import CheckpointException
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter
    from torch.distributed.checkpoint.state_dict_saver import save

    with talking(world):
        try:
            save(dict(tensors), storage_writer=HuggingFaceStorageWriter(str(folder), save_distributed=True))
        except CheckpointException as e:
            raise _cause(e) from e


def read(folder: Path, tensors: Mapping[str, Tensor], *, alone: bool = False) -> None:
    """Fill tensors, each by its name, from a folder that any number of processes wrote: split ones with the share of
    this process. alone: this process reads by itself; otherwise all call it. Raises the error of the disk if it cannot
    be read."""
    from torch.distributed.checkpoint.api import CheckpointException
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader
    from torch.distributed.checkpoint.state_dict_loader import load

    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "torch.distributed is disabled")  # it is what `alone` means
            load(dict(tensors), storage_reader=HuggingFaceStorageReader(str(folder)), no_dist=alone)
    except CheckpointException as e:
        raise _cause(e) from e


def _cause(e: Any) -> BaseException:
    """What happened to the first process that failed, without torch's frame."""
    return next((error for _, (error, _) in sorted(e.failures.items())), e)


def split(model: nn.Module, world: World) -> nn.Module:
    """A copy of the model, of which each process holds a share; the given model is not changed. Half-precision weights
    become float32 weights, which are rounded when they are gathered. Raises ValueError for a model that cannot be
    split."""
    from torch.distributed.fsdp import register_fsdp_forward_method

    name = type(model).__name__
    if n_quantised(model):
        raise ValueError(f"shards: a {name} whose base is quantised cannot be split: leave lora.base or shards out")
    if any(p.dim() == 3 for p in model.parameters()):
        raise ValueError(f"shards: the experts of a {name} cannot be split yet: leave shards out")
    if len(kinds := {p.dtype for p in model.parameters()}) > 1:
        dtypes = " and ".join(sorted(str(k).removeprefix("torch.") for k in kinds))
        raise ValueError(f"shards: a {name} with weights of {dtypes} cannot be split: load it in one dtype")
    # the copies share the memory of the weights until they are split
    alias = {id(p): nn.Parameter(p.detach(), requires_grad=p.requires_grad) for p in model.parameters()}
    whole_device = next(model.parameters()).device
    out: Any = copy.deepcopy(model, dict(alias))
    (kind,) = kinds
    into_shares(out, world.mesh, kind)
    out.enter = MethodType(through_body, out)
    register_fsdp_forward_method(out, "enter")
    assert whole_device.type in ("cpu", "cuda")  # a mesh has one of these
    return out.eval()


def into_shares(model: nn.Module, mesh: Any, kind: torch.dtype) -> None:
    """Split a model in place, layer by layer and then the rest; it computes in `kind`. Raises ValueError for a model
    without layers."""
    from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

    body: Any = model.base_model
    layers = [m for m in body.modules() if isinstance(m, GradientCheckpointingLayer)]
    if not layers:
        raise ValueError(f"shards: a {type(body).__name__} has no layers by which it could be split: leave shards out")
    settings: dict[str, Any] = {"mesh": mesh}
    if kind.itemsize < 4:
        settings["mp_policy"] = MixedPrecisionPolicy(
            param_dtype=kind, reduce_dtype=torch.float32, cast_forward_inputs=False
        )
    for part in (*layers, model):
        if any(p.dtype.itemsize < 4 for p in part.parameters()):
            part.float()
        fully_shard(part, **settings)
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)


@torch.no_grad()
def publish(learned: nn.Module, model: nn.Module, keep: bool = True) -> None:
    """Write the learned weights into the model that was split, one by one; all processes must call this. keep: False in
    a process that only gives its share."""
    for p, q in zip(learned.parameters(), model.parameters(), strict=True):
        full = whole(p)
        if keep:
            if q.shape == full.shape:
                q.copy_(full)
            else:  # its memory was freed
                q.data = full.to(q.dtype)


def let_go(model: nn.Module) -> None:
    """Free the memory of a model's weights until `publish`."""
    for p in model.parameters():
        p.data = p.data.new_empty(0)
