"""The layers of a decoder-only model over packed rows, forward and backward, with compiled code between the matrix
products.

One autograd function is one layer: query, key and value are one product, gate and up are one, residuals are added by
the product before them, and attention reads the rows in place, shared prefixes included, without padding. Kept for the
backward pass are the inputs of both halves, the projections, the attention and the gates; normed states and gated
activations are recomputed together with their gradients.

Values and gradients equal those of the model's own forward up to rounding (tests/training/model/test_native.py compares
them in float64 too). `of` gives None for architectures that it does not know, weights that are not on a CPU, or of
neither float32 nor bfloat16, hooked or adapted modules, very large models, and where there is no compiler: then the
model's own forward is used.

Of a bfloat16 model only the products are in bfloat16 (training/model/products.py): what lies between them, the states
of a row through all layers included, is float32.
"""

from __future__ import annotations

import copy
import ctypes
import weakref
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from training.model import products
from training.model.attention import PackedRows, SharedRows, Spans, own_forward
from training.model.native.build import library

KNOWN = {"llama", "qwen2", "qwen3"}
ROPES = {"default", "linear", "llama3"}  # rotary embeddings whose angles depend on the position alone
# Parameters of a model: in float32 0.5 to 600 million were measured to gain, in bfloat16 up to 135 million, and at 600
# transformers' own layers sample a tenth faster (`make bench-crossover`). Log-probs of SmolLM2 are as close to float64
# as those of transformers (tests/training/model/test_smollm2.py).
LARGEST = {torch.float32: 3 << 28, torch.bfloat16: 1 << 28}
# The allowed difference between two implementations in float32, relative to the largest state. Rounding grows through
# layers: SmolLM2's 30, whose states reach 55, come to 1.06e-4.
NEAR = 3e-4
_CHUNKS = 16  # CHUNKS of layers.c
_MADE: weakref.WeakKeyDictionary[nn.Module, Layers | None] = weakref.WeakKeyDictionary()


def body(model: nn.Module) -> Any:
    """A model without its head: `config`, `embed_tokens`, `layers`, `rotary_emb`, `norm`. torch types none of them."""
    return model.base_model


def usable(model: nn.Module) -> bool:
    """Whether the layers of a model are supported here, unchanged as transformers made them: plain linear layers, no
    hooks, biases of qkv alone, all float32 or all bfloat16 on a CPU."""
    base = body(model)
    c = getattr(base, "config", None)
    if (
        c is None
        or c.model_type not in KNOWN
        or c.hidden_act != "silu"
        or (getattr(c, "rope_parameters", None) or {}).get("rope_type") not in ROPES
    ):
        return False
    own, size = [model, base, base.embed_tokens, base.norm, base.rotary_emb], 0
    dtype = base.embed_tokens.weight.dtype
    if dtype not in LARGEST:
        return False
    for layer in base.layers:
        a, m = layer.self_attn, layer.mlp
        inner = (a.q_proj, a.k_proj, a.v_proj, a.o_proj, m.gate_proj, m.up_proj, m.down_proj)
        if any(type(x) is not nn.Linear for x in inner) or any(x.bias is not None for x in inner[3:]):
            return False
        if getattr(a, "sliding_window", None) is not None:
            return False
        own += [layer, a, m, layer.input_layernorm, layer.post_attention_layernorm, *inner]
        own += [a.q_norm, a.k_norm] if hasattr(a, "q_norm") else []
    for x in own:
        if x._forward_hooks or x._forward_pre_hooks:
            return False
        for p in x._parameters.values():
            if p is not None:
                if p.dtype != dtype or not p.is_cpu:
                    return False
                size += p.numel()
    return size <= LARGEST[dtype]


def in_float32(model: nn.Module) -> nn.Module:
    """The model if it is float32, else its body as a float32 copy, so that a comparison is free of bfloat16
    rounding."""
    if body(model).embed_tokens.weight.dtype == torch.float32:
        return model
    return nn.Module.float(copy.deepcopy(body(model)))  # transformers' own `float` refuses models loaded from a GGUF


