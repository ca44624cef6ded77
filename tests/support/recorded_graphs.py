"""CUDA graphs without CUDA: operations are recorded while they run once, and replayed on the memory that they used.

What a graph forbids is refused as CUDA does it (a RuntimeError): looking at a value on the host. What a graph does is
done: recording leaves no trace in what the operations wrote, a replay knows nothing of the host (a Python number is
what it was), and the result lies where it lay.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from training.rollout import graphs

HOST = {"aten::item", "aten::_local_scalar_dense", "aten::nonzero", "aten::equal", "aten::is_nonzero"}


class _Recorder(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, tuple, dict, Any]] = []
        self.before: dict[int, tuple[Tensor, Tensor]] = {}  # memory -> tensor, what it held

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        if func.name().partition(".")[0] in HOST:
            raise RuntimeError(f"{func.name()} looks at a value on the host, which a stream that is captured forbids")
        if func._schema.is_mutable:
            for t in tree_leaves((args, kwargs)):
                if isinstance(t, Tensor) and t.untyped_storage().data_ptr() not in self.before:
                    whole = torch.as_strided(t, (t.untyped_storage().nbytes() // t.itemsize,), (1,), 0)
                    self.before[t.untyped_storage().data_ptr()] = (whole, whole.clone())
        out = func(*args, **kwargs)
        self.calls.append((func, args, kwargs, out))
        return out


def recorded(run: Callable[[], Tensor], warm_up: Callable[[], object]) -> tuple[Tensor, Callable[[], None]]:
    warm_up()
    recorder = _Recorder()
    with patch.object(torch.cuda, "is_current_stream_capturing", lambda: True), recorder:  # transformers asks
        out = run()
    for whole, was in recorder.before.values():
        whole.copy_(was)

    def replay() -> None:
        for func, args, kwargs, outs in recorder.calls:
            for old, new in zip(tree_leaves(outs), tree_leaves(func(*args, **kwargs)), strict=True):
                if isinstance(old, Tensor) and old.data_ptr() != new.data_ptr():
                    old.copy_(new)

    return out, replay


@pytest.fixture
def recorded_graphs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Steps are recorded and replayed on this device; the list has a number for each graph: its rows."""
    sizes: list[int] = []

    def counted(run: Callable[[], Tensor], warm_up: Callable[[], object]) -> tuple[Tensor, Callable[[], None]]:
        out, replay = recorded(run, warm_up)
        sizes.append(len(out))
        return out, replay

    monkeypatch.setattr(graphs, "can_record", lambda device: True)
    monkeypatch.setattr(graphs, "recorded", counted)
    return sizes
