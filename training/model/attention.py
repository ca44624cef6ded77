"""Attention over packed rows, and over the cache of sampling, registered with transformers under the name "espalier".

transformers calls the registered function in every layer with queries, keys and values; everything else that it needs
is passed as the keyword `rows` through the model's forward: a `PackedRows` (training: many rows end to end in one
stream), a `SharedRows` (the same, with shared prefixes stored once) or a `CachedRows` (sampling,
training/model/kv_cache.py). No `attention_mask` is ever passed: together with position ids it silently mixes packed
rows.

Packed rows: rows are sorted by length and put into buckets whose padded size wastes at most `waste`; each bucket is one
causal `scaled_dot_product_attention`. Padding lies after a row's last token, so a causal row never sees it, and the
result is exact. (On CUDA the same buckets are used; a varlen flash kernel is the later, faster way.)
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface

from training.model.kv_cache import CachedRows
from training.model.vision import sees, text_inputs

NAME = "espalier"
# the pieces of the stream (start, tokens) that a row reads as its prefix, and how many tokens of its own follow
Continued = tuple[tuple[tuple[int, int], ...], int]


class asked:
    """How often transformers has called `_attention`; a model that never calls it uses its own attention."""

    calls = 0


@dataclass(frozen=True)
class PackedRows:
    """The layout of the rows of one packed stream of T tokens, end to end. Index tensors are built when they are first
    needed.

    lengths  tokens of each row
    waste    buckets hold rows of similar length: none has more than (1 + waste) times its real tokens
    """

    lengths: list[int]
    device: torch.device | str = "cpu"
    waste: float = 0.2

    @cached_property
    def longest(self) -> int:
        """Tokens of the longest row."""
        return max(self.lengths)

    @property
    def gather(self) -> list[Tensor]:
        """Per bucket [n, L]: the stream's index of each token of its n rows, padded to the longest with index 0."""
        return self._laid[0]

    @property
    def scatter(self) -> Tensor:
        """[T]: the index of each token of the stream in the flattened, concatenated buckets."""
        return self._laid[1]

    @cached_property
    def _laid(self) -> tuple[list[Tensor], Tensor]:
        lengths = self.lengths
        starts = [0, *itertools.accumulate(lengths)]
        gather, scatter, offset = [], torch.empty(starts[-1], dtype=torch.long), 0
        for rows in _buckets([(n, n) for n in lengths], self.waste):
            width = lengths[rows[-1]]
            index = torch.zeros(len(rows), width, dtype=torch.long)
            for r, i in enumerate(rows):
                index[r, : lengths[i]] = torch.arange(starts[i], starts[i + 1])
                scatter[starts[i] : starts[i + 1]] = offset + r * width + torch.arange(lengths[i])
            gather.append(index.to(self.device))
            offset += index.numel()
        return gather, scatter.to(self.device)

    @cached_property
    def spans(self) -> Spans:
        """As compiled code reads them."""
        return Spans.of(self.lengths, [])

    def sum_before(self, x: Tensor) -> Tensor:
        """Of numbers x [1, T], one for each token, the sum over those before it in its row: [1, T]."""
        upto = F.pad(x[0].cumsum(0), (1, 0))
        lengths = torch.tensor(self.lengths, device=x.device)
        starts = (lengths.cumsum(0) - lengths).repeat_interleave(lengths)
        return (upto[:-1] - upto[starts])[None]

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
        """q, k, v [1, heads, T, D], where the number of heads of q may be a multiple of that of k and v; returns [1, T,
        heads of q, D of v]."""
        flat = [x[0].transpose(0, 1) for x in (q, k, v)]  # [T, heads, D]
        done = []
        for index in self.gather:
            n, width = index.shape
            a, b, c = (x.index_select(0, index.reshape(-1)).view(n, width, *x.shape[1:]).transpose(1, 2) for x in flat)
            y = F.scaled_dot_product_attention(
                a, b, c, is_causal=True, scale=scale, enable_gqa=a.shape[1] != b.shape[1]
            )
            done.append(y.transpose(1, 2).flatten(0, 1))
        return torch.cat(done).index_select(0, self.scatter).unsqueeze(0)


@dataclass(frozen=True)
class WholeRows(PackedRows):
    """Packed rows in which each token attends to its whole row, also to what follows it."""

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
        """As `PackedRows.attend`."""
        flat = [x[0].transpose(0, 1) for x in (q, k, v)]
        done, real = [], self._real
        for index, mask in zip(self.gather, real, strict=True):
            n, width = index.shape
            a, b, c = (x.index_select(0, index.reshape(-1)).view(n, width, *x.shape[1:]).transpose(1, 2) for x in flat)
            y = F.scaled_dot_product_attention(
                a, b, c, attn_mask=mask[:, None, None], scale=scale, enable_gqa=a.shape[1] != b.shape[1]
            )
            done.append(y.transpose(1, 2).flatten(0, 1))
        return torch.cat(done).index_select(0, self.scatter).unsqueeze(0)

    @cached_property
    def _real(self) -> list[Tensor]:
        """Per bucket [n, L]: whether a place holds a token, and no padding."""
        out, at = [], 0
        held = torch.zeros(sum(index.numel() for index in self.gather), dtype=torch.bool, device=self.scatter.device)
        held[self.scatter] = True
        for index in self.gather:
            out.append(held[at : at + index.numel()].view(index.shape))
            at += index.numel()
        return out


