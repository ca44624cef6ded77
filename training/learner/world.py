"""The processes that learn together, as a learner sees them: which one this is, and three ways to agree.

Every process holds the same weights and the same batch, computes its share of the micro-batches (`dealt` of
training/learner/pack.py) and adds its gradients to those of the others. Denominators are of the whole step and known
before it is split, so a sum over processes is what one process would have computed, and nothing is ever averaged.

One process alone is `ONE`: it hands back what it is given, and torch.distributed is not touched.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from torch import Tensor

WAIT = timedelta(hours=6)  # for the others, who may wait for a process that samples; then each says that it waited


@dataclass(frozen=True)
class World:
    """`rank` of `size` processes; here the only one.

    mesh  how torch.distributed lays them out where each holds a share of the weights; None where each holds all
    """

    rank: int = 0
    size: int = 1
    mesh: Any = None

    @property
    def first(self) -> bool:
        """Whether this is the process that samples, writes and speaks for all."""
        return self.rank == 0

    def sum(self, tensors: Sequence[Tensor]) -> None:
        """Put in the place of each tensor its sum over the processes, to the same bits in each of them."""

    def gather(self, value: Any) -> list[Any]:
        """The values that the processes gave, in the order of their ranks."""
        return [value]

    def share(self, value: Any) -> Any:
        """The value that the first process gave."""
        return value


ONE = World()


class Lost(ConnectionError):
    """Another of the processes that learn together is gone, or was waited for in vain."""


@contextmanager
def _others() -> Iterator[None]:
    """What torch.distributed raises where another process is gone, as `Lost`."""
    try:
        yield
    except RuntimeError as e:
        raise _lost(e) from e


def _lost(e: RuntimeError) -> Lost:
    return Lost(
        f"another process that learns with this one is gone ({str(e).splitlines()[0]}): start all of them again"
    )


@contextmanager
def talking(world: World) -> Iterator[None]:
    """Around what talks to the other processes somewhere within, as a pass of a model that is split does: what it raises
    where one of them is gone, as `Lost`; its own faults as they are."""
    try:
        yield
    except RuntimeError as e:
        of_transport = type(e).__name__.startswith("Dist") or "gloo" in str(e) or "NCCL" in str(e)
        if world.mesh is None or not of_transport:
            raise
        raise _lost(e) from e


class Ranks(World):
    """Several processes, joined through torch.distributed (`join`). Values that are gathered or shared are pickled: by
    processes of one run, for each other. Each method raises Lost where another process is gone."""

    @_others()
    def sum(self, tensors: Sequence[Tensor]) -> None:
        from torch import distributed

        for work in [distributed.all_reduce(t, async_op=True) for t in tensors]:
            assert work is not None  # of a process that is a member of the group
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


def join(rank: int, size: int, meet: str, device: str = "cpu", shards: int = 1) -> World:
    """Meet the other processes; returns once all `size` are there. One alone meets nobody.

    meet    where, as torch.distributed says it: "file:///a/new/file", or "env://" under torchrun
    shards  among how many of them the weights are split: all (FSDP), a divisor of `size` (HSDP: processes that follow
            each other make a group, and each group holds the whole), or 1, and each holds the whole
    """
    if size == 1:
        return ONE
    from torch import distributed

    backend = "nccl" if device.startswith("cuda") else "gloo"
    distributed.init_process_group(backend, init_method=meet, rank=rank, world_size=size, timeout=WAIT)
    if shards == 1:
        return Ranks(rank, size)
    from torch.distributed.device_mesh import init_device_mesh

    shape, names = ((size,), ("shard",)) if shards == size else ((size // shards, shards), ("replicate", "shard"))
    return Ranks(rank, size, init_device_mesh(device.partition(":")[0], shape, mesh_dim_names=names))
