"""The compiled layers over a key/value cache, without gradients: prompts, and decode steps that are not drawn by
decode.c.

The same code between the matrix products as in training (`layers.py`), so that a sampler rounds as its learner does;
attention is the cache's (training/model/kv_cache.py). The weights are copies, taken at `refresh`: query, key and value
are concatenated for one product, gate and up for another, and `decode.py` passes the same copies to decode.c.

`CachedLayers.of` compares the result with the model's own forward on a probe, and returns None if they differ and
whenever `layers.of` does: for other architectures and dtypes, hooked or adapted modules, larger models, and without a
compiler. Then the model's own forward is used.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from training.model import products
from training.model.attention import PackedRows
from training.model.kv_cache import CachedRows
from training.model.model import hidden_states
from training.model.native import layers
from training.model.native.layers import NEAR, Kernels, Layers, body, in_float32, tried


@dataclass(kw_only=True)
class LayerWeights:
    """before, after: norms; qkv [d, (H + 2G) D]; wq, wk [D]: norms of heads or None; out [H D, d], up [d, 2 m] (gate,
    then up), down [m, d]. Products are [in, out], row by row, in the model's dtype; norms and biases are float32."""

    before: Tensor
    qkv: Tensor
    bias: Tensor | None
    wq: Tensor | None
    wk: Tensor | None
    out: Tensor
    after: Tensor
    up: Tensor
    down: Tensor


class CachedLayers:
    """Call it as `training.model.model.hidden_states`: ids, position [rows, n] -> [rows, n, d]. `refresh` reads the
    model's weights anew."""

    def __init__(self, model: nn.Module, compiled: Layers) -> None:
        self.model, self.compiled = model, compiled
        self.layers: list[LayerWeights] = []
        self.refresh()

    @staticmethod
    def of(model: nn.Module) -> CachedLayers | None:
        """None if the model's own forward has to be used."""
        compiled = layers.of(model)
        if compiled is None:
            return None
        cached = CachedLayers(model, compiled)
        return cached if cached.agrees() else None

    @torch.no_grad()
    def refresh(self) -> None:
        """Copy the current weights."""
        base, copies = body(self.model), []
        for layer in base.layers:
            a, m = layer.self_attn, layer.mlp
            qkv = (a.q_proj, a.k_proj, a.v_proj)
            normed = hasattr(a, "q_norm")
            copies.append(
                LayerWeights(
                    before=_float(layer.input_layernorm.weight),
                    qkv=_product([p.weight for p in qkv]),
                    bias=None if a.q_proj.bias is None else torch.cat([p.bias for p in qkv]).float(),
                    wq=_float(a.q_norm.weight) if normed else None,
                    wk=_float(a.k_norm.weight) if normed else None,
                    out=_product([a.o_proj.weight]),
                    after=_float(layer.post_attention_layernorm.weight),
                    up=_product([m.gate_proj.weight, m.up_proj.weight]),
                    down=_product([m.down_proj.weight]),
                )
            )
        self.layers = copies
        self.embedding, self.norm = base.embed_tokens.weight.detach().clone(), _float(base.norm.weight)

    def named(self) -> dict[str, Tensor]:
        """The copies under the names and in the shapes of the model's own parameters: to compare the two."""
        heads, kv, d = self.compiled.sizes
        widths = [heads * d, kv * d, kv * d]
        out = {"embed_tokens.weight": self.embedding, "norm.weight": self.norm}
        for i, x in enumerate(self.layers):
            gate, up = x.up.T.chunk(2)
            own = {f"self_attn.{n}_proj.weight": w for n, w in zip("qkv", x.qkv.T.split(widths), strict=True)}
            if x.bias is not None:
                own |= {f"self_attn.{n}_proj.bias": w for n, w in zip("qkv", x.bias.split(widths), strict=True)}
            if x.wq is not None and x.wk is not None:
                own |= {"self_attn.q_norm.weight": x.wq, "self_attn.k_norm.weight": x.wk}
            own |= {
                "self_attn.o_proj.weight": x.out.T,
                "mlp.gate_proj.weight": gate,
                "mlp.up_proj.weight": up,
                "mlp.down_proj.weight": x.down.T,
                "input_layernorm.weight": x.before,
                "post_attention_layernorm.weight": x.after,
            }
            out |= {f"layers.{i}.{name}": w for name, w in own.items()}
        prefix = f"{self.model.base_model_prefix}."
        return {prefix + name: w.to(self.embedding.dtype) for name, w in out.items()}

    @torch.no_grad()
    def agrees(self) -> bool:
        """Whether a prompt and a token after it give the same as the model's own forward; a bfloat16 model is compared
        in float32."""
        exact = in_float32(self.model)
        if exact is not self.model:
            return CachedLayers(exact, self.compiled).agrees()
        ids = tried(7, len(self.embedding))
        want = hidden_states(self.model, ids, torch.arange(7), PackedRows([7]))
        cache = CachedRows(1)
        states = []
        for part in (ids[None, :6], ids[None, 6:]):
            states.append(self(part, cache.begin(part.shape[1]), cache)[0])
            cache.advance()
        return torch.allclose(torch.cat(states), want, atol=NEAR * float(want.abs().max()), rtol=0)

    def __call__(self, ids: Tensor, position: Tensor, cache: CachedRows) -> Tensor:
        (rows, n), (h, g, d) = ids.shape, self.compiled.sizes
        kernels = Kernels(self.compiled, *self.compiled.angles(self.model, position.reshape(-1)))
        x = self.embedding.index_select(0, ids.reshape(-1)).float()
        for i, layer in enumerate(self.layers):
            qkv = products.input_gradient(kernels.norm(x, layer.before)[0], layer.qkv, layer.bias)
            qk = kernels.rotate(qkv, layer.wq, layer.wk)[0].view(rows, n, h + g, d).transpose(1, 2)
            v = qkv.view(rows, n, h + 2 * g, d)[:, :, h + g :].transpose(1, 2)
            y = cache.attend(i, qk[:, :h], qk[:, h:], v, self.compiled.scale)
            x = products.input_gradient(y.reshape(len(x), -1), layer.out, add=x)
            both = products.input_gradient(kernels.norm(x, layer.after)[0], layer.up)
            x = products.input_gradient(kernels.gate(both), layer.down, add=x)
        return kernels.norm(x, self.norm)[0].view(rows, n, -1).to(self.embedding.dtype)


def _float(w: Tensor) -> Tensor:
    """A copy in float32."""
    return w.detach().to(torch.float32, copy=True)


def _product(weights: list[Tensor]) -> Tensor:
    """Concatenates weights [out, in] into one matrix [in, sum of out]."""
    return torch.cat([w.detach().T for w in weights], 1)
