"""The static key/value cache for sampling: conversations share the entries of a common prompt, and each has its own
entries after it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass(kw_only=True)
class Prefix:
    """Keys and values of prompts, read-only: layer -> [U, G, P, D], the tokens [U] of each, and their `CachedRows.sums`
    [U]. One prefill serves all rows of a prompt."""

    keys: dict[int, Tensor]
    values: dict[int, Tensor]
    length: np.ndarray
    sums: np.ndarray


class CachedRows:
    """A static key/value cache of B rows that grow independently, each after a prompt that it may share with others.

    Rows lie in slots, and a pass works on the slots of a window: `window(lo, hi)` chooses it and `swap` moves rows, so
    that the active rows are adjacent. A pass over new columns is `begin(fresh)`, then the model's forward (each layer
    stores and attends), then `advance()`. A shared prompt is read once for all its rows: attention to the prompt and to
    the row's own columns are two softmaxes, combined by their normalisers. Padding columns are written beyond a row's
    end, and no query reads them before they are overwritten.

    held    [B] how many tokens each row holds after its prompt
    sums    [B] of the numbers that `sum_before` was given for them
    prompt  [B] index of its prompt in `prefix`
    longest tokens of the longest row during a pass
    """

    def __init__(
        self,
        rows: int,
        device: torch.device | str = "cpu",
        prefix: Prefix | None = None,
        prompt: np.ndarray | None = None,
    ) -> None:
        self.device, self.prefix = torch.device(device), prefix
        self.held, self.sums = np.zeros(rows, dtype=np.int64), np.zeros(rows, dtype=np.int64)
        self.prompt = np.zeros(rows, dtype=np.int64) if prompt is None else np.asarray(prompt)
        self.keys: dict[int, Tensor] = {}  # layer -> [B, G, capacity, D]
        self.values: dict[int, Tensor] = {}
        self.capacity = self.longest = 0
        self.window(0, rows)

    def share(self, prompt: np.ndarray) -> CachedRows:
        """A cache of rows that continue the rows `prompt` [B'] of this one; an index may be repeated."""
        longest = int(self.held.max())
        keys, values = ({i: x[:, :, :longest] for i, x in cache.items()} for cache in (self.keys, self.values))
        prefix = Prefix(keys=keys, values=values, length=self.held.copy(), sums=self.sums.copy())
        return CachedRows(len(prompt), self.device, prefix, prompt)

    def join(self, prefix: Prefix, prompt: np.ndarray, keep: np.ndarray) -> None:
        """Add rows after the prompts `prefix` (`prompt` [B'] says which) behind the rows of the slots `keep` [K]. All
        other rows are dropped, and so are prompts without rows. Call `window` afterwards."""
        mine = self.prefix
        assert mine is not None, "a cache that shares no prompts"
        known, of = np.unique(self.prompt[keep], return_inverse=True)
        length = np.concatenate([mine.length[known], prefix.length])
        chosen, longest = torch.from_numpy(known).to(self.device), int(length.max())

        def both(old: dict[int, Tensor], new: dict[int, Tensor]) -> dict[int, Tensor]:
            out = {}
            for i, x in new.items():
                out[i] = x.new_zeros(len(length), x.shape[1], longest, x.shape[3])
                here = min(longest, old[i].shape[2])
                out[i][: len(known), :, :here] = old[i].index_select(0, chosen)[:, :, :here]
                out[i][len(known) :, :, : x.shape[2]] = x
            return out

        sums = np.concatenate([mine.sums[known], prefix.sums])
        self.prefix = Prefix(
            keys=both(mine.keys, prefix.keys), values=both(mine.values, prefix.values), length=length, sums=sums
        )
        self.prompt = np.concatenate([of, prompt + len(known)])
        self.held, self.sums = (
            np.concatenate([x[keep], np.zeros(len(prompt), dtype=np.int64)]) for x in (self.held, self.sums)
        )
        slots = torch.from_numpy(np.asarray(keep, dtype=np.int64)).to(self.device)
        for cache in (self.keys, self.values):
            for i, x in cache.items():
                cache[i] = x.new_zeros(len(self.held), *x.shape[1:])
                cache[i][: len(keep)] = x.index_select(0, slots)

    def reserve(self, columns: int) -> None:
        """Allocate this many columns now, so that no pass has to move the cache."""
        self.capacity = max(self.capacity, -(-columns // 16) * 16)

    # --- which rows are active

    def window(self, lo: int, hi: int) -> None:
        """Make passes run over the rows of the slots lo to hi."""
        self.lo, self.hi, self.fixed = lo, hi, 0
        held = self.held[lo:hi]
        self.depth = int(held.max(initial=0))
        self.even = self.depth == int(held.min(initial=0)) if len(held) else True
        self.at = torch.from_numpy(held.copy()).to(self.device)  # column of each row's next token
        self.start, self.before = self.at, 0  # and its position; tokens of the longest prompt
        if self.prefix is not None and len(held):
            self._prompts(self.prefix)
            self.start = self.at + torch.from_numpy(self.prefix.length[self.prompt[lo:hi]]).to(self.device)

    def swap(self, a: np.ndarray, b: np.ndarray) -> None:
        """Exchange the rows of the slots a and b; no slot may be named twice. Call `window` afterwards."""
        if not len(a):
            return
        one, two = np.concatenate([a, b]), np.concatenate([b, a])
        longest = int(self.held[one].max())
        for x in (self.held, self.sums, self.prompt):
            x[one] = x[two]
        if longest:
            one, two = (torch.from_numpy(x).to(self.device) for x in (one, two))
            for cache in (self.keys, self.values):
                for x in cache.values():
                    x[:, :, :longest].index_copy_(0, one, x[:, :, :longest].index_select(0, two))

    def _prompts(self, p: Prefix) -> None:
        """How the window's rows share prompts: `by_prompt` [U * M] is the window's row at each of M places of each of U
        prompts (None: the rows are in this order already), `by_row` [rows] is the place of each row."""
        mine = self.prompt[self.lo : self.hi]
        known, of, counts = np.unique(mine, return_inverse=True, return_counts=True)
        first, most = int(known[0]), int(counts.max())
        span = int(known[-1]) - first + 1
        if span <= 2 * len(known):  # computing a few unused rows costs less than a copy
            of, rows, chosen = mine - first, span, lambda x: x[first : first + span]
            lengths = p.length[first : first + span]
        else:
            index = torch.from_numpy(known).to(self.device)
            rows, chosen, lengths = len(known), lambda x: x.index_select(0, index), p.length[known]
        self.before = longest = int(lengths.max())
        self.shared = tuple({i: chosen(x)[:, :, :longest] for i, x in cache.items()} for cache in (p.keys, p.values))
        self.shared_mask = None
        if int(lengths.min()) < longest:
            self.shared_mask = _mask(torch.from_numpy(lengths).to(self.device)[:, None, None] - 1, longest)
        order = np.argsort(of, kind="stable")
        starts = np.concatenate([[0], np.cumsum(np.bincount(of, minlength=rows))])
        place = np.empty(len(of), dtype=np.int64)
        place[order] = of[order] * most + np.arange(len(of)) - starts[of[order]]
        self.groups = (rows, most)
        self.by_prompt = self.by_row = None
        if len(of) != rows * most or (order != np.arange(len(of))).any():
            by_prompt = np.zeros(rows * most, dtype=np.int64)
            by_prompt[place] = np.arange(len(of))
            self.by_prompt, self.by_row = (torch.from_numpy(x).to(self.device) for x in (by_prompt, place))

    # --- one pass

    def begin(self, fresh: int | np.ndarray = 1) -> Tensor:
        """Prepare a pass over new columns: `fresh` for every row of the window, or max(fresh), of which the first
        fresh[b] of row b are real. Returns their positions [rows, n]."""
        if self.fixed:
            self.used, self.columns = self.fixed, self.at[:, None]
            self.longest = self.used + self.before
            self.mask = _mask(self.columns[:, None], self.used)
            return self.start[:, None]
        n = int(np.max(fresh))
        self.fresh, self.n = fresh, n
        self.used = self.depth + n
        self.longest = self.used + self.before
        if self.used > self.capacity:
            self.reserve(max(self.used, self.capacity + 64))
        columns = torch.arange(n, device=self.device)
        self.columns = self.at[:, None] + columns
        self.mask = None
        if n > 1 or not self.even:
            self.mask = _mask(self.columns[:, None], self.used)
        return self.start[:, None] + columns

    def sum_before(self, x: Tensor) -> Tensor:
        """Of numbers x [rows, n] for the new tokens of a pass, 0 for padding, the sum over what is before each in its row:
        [rows, n]. A pass asks at most once, and the rows keep their sums."""
        mine = self.sums[self.lo : self.hi].copy()
        self.sums[self.lo : self.hi] += x.sum(1).cpu().numpy()
        if self.prefix is not None:
            mine += self.prefix.sums[self.prompt[self.lo : self.hi]]
        return torch.from_numpy(mine).to(x.device)[:, None] + x.cumsum(1) - x

    def advance(self) -> None:
        """End a pass: the new tokens now count as held."""
        self.held[self.lo : self.hi] += self.fresh
        if isinstance(self.fresh, int):
            self.depth += self.fresh
            self.at, self.start = self.at + self.fresh, self.start + self.fresh
        else:
            self.window(self.lo, self.hi)

    # --- a pass over a tree of tokens

    def branch(self, parents: np.ndarray) -> Tensor:
        """Prepare a pass over a tree of n new tokens behind a window of one row: token i follows parents[i] < i, or what
        the row holds for -1, and attends to that and its own ancestors alone. Returns their positions [1, n]; `follow`
        ends the pass. Raises ValueError for a window of several rows, an empty row, and parents behind their children."""
        parents = np.asarray(parents, dtype=np.int64)
        n = len(parents)
        if self.hi - self.lo != 1 or self.depth + self.before == 0:
            raise ValueError(
                "a tree of tokens follows one row that holds something: choose a window of one row, and read its prompt"
            )
        if n == 0 or (parents >= np.arange(n)).any() or (parents < -1).any():
            raise ValueError(f"parents {parents.tolist()}: each is a token before it, from 0, or -1")
        self.begin(n)
        above, depth = np.eye(n, dtype=bool), np.zeros(n, dtype=np.int64)
        for i, parent in enumerate(parents):
            if parent >= 0:
                above[i] |= above[parent]
                depth[i] = depth[parent] + 1
        mask = torch.full((1, 1, n, self.used), -torch.inf, device=self.device)
        mask[..., : self.depth] = 0
        mask[0, 0, :, self.depth :][torch.from_numpy(above).to(self.device)] = 0
        self.mask = mask
        return self.start[:, None] + torch.from_numpy(depth).to(self.device)

    def follow(self, path: Sequence[int]) -> None:
        """End a pass over a tree: the row now holds the tokens of this path, from the root down, and none of the others."""
        index = torch.as_tensor(list(path), dtype=torch.int64, device=self.device) + self.depth
        for cache in (self.keys, self.values):
            for x in cache.values():
                x[self.lo, :, self.depth : self.depth + len(index)] = x[self.lo].index_select(1, index)
        self.held[self.lo] += len(index)
        self.window(self.lo, self.hi)

    # --- passes over one column that do not depend on the lengths of the rows (training/rollout/graphs.py)

    def fix(self, columns: int) -> None:
        """Make passes of the window read this many columns, whatever its rows hold (0: as many as they hold). `move`
        then ends a pass on the device, `count` on the host."""
        self.fixed = columns

    def move(self) -> None:
        self.at.add_(1)
        if self.start is not self.at:
            self.start.add_(1)

    def count(self) -> None:
        self.held[self.lo : self.hi] += 1
        self.depth += 1

    def _store(self, cache: dict[int, Tensor], layer: int, new: Tensor) -> Tensor:
        """Write new [rows, G, n, D] at each row's own end; returns the columns in use [rows, G, used, D]."""
        held = self._grown(cache, layer, new.shape[1], new.shape[3], new.dtype)[self.lo : self.hi]
        if self.even and not self.fixed:
            held[:, :, self.depth : self.used] = new
        else:
            held[torch.arange(len(held), device=self.device)[:, None], :, self.columns] = new.transpose(1, 2)
        return held[:, :, : self.used]

    def _grown(
        self, cache: dict[int, Tensor], layer: int, heads: int, d: int, dtype: torch.dtype = torch.float32
    ) -> Tensor:
        """A layer's [B, G, capacity, D], allocated or enlarged if it is too small."""
        held = cache.get(layer)
        if held is None or held.shape[2] < self.capacity:
            grown = torch.zeros(len(self.held), heads, self.capacity, d, dtype=dtype, device=self.device)
            if held is not None:
                grown[:, :, : held.shape[2]] = held
            cache[layer] = held = grown
        return held

    def room(self, columns: int, layers: int, heads: int, d: int) -> list[tuple[Tensor, Tensor]]:
        """The rows' keys and values [B, G, capacity, D] of each layer with room for this many columns, for code that
        writes them itself and counts them in `held`. Call `window` afterwards."""
        if columns > self.capacity:
            self.reserve(max(columns, self.capacity + 64))
        return [(self._grown(self.keys, i, heads, d), self._grown(self.values, i, heads, d)) for i in range(layers)]

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
        """q [rows, H, n, D]; k, v [rows, G, n, D] of the new tokens; returns [rows, n, H, D]."""
        own_k, own_v = self._store(self.keys, layer, k), self._store(self.values, layer, v)
        if self.prefix is None and self.depth == 0:
            return F.scaled_dot_product_attention(
                q, k, v, is_causal=True, scale=scale, enable_gqa=q.shape[1] != k.shape[1]
            ).transpose(1, 2)
        rows, heads, n, d = q.shape
        g = k.shape[1]
        q = q.reshape(rows, g, -1, d)  # queries that read the same keys are adjacent, so no key is repeated
        mask = self.mask
        if mask is not None and n > 1:
            mask = mask[:, :, None].expand(rows, 1, heads // g, n, self.used).reshape(rows, 1, -1, self.used)
        y, lse = partial(q, own_k, own_v, scale, mask)
        if self.prefix is not None:
            y = torch.lerp(*self._to_prompts(layer, q, scale, y, lse))
        return y.reshape(rows, heads, n, -1).transpose(1, 2)

    def _to_prompts(self, layer: int, q: Tensor, scale: float, y: Tensor, lse: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Attention of q [rows, G, Q, D] to the prompts, combined with that to the rows' own columns (y, lse) by its
        share."""
        (u, m), (_, g, each, d) = self.groups, q.shape
        if self.by_prompt is not None:
            q = q.index_select(0, self.by_prompt)
        q = q.view(u, m, g, each, d).transpose(1, 2).reshape(u, g, m * each, d)
        z, other = partial(q, self.shared[0][layer], self.shared[1][layer], scale, self.shared_mask)
        z = z.reshape(u, g, m, each, -1).transpose(1, 2).reshape(u * m, g, each, -1)
        other = other.reshape(u, g, m, each).transpose(1, 2).reshape(u * m, g, each)
        if self.by_row is not None:
            z, other = z.index_select(0, self.by_row), other.index_select(0, self.by_row)
        return z, y, torch.sigmoid(lse - other)[..., None].to(y.dtype)


def _mask(last: Tensor, columns: int) -> Tensor:
    """last [..., 1 or n] -> float [..., 1 or n, columns] with a head's dimension before: 0 up to the column `last`,
    -inf beyond."""
    seen = torch.arange(columns, device=last.device) <= last[..., None]
    return torch.zeros(seen.shape, device=last.device).masked_fill_(~seen, -torch.inf)


def partial(q: Tensor, k: Tensor, v: Tensor, scale: float, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Attention to a part of the columns: q [B, G, Q, D], k, v [B, G, K, D], mask [B, 1, 1 or Q, K] -> ([B, G, Q, D],
    logs of the normalisers [B, G, Q]), by which parts are combined."""
    if q.is_cpu:
        mask = None if mask is None else mask.to(q.dtype)
        return torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            q, k, v, 0.0, False, attn_mask=mask, scale=scale
        )
    return plain_partial(q, k, v, scale, mask)


def plain_partial(q: Tensor, k: Tensor, v: Tensor, scale: float, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """`partial` by the definition, on any device."""
    s = (q @ k.transpose(-1, -2)).float() * scale
    s = s if mask is None else s + mask
    lse = s.logsumexp(-1)
    return (s - lse[..., None]).exp().to(v.dtype) @ v, lse
