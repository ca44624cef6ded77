"""The cost of a step: seconds of its parts, arithmetic, memory. These are not results: they differ from run to run."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import nn

from training.learner.pack import shared_tokens
from training.model import products
from training.model.model import text_config
from training.model.quantised import n_quantised
from training.types import Batch

MEASURED = ("seconds", "per_second", "mfu", "peak_mb")  # how the names of such metrics end


class Clock:
    """Seconds between marks, added up by name; on a GPU by events, so that a mark does not wait."""

    def __init__(self, device: torch.device) -> None:
        self.cuda = device.type == "cuda"
        self.marks = [("", self._now())]

    def _now(self) -> Any:
        """Seconds, or an event on a GPU."""
        if not self.cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def mark(self, name: str) -> None:
        """Book the time since the last mark under `name`."""
        self.marks.append((name, self._now()))

    def seconds(self) -> dict[str, float]:
        """`<name>_seconds` of each name; on a GPU this waits for the last mark."""
        out: dict[str, float] = {}
        if self.cuda:
            self.marks[-1][1].synchronize()
        for (_, a), (name, b) in zip(self.marks, self.marks[1:], strict=False):
            key = f"{name}_seconds"
            out[key] = out.get(key, 0.0) + (a.elapsed_time(b) / 1e3 if self.cuda else b - a)
        return out


def flops(model: nn.Module) -> Callable[[Batch], float]:
    """Floating-point operations of one forward and backward pass of a model in training, over the tokens of a batch
    that are computed. 2 per weight and token forward, 4 backward (2 if the weight is frozen), the head for trained
    tokens only, attention over pairs of tokens. Recomputation (`gradient_checkpointing`, the head's second pass) does
    not count: the result is the work that a step needs, not the work that it does."""
    language_model: Any = model
    config, head = text_config(model), language_model.get_output_embeddings()
    inner = [
        p for n, p in model.named_parameters() if p.dim() == 2 and "embed" not in n and not n.startswith("lm_head")
    ]
    each = sum((6 if p.requires_grad else 4) * p.numel() for p in inner) + 4 * n_quantised(model)
    width = config.num_attention_heads * getattr(config, "head_dim", config.hidden_size // config.num_attention_heads)
    pairs = 6 * config.num_hidden_layers * width
    top = (6 if head.weight.requires_grad else 4) * head.weight.numel()

    def of(batch: Batch) -> float:
        begun = shared_tokens(batch)
        seen = sum(n * n - s * s for n, s in zip(batch.lengths, begun, strict=True))
        return float(each * (len(batch.ids) - sum(begun)) + top * int(batch.trainable.sum()) + pairs * seen)

    return of


@cache
def reached(device: str, dtype: torch.dtype) -> float:
    """Operations per second of a large matrix product on this device with its fastest library; `mfu` is relative to it.
    It is measured once per process, in some tenths of a second: a data sheet's number holds for another clock rate and
    temperature."""
    n = 8192 if device.startswith("cuda") else 512
    a = torch.ones(n, n, device=device, dtype=dtype) / 3
    best = 0.0
    for way in products.ways(a):
        for _ in range(4):
            clock = Clock(a.device)
            way(a, a)
            clock.mark("product")
            best = max(best, 2.0 * n**3 / clock.seconds()["product_seconds"])
    return best


def peak_mb(device: torch.device) -> float:
    """Peak memory in MB so far: torch's on a GPU, the process's on a CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)
