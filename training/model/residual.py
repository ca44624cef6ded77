"""The residual stream of a model, read and changed by layer, token position and row.

The stream after block l (0 the first, -1 the last) is the output of that block: [tokens, d]. `read` returns it for
whole rows of ids; `edited` changes it while a forward pass runs, row by row, so that a change of one row of a batch
affects no other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from transformers.modeling_layers import GradientCheckpointingLayer

from training.model.attention import PackedRows
from training.model.model import head_weight, logit_factor, own_hidden


class Edit(Protocol):
    """A change of the residual stream of one row. `layers`: after which blocks, counted from 0, or from -1 at the end. `start`: the
    first position that it may change; what is before is read once for all rows that begin with it."""

    @property
    def layers(self) -> Sequence[int]: ...

    @property
    def start(self) -> int: ...

    def __call__(self, layer: int, stream: Tensor, position: Tensor) -> Tensor:
        """stream [n, d] after block `layer` at the positions [n] of the row -> the stream that the next block sees.
        They may include columns beyond the row's end; nothing reads those."""
        ...


@dataclass(frozen=True, kw_only=True)
class AddVector:
    """Adds a vector [d] after one block, from the position `start` on."""

    vector: Tensor
    layer: int
    start: int = 0

    @property
    def layers(self) -> Sequence[int]:
        return (self.layer,)

    def __call__(self, layer: int, stream: Tensor, position: Tensor) -> Tensor:
        here = (position >= self.start).to(stream.dtype)[:, None]
        return stream + here * self.vector.to(stream)


def untouched(edit: Edit | None, n: int) -> int:
    """How many of the first tokens of a prompt of n an edit leaves as they are; never the last token, behind which a row draws."""
    return n - 1 if edit is None else max(0, min(edit.start, n - 1))


def blocks_of(model: nn.Module) -> list[nn.Module]:
    """The blocks of the residual stream, in order. Raises ValueError if there are none."""
    body: Any = model.base_model
    blocks: list[nn.Module] = [m for m in body.modules() if isinstance(m, GradientCheckpointingLayer)]
    if not blocks:
        raise ValueError(f"a {type(model).__name__} has no blocks whose residual stream could be read")
    return blocks


def layer_of(model: nn.Module, layer: int) -> int:
    """The block of this number, counted from 0; a negative number counts from the end. Raises ValueError."""
    n = len(blocks_of(model))
    if not -n <= layer < n:
        raise ValueError(
            f"there is no layer {layer}: this model has {n}, so name 0 to {n - 1}, or -1 to -{n} from the end"
        )
    return layer % n


def fitting(model: nn.Module, vector: Tensor) -> Tensor:
    """The vector, if it has the size of this model's residual stream. Raises ValueError for a vector of another
    size."""
    width = head_weight(model).shape[1]
    if vector.shape != (width,):
        raise ValueError(
            f"the vector has the shape {list(vector.shape)} and the residual stream of this model {width} numbers: "
            "it was made with another model; make it again with this one"
        )
    return vector


def check_edits(model: nn.Module, edits: Sequence[Edit | None]) -> None:
    """Raises ValueError for an edit of a layer that does not exist, and for a vector of another model."""
    for layer in {layer for e in edits if e is not None for layer in e.layers}:
        layer_of(model, layer)
    for vector in {e.vector.shape: e.vector for e in edits if isinstance(e, AddVector)}.values():
        fitting(model, vector)


def read_out(model: nn.Module) -> tuple[nn.Module, Tensor]:
    """The norm behind the last block, and the head's weight [V, d], scaled as the logits are: logits = norm(x) weight^T.
    Raises ValueError where that is not how the model reads its stream out."""
    body: Any = model.base_model
    norm = getattr(body, "norm", None)
    if not isinstance(norm, nn.Module):
        raise ValueError(f"a {type(model).__name__} has no norm behind its last block that could be read")
    return norm, head_weight(model).detach() * logit_factor(model)