@torch.no_grad()
def rotations(model: nn.Module, top: int, known: int) -> tuple[Tensor, Tensor]:
    """cos and sin [positions, D/2] of the model's rotary embeddings for `top` positions, or for twice as many as are
    cached."""
    reach, base = torch.arange(max(top, 2 * known, 256)), body(model)
    cos, sin = (
        x[0, :, : x.shape[-1] // 2].contiguous()
        for x in base.rotary_emb(base.embed_tokens.weight[:1].float(), reach[None])
    )
    return cos, sin


def of(model: nn.Module) -> Layers | None:
    """The compiled layers of a model; None if its own forward has to be used. The first call compares the two on a
    few tokens."""
    lib = library()
    if lib is None or not usable(model):
        return None
    if model not in _MADE:
        layers = Layers(model, lib)
        _MADE[model] = layers if layers.agrees(model) else None
    return _MADE[model]


def tried(n: int, words: int) -> Tensor:
    """[n] ids that are compared, spread over the vocabulary. The first ones are often special tokens that a model never
    learned: in SmolLM2 these make a rounding three hundred times as large."""
    return torch.arange(1, n + 1) * 7919 % words


class Layers:
    """Call it as `training.model.model.hidden_states` of packed rows: model, ids, position [T] -> [T, d]."""

    def __init__(self, model: nn.Module, lib: ctypes.CDLL) -> None:
        c, first = body(model).config, body(model).layers[0].self_attn
        self.lib, self.heads, self.kv, self.d = lib, c.num_attention_heads, c.num_key_value_heads, first.head_dim
        self.eps, self.scale = c.rms_norm_eps, first.scaling
        self.cos = self.sin = torch.zeros(0, self.d // 2)  # [positions, D/2]

    @torch.no_grad()
    def agrees(self, model: nn.Module) -> bool:
        """Whether two short rows give the same as in the model's own forward. A bfloat16 model is compared in float32;
        its bfloat16 result must not be further from that than the result of its own forward, which rounds more."""
        exact = in_float32(model)
        ids = tried(12, body(model).config.vocab_size)
        position, rows = torch.cat([torch.arange(7), torch.arange(5)]), PackedRows([7, 5])
        want = own_forward(exact, ids, position, rows)
        if not torch.allclose(self(exact, ids, position, rows), want, atol=NEAR * float(want.abs().max()), rtol=0):
            return False
        if exact is model:
            return True
        ours, own = (f(model, ids, position, rows).float() for f in (self, own_forward))
        return bool((ours - want).norm() <= (own - want).norm() + 0.01 * want.norm())

    def angles(self, model: nn.Module, position: Tensor) -> tuple[Tensor, Tensor]:
        """cos and sin [T, D/2] of positions [T]."""
        cos, sin = self.reach(model, int(position.max()) + 1)
        return cos.index_select(0, position), sin.index_select(0, position)

    def reach(self, model: nn.Module, top: int) -> tuple[Tensor, Tensor]:
        """cos and sin [positions, D/2] of `top` positions or more."""
        if top > len(self.cos):
            self.cos, self.sin = rotations(model, top, len(self.cos))
        return self.cos, self.sin

    @property
    def sizes(self) -> tuple[int, int, int]:
        """The number of query heads, of key heads, and the size of a head."""
        return self.heads, self.kv, self.d

    def __call__(self, model: nn.Module, ids: Tensor, position: Tensor, rows: PackedRows | SharedRows) -> Tensor:
        base = body(model)
        kernels = Kernels(self, *self.angles(model, position), rows.spans, rows.longest)
        x = base.embed_tokens(ids).float()
        for layer in base.layers:
            if "forward" in vars(layer):  # `training.model.model.checkpointed_layers`
                x = checkpoint(_layer, x, layer, kernels, use_reentrant=False, preserve_rng_state=False)
            else:
                x = _layer(x, layer, kernels)
        return _Norm.apply(x, base.norm.weight.float(), kernels).to(base.norm.weight.dtype)


def _layer(x: Tensor, layer: Any, kernels: Kernels) -> Tensor:
    a, m = layer.self_attn, layer.mlp
    qkv = (a.q_proj, a.k_proj, a.v_proj)
    return _Layer.apply(
        x,
        layer.input_layernorm.weight.float(),
        torch.cat([p.weight for p in qkv]),
        None if a.q_proj.bias is None else torch.cat([p.bias for p in qkv]).float(),
        *((a.q_norm.weight.float(), a.k_norm.weight.float()) if hasattr(a, "q_norm") else (None, None)),
        a.o_proj.weight,
        layer.post_attention_layernorm.weight.float(),
        torch.cat([m.gate_proj.weight, m.up_proj.weight]),
        m.down_proj.weight,
        kernels,
    )


@dataclass(frozen=True)
class Kernels:
    """The functions of layers.c for one pass; sizes, angles and spans are the same in every layer."""

    of: Layers
    cos: Tensor
    sin: Tensor
    spans: Spans | None = None  # of packed rows, which `attend` reads
    longest: int = 0

    def _call(self, name: str, *given: Tensor | int | float | None) -> None:
        if getattr(self.of.lib, name)(*map(_argument, given)):
            raise RuntimeError(f"could not allocate memory for the attention of a row of {self.longest} tokens")

    def norm(self, x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        y, r = torch.empty_like(x), x.new_empty(len(x))
        self._call("norm_forward", *x.shape, self.of.eps, x, w, y, r)
        return y, r

    def norm_back(
        self, x: Tensor, w: Tensor, r: Tensor, dy: Tensor, more: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """dx (with `more` added), the normed x again, and dw."""
        dx, y, part = torch.empty_like(x), torch.empty_like(x), x.new_empty(_CHUNKS, len(w))
        self._call("norm_backward", *x.shape, x, w, r, dy, more, dx, y, part)
        return dx, y, part.sum(0)

    @property
    def sizes(self) -> tuple[int, int, int]:
        return self.of.sizes

    def rotate(self, qkv: Tensor, wq: Tensor | None, wk: Tensor | None) -> tuple[Tensor, Tensor]:
        h, g, d = self.sizes
        out, r = qkv.new_empty(len(qkv), (h + g) * d), qkv.new_empty(len(qkv), h + g)
        self._call("turn_forward", len(qkv), h, g, d, self.of.eps, qkv, wq, wk, self.cos, self.sin, out, r)
        return out, r

    def rotate_back(
        self, qkv: Tensor, wq: Tensor | None, wk: Tensor | None, r: Tensor, dout: Tensor, dqkv: Tensor
    ) -> Tensor:
        """Writes queries and keys of dqkv; returns the gradients [2, D] of wq and wk."""
        part = qkv.new_empty(_CHUNKS, 2, self.of.d)
        self._call("turn_backward", len(qkv), *self.sizes, qkv, wq, wk, self.cos, self.sin, r, dout, dqkv, part)
        return part.sum(0)

    def _rows(self) -> tuple[int, Tensor, Tensor, Tensor, int]:
        s = self.spans
        assert s is not None, "attention over a cache is the cache's own"
        return len(s.clusters) - 1, s.clusters, s.spans, s.pieces, self.longest

    def attend(self, qk: Tensor, qkv: Tensor) -> tuple[Tensor, Tensor]:
        h, _, d = self.sizes
        y, lse = qk.new_empty(len(qk), h * d), qk.new_empty(len(qk), h)
        self._call("attend_forward", *self.sizes, self.of.scale, qk, qkv, *self._rows(), y, lse)
        return y, lse

    def attend_back(self, qk: Tensor, qkv: Tensor, y: Tensor, lse: Tensor, dy: Tensor) -> tuple[Tensor, Tensor]:
        dqk, dqkv = torch.zeros_like(qk), torch.zeros_like(qkv)
        self._call("attend_backward", *self.sizes, self.of.scale, qk, qkv, *self._rows(), y, lse, dy, dqk, dqkv)
        return dqk, dqkv

    def gate(self, both: Tensor) -> Tensor:
        a = both.new_empty(len(both), both.shape[1] // 2)
        self._call("gate_forward", *a.shape, both, a)
        return a

    def gate_back(self, both: Tensor, da: Tensor) -> tuple[Tensor, Tensor]:
        dboth, a = torch.empty_like(both), torch.empty_like(da)
        self._call("gate_backward", *a.shape, both, da, dboth, a)
        return dboth, a


def _argument(x: Tensor | int | float | None) -> Any:
    if isinstance(x, Tensor):
        return ctypes.c_void_p(x.data_ptr())
    return ctypes.c_float(x) if isinstance(x, float) else None if x is None else ctypes.c_long(x)


class _Layer(torch.autograd.Function):
    """x [T, d] -> x [T, d] after one layer. qkv [N D, d], up [2 m, d]: the weights of several products, stacked."""

    @staticmethod
    def forward(ctx, x, before, qkv_w, bias, wq, wk, out, after, up, down, kernels):
        k = kernels
        h, r1 = k.norm(x, before)
        qkv = products.forward(h, qkv_w, bias)
        qk, r = k.rotate(qkv, wq, wk)
        y, lse = k.attend(qk, qkv)
        middle = products.forward(y, out, add=x)
        h, r2 = k.norm(middle, after)
        both = products.forward(h, up)
        ctx.save_for_backward(x, before, qkv_w, wq, wk, out, after, up, down, r1, qkv, qk, r, y, lse, middle, r2, both)
        ctx.kernels, ctx.biased = k, bias is not None
        return products.forward(k.gate(both), down, add=middle)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dx):
        x, before, qkv_w, wq, wk, out, after, up, down, r1, qkv, qk, r, y, lse, middle, r2, both = ctx.saved_tensors
        k, dx, dtype = ctx.kernels, dx.contiguous(), out.dtype
        dboth, a = k.gate_back(both, products.input_gradient(dx, down))
        d_down = products.weight_gradient(dx, a, dtype)
        dx, h, d_after = k.norm_back(middle, after, r2, products.input_gradient(dboth, up), dx)
        d_up = products.weight_gradient(dboth, h, dtype)
        dqk, dqkv = k.attend_back(qk, qkv, y, lse, products.input_gradient(dx, out))
        d_out = products.weight_gradient(dx, y, dtype)
        d_norms = k.rotate_back(qkv, wq, wk, r, dqk, dqkv)
        d_bias = dqkv.sum(0) if ctx.biased else None
        dx, h, d_before = k.norm_back(x, before, r1, products.input_gradient(dqkv, qkv_w), dx)
        d_wq, d_wk = (None, None) if wq is None else d_norms
        d_qkv = products.weight_gradient(dqkv, h, dtype)
        return dx, d_before, d_qkv, d_bias, d_wq, d_wk, d_out, d_after, d_up, d_down, None


class _Norm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w, kernels):
        y, r = kernels.norm(x, w)
        ctx.save_for_backward(x, w, r)
        ctx.kernels = kernels
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dy):
        dx, _, dw = ctx.kernels.norm_back(*ctx.saved_tensors, dy.contiguous())
        return dx, dw, None
