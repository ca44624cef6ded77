"""Decodes whole turns, and reads new tokens, in one call: passes the weights of `CachedLayers` to decode.c.

A decode step of a small model is some hundred small operations in torch, each of a few microseconds; compiled, a turn
of all conversations is one call, and a new row takes the place of an ended one immediately. A conversation's tokens are
the same, bit for bit, whatever else is in the batch.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from training.model.kv_cache import CachedRows
from training.model.model import head_weight
from training.model.native.cached import CachedLayers
from training.model.native.layers import body

LARGEST = 1 << 24  # parameters: every 16 rows read all weights; with twice as many parameters there is no gain any more
READ = (
    1 << 20
    # parameters of the layers up to which new tokens are read here; above, torch's products over all tokens at once are
    # faster
)
STEPS = 64  # tokens of a row in one call: the cache gets room for this many
_p, _l = ctypes.c_void_p, ctypes.c_long


class _Model(ctypes.Structure):
    _fields_ = [
        *((k, _l) for k in ("layers", "H", "G", "D", "d", "m", "V")),
        ("eps", ctypes.c_float),
        ("scale", ctypes.c_float),
        *((k, _p) for k in ("embedding", "norm", "head", "cs", "sn")),
    ]


class _Layer(ctypes.Structure):
    _fields_ = [
        (k, _p)
        for k in (
            "before",
            "qkv",
            "bias",
            "wq",
            "wk",
            "out",
            "after",
            "up",
            "down",
            "keys",
            "values",
            "shared_keys",
            "shared_values",
        )
    ]


class _Rows(ctypes.Structure):
    _fields_ = [
        *((k, _l) for k in ("n", "capacity", "stride_prompt", "stride_head")),
        *((k, _p) for k in ("slot", "prompt", "before", "held", "last")),
    ]


class _Turn(ctypes.Structure):
    _fields_ = [
        ("steps", _l),
        ("limit", _l),
        ("temperature", ctypes.c_float),
        *((k, _p) for k in ("row", "length", "may_end", "uniforms", "ids", "logp", "entropy")),
    ]


@dataclass(kw_only=True)
class Drawn:
    """The tokens drawn so far in a turn, by row [R]; at most `limit` tokens. uniforms [R, limit] float64 in [0, 1); ids
    [R, limit + 1] int64, logp and entropy [R, limit + 1] float32; length [R] int64; may_end [V] bool: the ids after
    which a row pauses for a check whether its turn ends."""

    limit: int
    temperature: float
    may_end: np.ndarray
    uniforms: np.ndarray
    ids: np.ndarray
    logp: np.ndarray
    entropy: np.ndarray
    length: np.ndarray


class TurnDecoder:
    """Decodes with the weights of its `CachedLayers`; `refresh` copies the current ones."""

    def __init__(self, cached: CachedLayers) -> None:
        self.cached, self.lib, self.size = cached, cached.compiled.lib, _size(body(cached.model).layers)
        self.refresh()

    @staticmethod
    def of(cached: CachedLayers | None) -> TurnDecoder | None:
        """None without compiled layers, for models that are too large for it, and for those that are not float32."""
        if cached is None or cached.embedding.dtype != torch.float32 or _size(cached.model) > LARGEST:
            return None
        return TurnDecoder(cached)

    def refresh(self) -> None:
        self.head = _padded(head_weight(self.cached.model).detach().T)
        self.layers = [
            {
                "before": x.before,
                "qkv": _padded(x.qkv),
                "bias": x.bias,
                "wq": x.wq,
                "wk": x.wk,
                "out": _padded(x.out),
                "after": x.after,
                "up": _padded(x.up),
                "down": _padded(x.down),
            }
            for x in self.cached.layers
        ]

    def __call__(self, cache: CachedRows, slots: np.ndarray, rows: np.ndarray, last: Tensor, drawn: Drawn) -> None:
        """Continue the conversations in `slots` [n], which are the rows `rows` [n] of `drawn`, by at most STEPS tokens
        each, until one may end or has `limit` tokens. Writes the drawn tokens, the cache and `last` [slots, d]. Raises
        MemoryError."""
        steps, row, length = min(STEPS, drawn.limit), np.ascontiguousarray(rows, dtype=np.int64), drawn.length[rows]
        turn = _Turn(
            steps=steps,
            limit=drawn.limit,
            temperature=drawn.temperature,
            **{
                k: x.ctypes.data
                for k, x in {
                    "row": row,
                    "length": length,
                    "may_end": drawn.may_end,
                    "uniforms": drawn.uniforms,
                    "ids": drawn.ids,
                    "logp": drawn.logp,
                    "entropy": drawn.entropy,
                }.items()
            },
        )
        self._run(self.lib.decode, cache, slots, last, steps, ctypes.byref(turn))
        drawn.length[rows] = length

    @property
    def reads(self) -> bool:
        """Whether new ids are read here too. This depends on the model alone, not on the texts; otherwise a
        conversation's last bits would depend on the other conversations of the batch."""
        return self.size <= READ

    def read(self, cache: CachedRows, new: Sequence[np.ndarray], last: Tensor) -> None:
        """Read new ids, at least one each, for the conversations in the first slots. Writes the cache and `last`
        [slots, d]. Raises MemoryError."""
        begin = np.concatenate([[0], np.cumsum([len(x) for x in new])])
        ids = np.ascontiguousarray(np.concatenate(new), dtype=np.int64)
        most = int(np.diff(begin).max())
        self._run(
            self.lib.read_tokens, cache, np.arange(len(new)), last, most, _p(ids.ctypes.data), _p(begin.ctypes.data)
        )

    def _run(
        self, call: Callable[..., int], cache: CachedRows, slots: np.ndarray, last: Tensor, more: int, *given: object
    ) -> None:
        """Call a function of decode.c on the conversations in `slots`, which may grow by `more` tokens."""
        c, (h, g, d) = self.cached, self.cached.compiled.sizes
        slots, held = (np.ascontiguousarray(x, dtype=np.int64) for x in (slots, cache.held[slots]))
        own = cache.room(int(held.max()) + more, len(self.layers), g, d)
        prompt, before = cache.prompt[slots].astype(np.int64), np.zeros(len(slots), dtype=np.int64)
        shared: list[tuple[Tensor | None, Tensor | None]] = [(None, None)] * len(self.layers)
        if cache.prefix is not None:
            before = cache.prefix.length[prompt].astype(np.int64)
            shared = [(cache.prefix.keys[i], cache.prefix.values[i]) for i in range(len(self.layers))]
        cos, sin = c.compiled.reach(c.model, int((before + held).max()) + more)
        model = _Model(
            layers=len(self.layers),
            H=h,
            G=g,
            D=d,
            d=c.embedding.shape[1],
            m=len(c.layers[0].down),
            V=len(c.embedding),
            eps=c.compiled.eps,
            scale=c.compiled.scale,
            embedding=_at(c.embedding),
            norm=_at(c.norm),
            head=_at(self.head),
            cs=_at(cos),
            sn=_at(sin),
        )
        layers = (_Layer * len(self.layers))(
            *(
                _Layer(
                    **{k: _at(w) for k, w in x.items()},
                    keys=_at(k),
                    values=_at(v),
                    shared_keys=_at(a),
                    shared_values=_at(b),
                )
                for x, (k, v), (a, b) in zip(self.layers, own, shared, strict=True)
            )
        )
        first = shared[0][0]
        rows = _Rows(
            n=len(slots),
            capacity=own[0][0].shape[2],
            stride_prompt=0 if first is None else first.stride(0),
            stride_head=0 if first is None else first.stride(1),
            slot=slots.ctypes.data,
            prompt=prompt.ctypes.data,
            before=before.ctypes.data,
            held=held.ctypes.data,
            last=_at(last),
        )
        if call(ctypes.byref(model), layers, ctypes.byref(rows), *given):
            raise MemoryError(
                f"no memory to continue {len(slots)} conversations: lower the number of samples or of tokens"
            )
        cache.held[slots] = held


def _size(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def _padded(w: Tensor) -> Tensor:
    """[k, n] row by row, each padded with zeros to a multiple of 16."""
    k, n = w.shape
    if n % 16 == 0:
        return w.contiguous()
    out = w.new_zeros(k, -(-n // 16) * 16)
    out[:, :n] = w
    return out


def _at(x: Tensor | None) -> int | None:
    return None if x is None else x.data_ptr()