@dataclass(frozen=True)
class SharedRows:
    """The layout of the rows of a stream in which some rows continue a prefix of another: first whole rows, then
    continuations.

    lengths  tokens of the whole rows, which come first in the stream
    after    the continuations, in the order of their own tokens: the pieces that form the prefix of each, from whole
             rows or from continuations before it (the first piece starts at a whole row's first token); and its own
             tokens, one or more
    waste    the share of padding that is allowed, relative to a bucket's real keys, and to its real queries
    """

    lengths: list[int]
    after: list[Continued]
    device: torch.device | str = "cpu"
    waste: float = 0.2

    @cached_property
    def longest(self) -> int:
        """Tokens of the longest row, including its shared prefix."""
        return max(*self.lengths, *(_tokens(before) + n for before, n in self.after))

    @cached_property
    def roots(self) -> PackedRows:
        return PackedRows(self.lengths, self.device, self.waste)

    @cached_property
    def _laid(self) -> tuple[list[tuple[Tensor, Tensor, Tensor]], Tensor]:
        """For continuations of similar size (queries [n, L], keys [n, K], mask [n, 1, L, K]): the stream's index of
        each own token, and of each token before or in the row, both padded with index 0; the mask is True where a token
        may attend. And scatter [tokens of continuations]: where each lies among the flattened buckets laid end to
        end."""
        after, first = self.after, sum(self.lengths)
        starts = list(itertools.accumulate((n for _, n in after), initial=first))
        buckets, scatter, offset = [], torch.empty(starts[-1] - first, dtype=torch.long), 0
        sizes = [(n, _tokens(before) + n) for before, n in after]
        for rows in _buckets(sizes, self.waste):
            own, seen = (max(of) for of in zip(*(sizes[i] for i in rows), strict=True))
            queries, keys = (
                torch.zeros(len(rows), own, dtype=torch.long),
                torch.zeros(len(rows), seen, dtype=torch.long),
            )
            last = torch.empty(
                len(rows), own, dtype=torch.long
            )  # the last key that each query sees; for padding, one of the row's keys
            for r, i in enumerate(rows):
                before, n = after[i]
                common = _tokens(before)
                pieces = [torch.arange(start, start + k) for start, k in (*before, (starts[i], n))]
                queries[r, :n], keys[r, : common + n] = pieces[-1], torch.cat(pieces)
                last[r] = torch.arange(common, common + own).clamp_max(common + n - 1)
                scatter[starts[i] - first : starts[i] - first + n] = offset + r * own + torch.arange(n)
            mask = torch.arange(seen) <= last[:, :, None]
            buckets.append((queries.to(self.device), keys.to(self.device), mask[:, None].to(self.device)))
            offset += queries.numel()
        return buckets, scatter.to(self.device)

    @cached_property
    def spans(self) -> Spans:
        """As compiled code reads them."""
        return Spans.of(self.lengths, self.after)

    def sum_before(self, x: Tensor) -> Tensor:
        """As `PackedRows.sum_before`."""
        first = sum(self.lengths)
        out, upto = [self.roots.sum_before(x[:, :first])], F.pad(x[0].cumsum(0), (1, 0))
        for pieces, n in self.after:
            given = sum((upto[start + k] - upto[start] for start, k in pieces), upto[0])
            out.append((given + upto[first : first + n] - upto[first])[None])
            first += n
        return torch.cat(out, 1)

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
        """As `PackedRows.attend`."""
        n = sum(self.lengths)
        done = []
        buckets, scatter = self._laid
        whole = self.roots.attend(layer, q[:, :, :n], k[:, :, :n], v[:, :, :n], scale)
        q, k, v = (x[0].transpose(0, 1) for x in (q, k, v))
        for queries, keys, mask in buckets:
            a, b, c = (
                x.index_select(0, i.reshape(-1)).view(*i.shape, *x.shape[1:]).transpose(1, 2)
                for x, i in ((q, queries), (k, keys), (v, keys))
            )
            y = F.scaled_dot_product_attention(
                a, b, c, attn_mask=mask, scale=scale, enable_gqa=a.shape[1] != b.shape[1]
            )
            done.append(y.transpose(1, 2).flatten(0, 1))
        return torch.cat([whole[0], torch.cat(done).index_select(0, scatter)]).unsqueeze(0)


