"""The processes that train together, as a learner sees them: the rank of this one, and three collective operations.

Every process holds the same weights and the same batch, computes its share of the micro-batches (`dealt` of
training/learner/pack.py) and adds its gradients to those of the others. Denominators are of the whole step and known
before it is split, so a sum over processes is what one process would have computed, and nothing is ever averaged.

A single process is `ONE`: it returns its arguments, and torch.distributed is not used.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from torch import Tensor

WAIT = timedelta(hours=6)  # how long the others wait for a process that samples; then each raises


class Beat:
    """What the launcher reads of this process: whether it computes, waits for the others or rests, since when, and the longest that it
    has computed in one go. Nothing is written before the first `alive`, and nothing at all without a file."""

    def __init__(self, file: Path | None = None) -> None:
        self.file, self.word, self.since, self.longest = file, "", 0.0, 0.0
        self.one = threading.Lock()  # a sampler beside the learner is alive too

    def alive(self) -> None:
        """Computing: called at each micro-batch and each turn that is sampled. A process that waits still waits."""
        self._write(self.word if self.word == "waits" else "computes")

    def waits(self) -> None:
        if self.word == "computes":
            self._write("waits")

    def goes_on(self) -> None:
        if self.word == "waits":
            self._write("computes")

    def rests(self) -> None:
        """Has nothing more to do with the others."""
        self._write("rests")

    def _write(self, word: str) -> None:
        if self.file is None:
            return
        with self.one:
            now = time.monotonic()
            if self.word == "computes":
                self.longest = max(self.longest, now - self.since)
            self.word, self.since = word, now
            self.file.write_text(f"{word} {now} {self.longest}")


BEAT = Beat()


def alive() -> None:
    BEAT.alive()


@dataclass(frozen=True)
class World:
    """Process `rank` of `size`; here the only one.

    mesh  torch.distributed's layout of the processes if each holds a share of the weights; None if each holds all
    """

    rank: int = 0
    size: int = 1
    mesh: Any = None

    @property
    def first(self) -> bool:
        """Whether this is the process that samples and writes for all."""
        return self.rank == 0

    def sum(self, tensors: Sequence[Tensor]) -> None:
        """Replace each tensor by its sum over the processes, bit for bit the same in each of them."""

    def gather(self, value: Any) -> list[Any]:
        """The values of all processes, in the order of their ranks."""
        return [value]

    def share(self, value: Any) -> Any:
        """The value of the first process."""
        return value


ONE = World()


class Lost(ConnectionError):
    """Another of the processes that train together has died, or did not answer in time."""


@contextmanager
def _others() -> Iterator[None]:
    """Turns torch.distributed's error for a dead process into `Lost`."""
    BEAT.waits()
    try:
        yield
    except RuntimeError as e:
        raise _lost(e) from e
    BEAT.goes_on()


def _lost(e: RuntimeError) -> Lost:
    return Lost(
        f"another process that learns with this one is gone ({str(e).splitlines()[0]}): start all of them again"
    )


@contextmanager
def talking(world: World) -> Iterator[None]:
    """A context around code that talks to the other processes, such as a pass of a split model: if one of them has
    died, the error becomes `Lost`; other errors stay as they are."""
    try:
        yield
    except RuntimeError as e:
        of_transport = type(e).__name__.startswith("Dist") or "gloo" in str(e) or "NCCL" in str(e)
        if world.mesh is None or not of_transport:
            raise
        raise _lost(e) from e


class Ranks(World):
    """Several processes, joined through torch.distributed (`join`). Values that are gathered or shared are pickled:
    only processes of one run exchange them. Each method raises Lost if another process has died."""

    @_others()
    def sum(self, tensors: Sequence[Tensor]) -> None:
        from torch import distributed

        for work in [distributed.all_reduce(t, async_op=True) for t in tensors]:
            assert work is not None  # the rank of a process in the group
            work.wait()

    @_others()
    def gather(self, value: Any) -> list[Any]:
        from torch import distributed

        values: list[Any] = [None] * self.size
        distributed.all_gather_object(values, value)
        return values

    @_others()
    def share(self, value: Any) -> Any:
        from torch import distributed

        box = [value if self.first else None]
        distributed.broadcast_object_list(box, src=0)
        return box[0]


def join(rank: int, size: int, meet: str, device: str = "cpu", shards: int = 1, beat: Path | None = None) -> World:
    """Meet the other processes; returns once all `size` have joined. A single process returns at once.

    meet    the meeting point in torch.distributed's form: "file:///a/new/file", or "env://" under torchrun
    shards  among how many of them the weights are split: all (FSDP), a divisor of `size` (HSDP: consecutive processes
            form a group, and each group holds the whole model), or 1 (each process holds the whole model)
    beat    where this process says that it is alive (`Beat`), if a launcher or the others read it
    """
    if size == 1:
        return ONE
    BEAT.file = beat
    from torch import distributed

    backend = "nccl" if device.startswith("cuda") else "gloo"
    distributed.init_process_group(backend, init_method=meet, rank=rank, world_size=size, timeout=WAIT)
    if shards == 1:
        return Ranks(rank, size)
    from torch.distributed.device_mesh import init_device_mesh

    shape, names = ((size,), ("shard",)) if shards == size else ((size // shards, shards), ("replicate", "shard"))
    return Ranks(rank, size, init_device_mesh(device.partition(":")[0], shape, mesh_dim_names=names))
