"""Attention over packed rows and over a static key/value cache, registered with transformers under the name "espalier".

transformers calls the registered function in every layer with queries, keys and values; what it needs beside them travels
as the keyword `rows` through the model's forward: a `PackedRows` (training: many rows end to end in one stream) or a
`CachedRows` (sampling). No `attention_mask` is ever passed: beside position ids it silently mixes packed rows.

Packed rows on a CPU: rows are sorted by length and put into buckets whose padded size wastes at most `waste`; each bucket is
one causal `scaled_dot_product_attention`. Padding lies after a row's last token, so a causal row never sees it, and the result
is exact. On CUDA the same buckets are used (a varlen flash kernel is the later, faster way).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface

NAME = "espalier"


@dataclass
class PackedRows:
    """The buckets of one packed stream: for each, `gather` [n, L] token indices (clamped) and, for all, `scatter` [T]."""

    gather: list[Tensor]
    scatter: Tensor

    @staticmethod
    def of(lengths: list[int], device: torch.device | str = "cpu", waste: float = 0.2) -> PackedRows:
        starts, total = [], 0
        for n in lengths:
            starts.append(total)
            total += n
        order = sorted(range(len(lengths)), key=lambda i: lengths[i])
        buckets: list[list[int]] = []
        real = 0
        for i in order:
            n = lengths[i]
            grown = n * (len(buckets[-1]) + 1) if buckets else 0
            if buckets and grown <= (1 + waste) * (real + n):
                buckets[-1].append(i)
                real += n
            else:
                buckets.append([i])
                real = n
        gather, scatter, offset = [], torch.empty(total, dtype=torch.long), 0
        for rows in buckets:
            width = max(lengths[i] for i in rows)
            index = torch.zeros(len(rows), width, dtype=torch.long)
            for r, i in enumerate(rows):
                n = lengths[i]
                index[r, :n] = torch.arange(starts[i], starts[i] + n)
                scatter[starts[i] : starts[i] + n] = offset + r * width + torch.arange(n)
            gather.append(index.to(device))
            offset += index.numel()
        return PackedRows(gather=gather, scatter=scatter.to(device))

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
        """q [1, H, T, D]; k, v [1, G, T, D] with H a multiple of G; returns [1, T, H, D]."""
        heads, dim = q.shape[1], q.shape[3]
        flat = [x[0].transpose(0, 1) for x in (q, k, v)]  # [T, heads, D]
        done = []
        for index in self.gather:
            n, width = index.shape
            a, b, c = (x.index_select(0, index.reshape(-1)).view(n, width, -1, dim).transpose(1, 2) for x in flat)
            y = F.scaled_dot_product_attention(a, b, c, is_causal=True, scale=scale, enable_gqa=a.shape[1] != b.shape[1])
            done.append(y.transpose(1, 2).reshape(n * width, heads, dim))
        return torch.cat(done).index_select(0, self.scatter).unsqueeze(0)


@dataclass
class CachedRows:
    """A key/value cache of B rows that grow at their own pace. `length` [B] tokens are held for each row.

    A forward pass over `n` new columns writes them at each row's own end; `fresh` [B] says how many of the columns are real
    (the rest is padding, overwritten later). Call `advance` once after the forward pass of all layers.
    """

    length: Tensor
    fresh: Tensor | None = None
    keys: dict[int, Tensor] = field(default_factory=dict)
    values: dict[int, Tensor] = field(default_factory=dict)
    mask: Tensor | None = None
    capacity: int = 0

    def begin(self, fresh: Tensor) -> Tensor:
        """Prepare a pass over max(fresh) new columns; returns their positions [B, n]."""
        n = int(fresh.max())
        self.fresh = fresh
        need = int(self.length.max()) + n
        if need > self.capacity:
            self.capacity = max(need, self.capacity + 64)
        at = self.length[:, None] + torch.arange(n, device=fresh.device)[None, :]
        self._at, self._seen = at, need
        self.mask = (torch.arange(need, device=fresh.device)[None, None, :] <= at[:, :, None])[:, None]  # [B, 1, n, S]
        return at

    def advance(self) -> None:
        self.length = self.length + self.fresh

    def keep(self, rows: Tensor) -> CachedRows:
        """The cache of the given rows (repeats allowed: one prefill serves a whole group)."""
        pick = lambda d: {i: x.index_select(0, rows) for i, x in d.items()}  # noqa: E731
        return CachedRows(length=self.length.index_select(0, rows), keys=pick(self.keys), values=pick(self.values), capacity=self.capacity)

    def _store(self, cache: dict[int, Tensor], layer: int, new: Tensor) -> Tensor:
        old = cache.get(layer)
        if old is None or old.shape[2] < self.capacity:
            grown = new.new_zeros(new.shape[0], new.shape[1], self.capacity, new.shape[3])
            if old is not None:
                grown[:, :, : old.shape[2]] = old
            cache[layer] = old = grown
        rows = torch.arange(new.shape[0], device=new.device)[:, None]
        old[rows, :, self._at] = new.transpose(1, 2)
        return old[:, :, : self._seen]

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
        k, v = self._store(self.keys, layer, k), self._store(self.values, layer, v)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=self.mask, scale=scale, enable_gqa=q.shape[1] != k.shape[1])
        return y.transpose(1, 2)


def _attention(module, query, key, value, attention_mask, *, scaling=None, rows=None, **_):  # the signature transformers calls
    if rows is None:
        raise ValueError("this model's attention needs rows=PackedRows or rows=CachedRows: call it through training.model.hidden_states or a sampler")
    return rows.attend(module.layer_idx, query, key, value, scaling if scaling is not None else query.shape[-1] ** -0.5), None


AttentionInterface.register(NAME, _attention)
AttentionMaskInterface.register(NAME, lambda *_, **__: None)