@contextmanager
def edited(model: nn.Module, edits: Sequence[Edit | None], position: Tensor) -> Iterator[None]:
    """Within the context, edits[b] changes the stream of row b in a forward pass of the model's own layers over a batch
    [rows, n] at `position` [rows, n]; rows without an edit keep every bit. Raises ValueError for a layer that does not
    exist."""
    blocks = blocks_of(model)
    named = {layer for e in edits if e is not None for layer in e.layers}
    place = {layer: layer_of(model, layer) for layer in named}
    wanted = sorted(set(place.values()))
    with ExitStack() as hooks:
        for layer in wanted:

            def change(module: nn.Module, args: Any, output: Any, layer: int = layer) -> Any:
                stream = output[0] if isinstance(output, tuple) else output
                changed = stream.clone()
                for b, edit in enumerate(edits):
                    if edit is not None and any(place[named] == layer for named in edit.layers):
                        changed[b] = edit(layer, stream[b], position[b])
                return (changed, *output[1:]) if isinstance(output, tuple) else changed

            hooks.callback(blocks[layer].register_forward_hook(change).remove)
        yield


@torch.no_grad()
def read(model: nn.Module, rows: Sequence[np.ndarray], layers: Sequence[int], *, tokens: int = 16384) -> list[Tensor]:
    """Per row of ids [n] its streams [len(layers), n, d] after these blocks; equal rows are read once. tokens: the most
    tokens in one pass. Raises ValueError for a layer that does not exist."""
    model.eval()
    place: dict[bytes, int] = {}
    which = [place.setdefault(np.asarray(r, dtype=np.int64).tobytes(), len(place)) for r in rows]
    rows = [np.frombuffer(r, dtype=np.int64) for r in place]
    blocks, wanted, device = blocks_of(model), [layer_of(model, layer) for layer in layers], head_weight(model).device
    out: list[Tensor] = []
    at = 0
    while at < len(rows):
        part = [rows[at]]
        while at + len(part) < len(rows) and sum(map(len, part)) + len(rows[at + len(part)]) <= tokens:
            part.append(rows[at + len(part)])
        lengths, kept = [len(x) for x in part], {}
        with ExitStack() as hooks:
            for layer in wanted:

                def keep(module: nn.Module, args: Any, output: Any, layer: int = layer, kept: dict = kept) -> None:
                    stream = output[0] if isinstance(output, tuple) else output
                    kept[layer] = stream.reshape(-1, stream.shape[-1])

                hooks.callback(blocks[layer].register_forward_hook(keep).remove)
            ids = torch.from_numpy(np.concatenate(part).astype(np.int64)).to(device)
            position = torch.from_numpy(np.concatenate([np.arange(n) for n in lengths])).to(device)
            own_hidden(model, ids, position, PackedRows(lengths, device))
        streams = torch.stack([kept[layer] for layer in wanted])
        out += [s.float() for s in streams.split(lengths, dim=1)]
        at += len(part)
    return [out[i] for i in which]


@torch.no_grad()
def input_sizes(model: nn.Module, rows: Sequence[np.ndarray]) -> dict[str, Tensor]:
    """Name of each linear weight [out, in] of the blocks -> the mean absolute value |x| [in] of its inputs, over all
    tokens of rows of ids [n]."""
    model.eval()
    sums: dict[str, Tensor] = {}
    device, tokens = head_weight(model).device, sum(map(len, rows))
    inside = {m for block in blocks_of(model) for m in block.modules() if isinstance(m, nn.Linear)}
    with ExitStack() as hooks:
        for name, module in model.named_modules():
            if module in inside:

                def add(module: nn.Module, args: Any, weight: str = f"{name}.weight") -> None:
                    size = args[0].reshape(-1, args[0].shape[-1]).float().abs().sum(0)
                    sums[weight] = sums[weight] + size if weight in sums else size

                hooks.callback(module.register_forward_pre_hook(add).remove)
        for row in rows:
            ids = torch.from_numpy(np.asarray(row, dtype=np.int64)).to(device)
            own_hidden(model, ids, torch.arange(len(row), device=device), PackedRows([len(row)], device))
    return {name: size / tokens for name, size in sums.items()}
