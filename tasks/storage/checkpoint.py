"""Checkpoints: one nested value at one step, as safetensors and JSON (never a pickle), sealed, the last KEEP of them
kept.

    .espalier/work/<stage>/<identity>/checkpoints/<name>/step_0000040/{tensors.safetensors, state.json, manifest.json}

Of a model that is split over processes each writes its shares, into files of a folder `shares` beside these; any number
of processes can read them.

A checkpoint is complete or absent (tasks/storage/commit.py). A damaged one is skipped with a warning, and the one
before it is used: every step is a function of the state before it, so only time is lost.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from tasks.core.errors import UserError
from tasks.storage import commit
from tasks.storage.faults import fault
from training.learner import shard
from training.learner.world import ONE, World

KEEP, VERSION = 2, 1
SHARES = "shares"


class Checkpoints:
    """The checkpoints of one `drive` of a stage, in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def save(self, step: int, state: Any, world: World = ONE) -> None:
        """Saves `state` at a step. Where it holds split tensors, all processes of `world` call this with theirs;
        otherwise one does. Raises TypeError if it holds anything other than None, numbers, texts, lists, tuples,
        mappings, tensors and arrays."""
        part = self.folder / ".part"
        tensors: dict[str, Tensor] = {}
        shares: dict[str, Tensor] = {}
        value = _pack(state, tensors, shares, {}, "state")
        if world.first:
            fault("checkpoint.save")
            commit.remove(part)
            commit.make_folder(self.folder)
            (part / SHARES if shares else part).mkdir(parents=True)
        if shares:
            world.share(None)  # until the folder is there
            shard.write(part / SHARES, shares, world)
            fault("checkpoint.shares")
        if not world.first:
            return
        save_file(tensors, part / "tensors.safetensors")
        fault("checkpoint.tensors")
        head = {"version": VERSION, "torch": torch.__version__, "step": step, "state": value}
        if shares:
            head["shares"] = {k: (list(t.shape), str(t.dtype).removeprefix("torch.")) for k, t in shares.items()}
        (part / "state.json").write_text(json.dumps(head), encoding="utf-8")
        commit.place(part, self.folder / f"step_{step:07d}")
        fault("checkpoint.prune")
        for old in self.found()[:-KEEP]:
            commit.remove(old)

    def found(self) -> list[Path]:
        """The folders of all checkpoints, the latest last."""
        return sorted(self.folder.glob("step_*"))

    def latest(self, world: World = ONE) -> tuple[int, Any] | None:
        """(step, state) of the latest sound checkpoint, or None. Raises UserError for one of another version."""
        step = self.sound()
        return None if step is None else (step, self.at(step, world))

    def sound(self) -> int | None:
        """The step of the latest sound checkpoint; damaged ones are removed."""
        for folder in reversed(self.found()):
            try:
                commit.check(folder, remedy="it is left out")
            except commit.Damaged as e:
                print(f"warning: {e}, and the steps since the one before it are taken again", file=sys.stderr)
                commit.remove(folder)
                continue
            return int(folder.name.removeprefix("step_"))
        return None

    def at(self, step: int, world: World = ONE) -> Any:
        """The state of the sound checkpoint of a step; tensors of which each process wrote a share are whole, or for
        processes that hold shares of the weights themselves `Saved`. Raises UserError for one of another version."""
        folder = self.folder / f"step_{step:07d}"
        head = json.loads((folder / "state.json").read_text(encoding="utf-8"))
        here, now = (head["version"], head["torch"]), (VERSION, torch.__version__)
        if here != now:
            raise UserError(
                f"the checkpoint {folder} was written by format {here[0]} with torch {here[1]}, and this is format {now[0]} with torch "
                f"{now[1]}: install that torch again to continue from it, or remove {self.folder} to start again"
            )
        shares = {k: shard.Saved(folder / SHARES, k, getattr(torch, v[1])) for k, v in head.get("shares", {}).items()}
        if shares and world.mesh is None:
            whole = {k: torch.empty(size, dtype=shares[k].dtype) for k, (size, _) in head["shares"].items()}
            shard.read(folder / SHARES, whole, alone=True)
            shares = whole
        return _unpack(head["state"], load_file(folder / "tensors.safetensors"), shares)


def _pack(value: Any, tensors: dict[str, Tensor], shares: dict[str, Tensor], names: dict[Any, str], at: str) -> Any:
    """JSON of a nested value; tensors and arrays go to `tensors`, each storage once: tied weights stay tied. Split
    tensors go to `shares`, under names that are the same in each process."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if shard.is_split(value):
        name = names.setdefault(("split", id(value)), str(len(shares)))
        shares.setdefault(name, value)
        return {"$share": name}
    if isinstance(value, Tensor | np.ndarray):
        if isinstance(value, np.ndarray) and value.dtype.kind not in "biuf":
            raise TypeError(f"{at} is an array of {value.dtype}: a checkpoint keeps arrays of numbers")
        tensor = (
            value.detach()
            if isinstance(value, Tensor)
            else torch.from_numpy(np.ascontiguousarray(value)).reshape(value.shape)
        )
        key = (
            (tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype, tensor.device)
            if tensor.numel()
            else len(tensors)
        )
        name = names.setdefault(key, str(len(tensors)))
        tensors.setdefault(name, tensor.cpu().contiguous())
        return {"$tensor" if isinstance(value, Tensor) else "$array": name}
    if isinstance(value, list | tuple):
        inner = [_pack(v, tensors, shares, names, f"{at}[{i}]") for i, v in enumerate(value)]
        return inner if isinstance(value, list) else {"$tuple": inner}
    if isinstance(value, Mapping):
        if all(isinstance(k, str) and not k.startswith("$") for k in value):
            return {k: _pack(v, tensors, shares, names, f"{at}.{k}") for k, v in value.items()}
        return {
            "$pairs": [
                [_pack(k, tensors, shares, names, at), _pack(v, tensors, shares, names, f"{at}[{k!r}]")]
                for k, v in value.items()
            ]
        }
    raise TypeError(
        f"{at} is a {type(value).__name__}: a checkpoint keeps numbers, texts, lists, mappings, tensors and arrays"
    )


def _unpack(value: Any, tensors: Mapping[str, Tensor], shares: Mapping[str, Any]) -> Any:
    if isinstance(value, list):
        return [_unpack(v, tensors, shares) for v in value]
    if not isinstance(value, dict):
        return value
    if len(value) != 1:
        return {k: _unpack(v, tensors, shares) for k, v in value.items()}
    ((kind, inner),) = value.items()
    if kind == "$tensor":
        return tensors[inner]
    if kind == "$share":
        return shares[inner]
    if kind == "$array":
        return tensors[inner].numpy().copy()
    if kind == "$tuple":
        return tuple(_unpack(v, tensors, shares) for v in inner)
    if kind == "$pairs":
        return {_unpack(k, tensors, shares): _unpack(v, tensors, shares) for k, v in inner}
    return {k: _unpack(v, tensors, shares) for k, v in value.items()}
