"""A decoder-only model's own weights in fewer, larger operations: what a decode step of a small model on a CPU is bound
by.

transformers' forward of a layer is some sixty small operations; here it is thirty. Query, key and value are one
product, gate and up are one, residuals are added by the product before them, and rotary embeddings are one complex
product, for which the rows of the query and key weights are laid so that the two numbers that turn together stand side
by side. The weights are copies, taken at `refresh`.

The result is that of the model's own forward but for rounding: `FusedDecoder.of` compares the two on a probe, and gives
None where they differ, for architectures that it does not know, for weights that are not float32 or bfloat16 on a CPU,
and for models larger than were ever measured. Then the model's own forward is used. Of a bfloat16 model the products
alone are in bfloat16, as the learner's are (training/model/native/layers.py).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from training.model import products
from training.model.attention import PackedRows
from training.model.kv_cache import CachedRows
from training.model.model import hidden_states
from training.model.native.build import library
from training.model.native.layers import body, rotations, usable

# parameters of a float32 model: of more, copies of the weights cost what larger operations gain (`make
# bench-crossover`). Of bfloat16 the gain is in what is not rounded, and in logits.
LARGEST = 1 << 26


@dataclass(kw_only=True)
class _Layer:
    """before, after: norms; qkv [d, (H + 2G) D], columns of q and k interleaved; turn [H + G, D] norms of heads or
    None; out [H D, d], up [d, 2 m] (gate, then up), down [m, d]. Products are [in, out], row by row."""

    before: Tensor
    qkv: Tensor
    bias: Tensor | None
    turn: Tensor | None
    out: Tensor
    after: Tensor
    up: Tensor
    down: Tensor


class FusedDecoder:
    """Call it as `training.model.model.hidden_states`: ids, position [rows, n] -> [rows, n, d]. `refresh` reads the
    model's weights anew."""

    def __init__(self, model: nn.Module) -> None:
        self.model, self.body = model, body(model)
        c = self.body.config
        first = self.body.layers[0].self_attn
        self.d, self.heads, self.kv = first.head_dim, c.num_attention_heads, c.num_key_value_heads
        self.scale, self.eps = first.scaling, c.rms_norm_eps
        half = self.d // 2
        self.order = torch.stack(
            [torch.arange(half), torch.arange(half) + half], 1
        ).flatten()  # (0, half, 1, half + 1, ...)
        self.layers: list[_Layer] = []
        self.angles = torch.zeros(0, half, dtype=torch.complex64)  # [positions, D/2] cos + i sin
        self.refresh()

    @staticmethod
    def of(model: nn.Module) -> FusedDecoder | None:
        """None where the model's own forward has to be used."""
        if not usable(model):
            return None
        # without compiled layers a learner rounds more than products to bfloat16, and its sampler has to as well
        if body(model).embed_tokens.weight.dtype == torch.float32:
            if sum(p.numel() for p in model.parameters()) > LARGEST:
                return None
        elif library() is None:
            return None
        decoder = FusedDecoder(model)
        return decoder if decoder.agrees() else None

    @torch.no_grad()
    def refresh(self) -> None:
        """Take the weights as they are now."""
        layers = []
        for layer in self.body.layers:
            a, m = layer.self_attn, layer.mlp
            q, k = (self._interleaved(p.weight) for p in (a.q_proj, a.k_proj))
            bias = None
            if a.q_proj.bias is not None:
                bias = torch.cat([self._interleaved(a.q_proj.bias), self._interleaved(a.k_proj.bias), a.v_proj.bias])
                bias = bias.detach().float()
            turn = None
            if hasattr(a, "q_norm"):
                turn = torch.cat(
                    [
                        x.weight[self.order].float().expand(n, -1)
                        for x, n in ((a.q_norm, self.heads), (a.k_norm, self.kv))
                    ]
                )
            layers.append(
                _Layer(
                    before=_float(layer.input_layernorm.weight),
                    qkv=_product([q, k, a.v_proj.weight]),
                    bias=bias,
                    turn=turn,
                    out=_product([a.o_proj.weight]),
                    after=_float(layer.post_attention_layernorm.weight),
                    up=_product([m.gate_proj.weight, m.up_proj.weight]),
                    down=_product([m.down_proj.weight]),
                )
            )
        self.layers = layers
        self.embedding, self.norm = self.body.embed_tokens.weight.clone(), _float(self.body.norm.weight)

    def _interleaved(self, w: Tensor) -> Tensor:
        """[heads D, ...] with the rows of each head in the order of `order`."""
        return w.detach().view(-1, self.d, *w.shape[1:])[:, self.order].reshape(w.shape)

    def named(self) -> dict[str, Tensor]:
        """The copies under the names and in the shapes of the model's own parameters: to compare the two."""
        back = torch.empty_like(self.order)
        back[self.order] = torch.arange(self.d)
        h, g, d = self.heads, self.kv, self.d

        def apart(w: Tensor) -> list[Tensor]:
            q, k, v = w.split([h * d, g * d, g * d])
            return [*(x.view(-1, d, *w.shape[1:])[:, back].reshape(x.shape) for x in (q, k)), v]

        out = {"embed_tokens.weight": self.embedding, "norm.weight": self.norm}
        for i, x in enumerate(self.layers):
            at = f"layers.{i}."
            for name, w in zip("qkv", apart(x.qkv.T), strict=True):
                out[f"{at}self_attn.{name}_proj.weight"] = w
            if x.bias is not None:
                for name, w in zip("qkv", apart(x.bias), strict=True):
                    out[f"{at}self_attn.{name}_proj.bias"] = w
            if x.turn is not None:
                out[f"{at}self_attn.q_norm.weight"], out[f"{at}self_attn.k_norm.weight"] = (
                    x.turn[0][back],
                    x.turn[h][back],
                )
            gate, up = x.up.T.chunk(2)
            rest = {
                "self_attn.o_proj": x.out.T,
                "mlp.gate_proj": gate,
                "mlp.up_proj": up,
                "mlp.down_proj": x.down.T,
                "input_layernorm": x.before,
                "post_attention_layernorm": x.after,
            }
            out |= {f"{at}{name}.weight": w for name, w in rest.items()}
        prefix = f"{self.model.base_model_prefix}."
        return {prefix + name: w.to(self.embedding.dtype) for name, w in out.items()}

    @torch.no_grad()
    def agrees(self) -> bool:
        """Whether a prompt and a token after it give what the model's own forward gives."""
        ids = torch.arange(1, 8) % len(self.embedding)
        want = hidden_states(self.model, ids, torch.arange(7), PackedRows([7]))
        cache = CachedRows(1)
        got = []
        for part in (ids[None, :6], ids[None, 6:]):
            got.append(self(part, cache.begin(part.shape[1]), cache)[0])
            cache.advance()
        near = 1e-4 if want.dtype == torch.float32 else 0.05
        return torch.allclose(torch.cat(got), want, atol=near * float(want.abs().max()), rtol=0)

    def _turned(self, position: Tensor) -> Tensor:
        """[N, 1, D/2] complex: the angles of positions [N]."""
        return self.reach(int(position.max()) + 1).index_select(0, position)[:, None]

    def reach(self, top: int) -> Tensor:
        """Angles [positions, D/2] of `top` positions or more."""
        if top > len(self.angles):
            self.angles = torch.complex(*rotations(self.model, top, len(self.angles)))
        return self.angles

    def __call__(self, ids: Tensor, position: Tensor, cache: CachedRows) -> Tensor:
        (rows, n), h, g, d = ids.shape, self.heads, self.kv, self.d
        turn = self._turned(position.reshape(-1))
        x = self.embedding.index_select(0, ids.reshape(-1)).float()
        width = (x.shape[1],)
        for i, layer in enumerate(self.layers):
            normed = F.rms_norm(x, width, layer.before, self.eps)
            qkv = products.input_gradient(normed, layer.qkv, layer.bias)
            qkv = qkv.view(-1, h + 2 * g, d)
            qk = qkv[:, : h + g]
            if layer.turn is not None:
                qk = F.rms_norm(qk, (d,), None, self.eps).mul_(layer.turn)
            qk = (
                torch.view_as_real(torch.view_as_complex(qk.unflatten(-1, (-1, 2))) * turn)
                .view(rows, n, h + g, d)
                .transpose(1, 2)
            )
            v = qkv[:, h + g :].view(rows, n, g, d).transpose(1, 2)
            y = cache.attend(i, qk[:, :h], qk[:, h:], v, self.scale)
            x = products.input_gradient(y.reshape(len(x), -1), layer.out, add=x)
            gate, up = products.input_gradient(F.rms_norm(x, width, layer.after, self.eps), layer.up).chunk(2, -1)
            x = products.input_gradient(F.silu(gate).mul_(up), layer.down, add=x)
        return F.rms_norm(x, width, self.norm, self.eps).view(rows, n, -1).to(self.embedding.dtype)


def _float(w: Tensor) -> Tensor:
    """A copy in float32."""
    return w.detach().to(torch.float32, copy=True)


def _product(weights: list[Tensor]) -> Tensor:
    """Weights [out, in] as one product [in, sum of out]."""
    return torch.cat([w.detach().T for w in weights], 1)