@dataclass(frozen=True)
class Spans:
    """The rows of a stream for compiled code, int64.

    clusters  [C + 1]: the spans from clusters[c] to clusters[c + 1] are a whole row and all its direct and indirect
              continuations; the most expensive clusters come first, so that the last ones to be processed are short
    spans     [rows, 4]: start of a row's own tokens in the stream, their number, and the range of the pieces that it
              reads before them
    pieces    [pieces, 2]: start in the stream, tokens
    """

    clusters: Tensor
    spans: Tensor
    pieces: Tensor

    @staticmethod
    def of(lengths: list[int], after: list[Continued]) -> Spans:
        offset, pieces, trees, cost = 0, [(0, 0)], {}, {}
        for before, n in (*(((), n) for n in lengths), *after):
            root = before[0][0] if before else offset
            trees.setdefault(root, []).append((offset, n, len(pieces), len(pieces) + len(before)))
            cost[root] = cost.get(root, 0) + n * (_tokens(before) + n)
            pieces += before
            offset += n
        clusters = [trees[root] for root in sorted(trees, key=lambda root: -cost[root])]
        counts = list(itertools.accumulate(map(len, clusters), initial=0))
        return Spans(*map(torch.tensor, (counts, [span for spans in clusters for span in spans], pieces)))


def _tokens(pieces: tuple[tuple[int, int], ...]) -> int:
    return sum(n for _, n in pieces)


def _buckets(sizes: list[tuple[int, int]], waste: float) -> list[list[int]]:
    """Indices of rows of (queries, keys) in buckets of similar size: padded to the largest of each, none holds more
    than (1 + waste) times its real queries, or keys."""
    buckets: list[list[int]] = []
    real, most = (0, 0), (0, 0)  # for the last bucket: the sums and the maxima
    for i in sorted(range(len(sizes)), key=lambda i: sizes[i][::-1]):
        now = tuple(map(max, most, sizes[i]))
        held = tuple(a + b for a, b in zip(real, sizes[i], strict=True))
        if buckets and all(n * (len(buckets[-1]) + 1) <= (1 + waste) * x for n, x in zip(now, held, strict=True)):
            buckets[-1].append(i)
            real, most = held, now
        else:
            buckets.append([i])
            real = most = sizes[i]
    return buckets


def _attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: None,
    *,
    scaling: float | None = None,
    sliding_window: int | None = None,
    rows: PackedRows | SharedRows | CachedRows | None = None,
    **more: object,
) -> tuple[Tensor, None]:
    """The signature that transformers calls. Raises ValueError for attention that is not plain and causal over the
    whole row."""
    asked.calls += 1
    if rows is None:
        raise ValueError(
            "this model's attention needs rows=PackedRows or rows=CachedRows: call it through training.model.model.hidden_states"
        )
    if sliding_window is not None and rows.longest > sliding_window:
        raise ValueError(
            f"a row has {rows.longest} tokens and this model looks back {sliding_window} only (sliding window): keep rows within it"
        )
    odd = sorted(k for k in ("softcap", "s_aux", "position_bias") if more.get(k) is not None)
    if odd:
        raise ValueError(
            f"this model's attention has {odd[0]!r}, which packed attention does not compute: choose a model with plain attention"
        )
    width = value.shape[-1]
    if width < query.shape[-1]:  # DeepSeek's values are narrower than its keys, and kernels want one width
        value = F.pad(value, (0, query.shape[-1] - width))
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    layer: Any = module.layer_idx
    return rows.attend(layer, query, key, value, scale)[..., :width], None


AttentionInterface.register(NAME, _attention)
AttentionMaskInterface.register(NAME, lambda *_, **__: None)


def own_forward(model: nn.Module, ids: Tensor, position: Tensor, rows: PackedRows | SharedRows | CachedRows) -> Tensor:
    """Last hidden states by the model's own layers: ids, position [T] (packed) or [B, n] (cached) -> [T, d] or
    [B, n, d]. `rows` determines which tokens attend to each other."""
    flat = ids.dim() == 1
    if flat:
        ids, position = ids[None], position[None]
    # a model that is split over processes must be called through its root (training/learner/shard.py)
    split: Any = model
    enter = getattr(split, "enter", None)
    out = enter(ids, position, rows) if enter is not None else through_body(model, ids, position, rows)
    return out[0] if flat else out


def own_embedded(
    model: nn.Module, given: Tensor, position: Tensor, rows: PackedRows | SharedRows | CachedRows
) -> Tensor:
    """As `own_forward`, for input embeddings [T, d] or [B, n, d] in the place of ids. Raises ValueError for a model that
    is split over processes or reads pictures."""
    if getattr(model, "enter", None) is not None or sees(model):
        raise ValueError(
            f"a {type(model).__name__} that is split over processes or reads pictures takes ids alone, no embeddings: "
            "set shards=1, or choose a model of text"
        )
    flat = given.dim() == 2
    if flat:
        given, position = given[None], position[None]
    body: Any = model.base_model
    out = body(inputs_embeds=given, position_ids=position, rows=rows, use_cache=False).last_hidden_state
    return out[0] if flat else out


def through_body(model: nn.Module, ids: Tensor, position: Tensor, rows: Any) -> Tensor:
    """The output of the layers of a model for ids [B, n]; of a vision-language model, those of its text model."""
    body: Any = model.base_model
    if not sees(model):
        return body(input_ids=ids, position_ids=position, rows=rows, use_cache=False).last_hidden_state
    text, given = text_inputs(model, ids, position, rows)
    return text(**given, rows=rows, use_cache=False).last_hidden_state
