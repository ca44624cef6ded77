"""One decode step on a GPU as a CUDA graph: its hundreds of small kernel launches become one.

A graph replays fixed kernels on fixed memory, so nothing may depend on the length of a row: keys are read up to a fixed
number of columns with a mask computed on the device, and the graph itself increments each row's position. A graph is
used until other rows become active or the columns are full. If a model's forward cannot be captured (it reads a value
on the host), steps run without graphs, with one warning.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch
from torch import Tensor

from training.model.kv_cache import CachedRows

COLUMNS = 64  # of the rows' own columns; a graph reads a multiple of this


def can_record(device: torch.device) -> bool:
    return device.type == "cuda"


def recorded(run: Callable[[], Tensor], warm_up: Callable[[], object]) -> tuple[Tensor, Callable[[], None]]:
    """The tensor that `run` returns, and a function that does all of `run` again on the same memory; recording computes
    nothing yet. warm_up: run once before, as capturing asks. Raises RuntimeError where `run` looks at a value on the host.

    With `can_record` the only place that knows what records: tests on a CPU put a stand-in here
    (tests/support/recorded_graphs.py)."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        warm_up()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = run()
    return out, graph.replay


class StepGraph:
    """forward(ids [rows, 1], position [rows, 1], cache) -> [rows, 1, d], captured for the cache's current window."""

    def __init__(
        self, forward: Callable[[Tensor, Tensor, CachedRows], Tensor], cache: CachedRows, columns: int
    ) -> None:
        self.cache, self.columns, self.at = cache, columns, cache.at
        self.ids = torch.zeros(len(cache.at), 1, dtype=torch.long, device=cache.device)
        cache.fix(columns)

        def step() -> Tensor:
            hidden = forward(self.ids, cache.begin(), cache)[:, 0]
            cache.move()
            return hidden

        # what the warm-up writes is written over by the next real step
        self.out, self.replay = recorded(step, lambda: forward(self.ids, cache.begin(), cache))

    @property
    def fits(self) -> bool:
        return self.cache.at is self.at and self.cache.depth < self.columns

    def __call__(self, token: Tensor) -> Tensor:
        """Ids [rows] -> hidden states [rows, d], in memory that the next call writes over."""
        self.ids.copy_(token[:, None])
        self.replay()
        self.cache.count()
        return self.out


def capture(
    forward: Callable[[Tensor, Tensor, CachedRows], Tensor], cache: CachedRows, columns: int
) -> StepGraph | None:
    """None if it cannot be captured."""
    try:
        return StepGraph(forward, cache, columns)
    except RuntimeError as e:
        cache.fix(0)
        print(f"warning: this model's decode step runs without CUDA graphs: {str(e).splitlines()[0]}", file=sys.stderr)
        return None
