"""Matrix products on a CPU, each by the library that is fastest on this machine: the only place that chooses.

torch sends float32 products to MKL, which on some processors reaches half the speed of oneDNN, which torch has as well.
The choice is measured once per machine, version of torch and number of threads, by the CPU time of a product of each
kind, and kept in the user's cache (`espalier doctor` shows it). It is kept because sums in another order differ in the
last bit, and two runs on one machine must not differ. oneDNN has to be MARGIN times as fast.

A product with a weight of fewer than LEAST numbers goes to torch, which is as fast there; so do all on other devices
and in other types. A bfloat16 weight is multiplied with the other operand rounded to bfloat16, by oneDNN, with the
processor's instructions for it if it has them; sums are in float32 and are returned as float32 after rounding to
bfloat16.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from platformdirs import user_cache_path
from torch import Tensor

from training.model.native.build import processor

LEAST = 1 << 18  # numbers of a weight; a model of a million parameters has none so large
MARGIN = 1.1
KINDS = ("forward", "input gradient", "weight gradient")
_TRIED, _TURNS = (512, 512, 2048), 7  # rows, in, out of the products that are measured
_PART = 1 << 12  # rows of a weight's gradient that are computed in a buffer before they are added


def forward(x: Tensor, w: Tensor, bias: Tensor | None = None, *, add: Tensor | None = None) -> Tensor:
    """x [n, in] times w [out, in], transposed: [n, out]; plus `bias` [out], or `add` [n, out]."""
    more = bias if add is None else add
    if w.dtype == torch.bfloat16 and w.is_cpu:
        out = torch.mm(_half(x), w.T).to(x.dtype)
    elif _onednn("forward", x, w):
        out = _by_onednn(x, w)
    else:
        return torch.mm(x, w.T) if more is None else torch.addmm(more, x, w.T)
    return out if more is None else out.add_(more)


def input_gradient(g: Tensor, w: Tensor, bias: Tensor | None = None, *, add: Tensor | None = None) -> Tensor:
    """g [n, out] times w [out, in]: [n, in]; plus `bias` [in], or `add` [n, in]."""
    more = bias if add is None else add
    if w.dtype == torch.bfloat16 and w.is_cpu:
        out = torch.mm(_half(g), w).to(g.dtype)
    elif _onednn("input gradient", g, w):
        out = _by_onednn(g, w.T)
    else:
        return torch.mm(g, w) if more is None else torch.addmm(more, g, w)
    return out if more is None else out.add_(more)


def weight_gradient(g: Tensor, x: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """g [n, out], transposed, times x [n, in]: [out, in], of a weight of this type."""
    if dtype == torch.bfloat16 and x.is_cpu:
        return torch.mm(_half(g).T, _half(x))
    if _onednn("weight gradient", g, x, g.shape[1] * x.shape[1]):
        return _by_onednn(g.T.contiguous(), x.T.contiguous())
    return torch.mm(g.T, x)


def add_weight_gradient(to: Tensor, g: Tensor, x: Tensor, *, beta: int) -> None:
    """to [out, in] = beta to + `weight_gradient`; with beta 0 the old content is not read."""
    if not _onednn("weight gradient", g, x, to.numel()):
        to.addmm_(g.T, x, beta=beta)
        return
    xt = x.T.contiguous()
    for lo in range(0, len(to), _PART):
        part = _by_onednn(g[:, lo : lo + _PART].T.contiguous(), xt)
        to[lo : lo + _PART] = part if beta == 0 else part.add_(to[lo : lo + _PART], alpha=beta)


def ways(x: Tensor) -> list[Callable[[Tensor, Tensor], Tensor]]:
    """All implementations of a product for matrices of this dtype on this device."""
    plain = x.is_cpu and x.dtype == torch.float32 and torch.backends.mkldnn.is_available()
    return [torch.mm, _by_onednn] if plain else [torch.mm]


def blocks(n: int, size: int) -> Iterator[slice]:
    """Slices of `size` rows that cover n."""
    return (slice(lo, min(lo + size, n)) for lo in range(0, n, size))


def _half(x: Tensor) -> Tensor:
    return x.to(torch.bfloat16)


def _by_onednn(x: Tensor, w: Tensor) -> Tensor:
    """x w^T; w may be stored in either order."""
    return torch.ops.mkldnn._linear_pointwise(x, w, None, "none", [], "")


def _onednn(kind: str, x: Tensor, w: Tensor, numbers: int = 0) -> bool:
    return (
        (numbers or w.numel()) >= LEAST
        and len(x) > 0
        and x.dtype == w.dtype == torch.float32
        and x.is_cpu
        and w.is_cpu
        and chosen()[kind] == "oneDNN"
    )


_off = False


def turn_off() -> None:
    """Leave all float32 products to torch from now on."""
    global _off
    _off = True


def chosen() -> dict[str, str]:
    """Kind of product -> "MKL" (torch's default) or "oneDNN", for torch's current number of threads."""
    if _off or not torch.backends.mkldnn.is_available():
        return dict.fromkeys(KINDS, "MKL")
    return {kind: _way(m) for kind, m in _measured(torch.get_num_threads()).items()}


def _way(seconds: dict[str, float]) -> str:
    return "oneDNN" if seconds["MKL"] > MARGIN * seconds["oneDNN"] else "MKL"


def rates() -> dict[str, dict[str, float]]:
    """Kind -> way -> floating-point operations per CPU second, as measured for `chosen`."""
    work = 2.0 * functools.reduce(int.__mul__, _TRIED)
    return {
        kind: {way: work / s for way, s in ways.items()} for kind, ways in _measured(torch.get_num_threads()).items()
    }


@functools.cache
def _measured(threads: int) -> dict[str, dict[str, float]]:
    """Kind -> way -> CPU seconds: the measurement of the first process on this machine with this number of threads."""
    about = "\n".join((processor(), torch.__version__, str(threads), repr((_TRIED, _TURNS))))
    path = _folder() / f"products-{hashlib.sha256(about.encode()).hexdigest()[:16]}.json"
    known = _read(path)
    if known is None:
        seconds = measure()
        handle, part = tempfile.mkstemp(dir=path.parent, suffix=".json")
        with os.fdopen(handle, "w", encoding="utf-8") as f:
            json.dump({"threads": threads, "torch": torch.__version__, "seconds": seconds}, f, indent=1)
        try:
            if path.exists():
                os.replace(part, path)  # the cache file was damaged
            else:
                os.link(part, path)  # if two processes measure at the same time, both use the result of the first
        except FileExistsError:
            pass
        finally:
            Path(part).unlink(missing_ok=True)
        known = _read(path) or seconds
    return known


def _read(path: Path) -> dict[str, dict[str, float]] | None:
    try:
        seconds = json.loads(path.read_text(encoding="utf-8"))["seconds"]
        return {kind: {way: float(seconds[kind][way]) for way in ("MKL", "oneDNN")} for kind in KINDS}
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _folder() -> Path:
    folder = user_cache_path("espalier")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if os.access(folder, os.W_OK):
            return folder
    except OSError:
        pass
    return Path(tempfile.gettempdir())


@torch.no_grad()
def measure() -> dict[str, dict[str, float]]:
    """Kind -> way -> CPU seconds, the minimum over several rounds; the implementations take turns."""
    n, k, m = _TRIED
    x, w, g = torch.ones(n, k) / 3, torch.ones(m, k) / 3, torch.ones(n, m) / 3
    runs: dict[str, dict[str, Callable[[], Tensor]]] = {
        "forward": {"MKL": lambda: torch.mm(x, w.T), "oneDNN": lambda: _by_onednn(x, w)},
        "input gradient": {"MKL": lambda: torch.mm(g, w), "oneDNN": lambda: _by_onednn(g, w.T)},
        "weight gradient": {
            "MKL": lambda: torch.mm(g.T, x),
            "oneDNN": lambda: _by_onednn(g.T.contiguous(), x.T.contiguous()),
        },
    }
    out: dict[str, dict[str, float]] = {}
    for kind, ways in runs.items():
        best = dict.fromkeys(ways, float("inf"))
        for turn in range(_TURNS + 1):
            for way, run in ways.items():
                began = time.process_time()
                run()
                if turn:
                    best[way] = min(best[way], time.process_time() - began)
        out[kind] = best
    return out
