"""A frozen base in four bits, on which adapters are trained (Dettmers et al. 2023, "QLoRA", arXiv 2305.14314): the
linear layers within a model's layers as NF4, by bitsandbytes. Embedding, head, norms and biases stay as they are.

A weight is an index into a table of 16 numbers, times the largest absolute value in its block of 64: 4.5 bits. It is
unpacked for each product, forward and backward, and multiplied as a plain weight in the dtype of the rest. So the
result of a row does not depend on the rest of its batch, and no special low-bit product is needed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from training.model.size import BLOCK

KINDS = ("nf4",)


class QuantisedLinear(nn.Linear):
    """A linear layer whose weight [out, in] is NF4: `weight` [ceil(out in / 2)] uint8, two weights a byte, `scale`
    [ceil(out in / 64)] float32. It is never trained; `unpacked` gives the weight in its original dtype."""

    def __init__(self, plain: nn.Linear) -> None:
        nn.Module.__init__(self)
        self.in_features, self.out_features, self.dtype = plain.in_features, plain.out_features, plain.weight.dtype
        packed, state = _functions().quantize_4bit(plain.weight.detach(), blocksize=BLOCK, quant_type="nf4")
        self.weight = nn.Parameter(packed.flatten(), requires_grad=False)
        self.register_buffer("scale", state.absmax)
        self.bias = None if plain.bias is None else nn.Parameter(plain.bias.detach(), requires_grad=False)

    def unpacked(self) -> Tensor:
        shape = torch.Size([self.out_features, self.in_features])
        of = _functions()
        scale: Any = self.scale
        state = of.QuantState(absmax=scale, shape=shape, blocksize=BLOCK, quant_type="nf4", dtype=self.dtype)
        return of.dequantize_4bit(self.weight[:, None], state)

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002  the name that torch gives it
        return _Product.apply(input, self)


class _Product(torch.autograd.Function):
    """x [..., in] -> x W' + bias; W is unpacked again for the backward pass, so that no tensor of its size is kept."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, layer: QuantisedLinear) -> Tensor:
        ctx.layer = layer
        return F.linear(x, layer.unpacked(), layer.bias)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return grads[0] @ ctx.layer.unpacked(), None


def check(kind: str) -> None:
    """Raises ValueError for an unknown kind, and if bitsandbytes is missing."""
    if kind and kind not in KINDS:
        raise ValueError(f"lora.base is {kind!r}: it is nf4, or left out for a base in the type of `dtype`")
    if kind and find_spec("bitsandbytes") is None:
        raise ValueError(
            "lora.base is nf4, and the package that quantises is missing: pip install 'espalier[qlora]', or leave lora.base out"
        )


def quantise(model: nn.Module, kind: str, device: str = "") -> None:
    """Quantise the linear layers within the model's layers to `kind`, in place, one after the other, each on `device`
    if one is named; "" changes nothing, and quantised layers stay as they are. Raises ValueError as `check` does, if
    bitsandbytes has no kernel for the device, and for a model whose weights are not in linear layers."""
    check(kind)
    if not kind:
        return
    body: Any = model.base_model
    if any(p.dim() == 3 for p in body.parameters()):
        raise ValueError(
            f"lora.base is nf4, and the experts of a {type(model).__name__}, which are most of it, are no linear layers: leave lora.base out"
        )
    linear_names = [n for n, m in body.named_modules() if type(m) is nn.Linear]
    if not linear_names and not any(layers(model)):
        raise ValueError(
            f"lora.base is nf4, and a {type(model).__name__} has no linear layers to quantise: leave lora.base out"
        )
    for name in linear_names:
        owner, _, last = name.rpartition(".")
        linear = body.get_submodule(name)
        try:
            linear = linear.to(device) if device else linear
            setattr(body.get_submodule(owner), last, QuantisedLinear(linear))
        except RuntimeError as e:
            raise ValueError(
                f"lora.base is nf4, and bitsandbytes cannot quantise on {linear.weight.device} ({str(e).splitlines()[0]}): leave lora.base out"
            ) from e


def plain(model: nn.Module) -> None:
    """Turn quantised layers back into equivalent linear layers, in place."""
    for name, layer in list(layers(model)):
        owner, _, last = name.rpartition(".")
        linear: Any = nn.Linear(layer.in_features, layer.out_features, bias=False, device="meta")
        linear.weight = nn.Parameter(layer.unpacked())
        linear.bias = None if layer.bias is None else nn.Parameter(layer.bias.detach())
        setattr(model.get_submodule(owner), last, linear)


def layers(model: nn.Module) -> Iterator[tuple[str, QuantisedLinear]]:
    """The quantised layers of a model by name."""
    for name, m in model.named_modules():
        if isinstance(m, QuantisedLinear):
            yield name, m


def n_quantised(model: nn.Module) -> int:
    """How many weights are quantised."""
    return sum(m.in_features * m.out_features for _, m in layers(model))


def quiet() -> None:
    """Call this before bitsandbytes is imported (peft imports it too): silences a warning about a package that is not
    used here."""
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)


def _functions() -> Any:
    """bitsandbytes.functional; it takes seconds to import, and few runs need it."""
    quiet()
    import bitsandbytes.functional

    return bitsandbytes.functional
