"""How weights travel from a learner to the workers of vLLM servers without a disk: both sides, as small as they can be.

    entries = entries_of(weights)                     what will come, which is told by HTTP
    Group(...)                                        the learner (rank 0) and all workers, in a group of their own
    group.send(weights) / group.received(entries)     the bytes, in buckets
    handles(weights) / opened(handles, device)        or the learner's own memory, for a worker on the same device
    digest(sums)                                      by which both know that the same has arrived

vLLM has transports of its own (`vllm/distributed/weight_transfer`). Ours differ in that every wait has a limit, what arrives is
summed before vLLM loads it, the learner needs no vLLM, and with gloo in the place of NCCL they run, and are tested, without a GPU.
Loading is vLLM's (`reload_weights`). NCCL and CUDA handles have not been run on a GPU by us (docs/engines.md).
"""

from __future__ import annotations

import base64
import hashlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from math import prod
from typing import Any

import torch
from torch import Tensor

BUCKET = 1 << 28  # bytes that travel at once, unless one weight alone has more
ALIGNED = 16  # bytes: where a weight begins in a bucket, so that it can be seen as any type
WORDS = 1 << 20  # 8-byte words that are summed at once
LIMIT = 120.0  # seconds that one bucket may take, and that all have to meet
POLL = 0.0005
Entry = Sequence[Any]  # name, dtype (as "bfloat16") and shape of a weight
Sums = dict[str, tuple[str, list[int], Tensor]]  # name -> dtype, shape, `summed`


def entries_of(weights: Mapping[str, Tensor]) -> list[Entry]:
    return [[name, dtype_name(t.dtype), list(t.shape)] for name, t in weights.items()]


def dtype_name(dtype: torch.dtype) -> str:
    """As safetensors' readers and configurations write it: bfloat16."""
    return str(dtype).removeprefix("torch.")


def _bytes(t: Tensor) -> Tensor:
    """[n] uint8: the bytes of a tensor, row by row."""
    return t.detach().contiguous().view(-1).view(torch.uint8)


def _size(entry: Entry) -> int:
    return prod(entry[2]) * getattr(torch, entry[1]).itemsize


def _room(size: int) -> int:
    return -(-size // ALIGNED) * ALIGNED


def summed(t: Tensor) -> Tensor:
    """int64 []: the sum modulo 2^64 of a tensor's 8-byte words, each times an odd number of its place: another bit anywhere
    gives another sum. No cryptographic hash: it finds mistakes, and is computed where the tensor lies."""
    data = _bytes(t)
    if (lacking := -len(data) % 8) or data.storage_offset() % 8:
        data = torch.cat([data, data.new_zeros(lacking)])
    words, total = data.view(torch.int64), torch.zeros((), dtype=torch.int64, device=t.device)
    for at in range(0, len(words), WORDS):
        part = words[at : at + WORDS]
        places = torch.arange(at, at + len(part), device=t.device)
        total += (part * (2 * places + 1)).sum()
    return total


def summing(weights: Iterable[tuple[str, Tensor]], sums: Sums) -> Iterator[tuple[str, Tensor]]:
    """The same weights; `sums` has each of them once it was passed on."""
    for name, t in weights:
        sums[name] = dtype_name(t.dtype), list(t.shape), summed(t)
        yield name, t


def digest(sums: Sums) -> str:
    """Of names, types, shapes and bytes, whatever order they came in."""
    return hashlib.blake2b(
        json.dumps([[n, k, shape, int(s)] for n, (k, shape, s) in sorted(sums.items())]).encode(), digest_size=16
    ).hexdigest()


def checksum(weights: Mapping[str, Tensor]) -> str:
    sums: Sums = {}
    for _ in summing(weights.items(), sums):
        pass
    return digest(sums)


def buckets(entries: Sequence[Entry], size: int) -> Iterator[Sequence[Entry]]:
    """Entries in order, some `size` bytes at a time: never more, unless one alone has more."""
    first = held = 0
    for i, entry in enumerate(entries):
        room = _room(_size(entry))
        if i > first and held + room > size:
            yield entries[first:i]
            first, held = i, 0
        held += room
    if first < len(entries):
        yield entries[first:]


def listening(host: str) -> socket.socket:
    """Where the others of a group meet the learner: a port of the address by which this machine reaches `host`, and of no other."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asks:
        asks.connect((host, 9))  # sends nothing
        mine = asks.getsockname()[0]
    listener = socket.socket()
    listener.bind((mine, 0))
    listener.listen(128)
    return listener


class Group:
    """A group of its own beside those that learner and worker are in already. Raises TimeoutError, which says who or what was
    waited for, and RuntimeError (torch's) where another has left.

    address  at which the learner listens
    backend  nccl; gloo on the CPU
    device   of the buckets
    limit    seconds of each wait
    listener the learner's own, which it keeps
    """

    def __init__(
        self,
        address: tuple[str, int],
        rank: int,
        size: int,
        backend: str,
        device: torch.device | str,
        limit: float = LIMIT,
        bucket: int = BUCKET,
        listener: socket.socket | None = None,
        lost: Callable[[], None] = lambda: None,
    ) -> None:
        from torch import distributed as torch_distributed

        distributed: Any = torch_distributed
        self.address, self.rank, self.size, self.device = address, rank, size, torch.device(device)
        self.limit, self.bucket = limit, bucket
        within, own = timedelta(seconds=limit), None if listener is None else listener.detach()
        self._group: Any = None

        def meet() -> None:
            store = distributed.TCPStore(
                *address, size, rank == 0, within, wait_for_workers=False, master_listen_fd=own, use_libuv=True
            )
            if backend == "nccl":
                options = distributed.ProcessGroupNCCL.Options()
                options._timeout = 4 * within  # ours ends first
                self._group = distributed.ProcessGroupNCCL(store, rank, size, options)
            else:
                self._group = distributed.ProcessGroupGloo(store, rank, size, within)
            self._store = store
            self._broadcast(torch.zeros(1, dtype=torch.uint8, device=self.device), lost)  # NCCL connects now

        what = "the workers of the servers" if rank == 0 else "the learner and the other servers"
        _within(meet, limit + 10, f"{what} did not meet at {address[0]}:{address[1]}", lost)

    def send(self, weights: Mapping[str, Tensor], lost: Callable[[], None] = lambda: None) -> None:
        """To all others. lost: raises where one of them is known to be gone."""
        entries = entries_of(weights)
        for part in buckets(entries, self.bucket):
            pieces = []
            for entry in part:
                data = _bytes(weights[entry[0]]).to(self.device)
                pieces += [data, data.new_zeros(_room(len(data)) - len(data))]
            self._broadcast(torch.cat(pieces), lost)

    def received(self, entries: Sequence[Entry]) -> Iterator[tuple[str, Tensor]]:
        """What the learner sends; each bucket lies in memory of its own, since vLLM keeps weights until their layer is whole."""
        for part in buckets(entries, self.bucket):
            sizes = [_size(e) for e in part]
            data = torch.empty(sum(map(_room, sizes)), dtype=torch.uint8, device=self.device)
            self._broadcast(data)
            at = 0
            for (name, kind, shape), size in zip(part, sizes, strict=True):
                yield name, data[at : at + size].view(getattr(torch, kind)).view(shape)
                at += _room(size)

    def _broadcast(self, data: Tensor, lost: Callable[[], None] = lambda: None) -> None:
        from torch import distributed

        options = distributed.BroadcastOptions()
        options.rootRank = options.rootTensor = 0
        work, until = self._group.broadcast([data], options), time.monotonic() + self.limit
        while not work.is_completed():
            lost()
            if time.monotonic() > until:
                side = "the workers of the servers did not take" if self.rank == 0 else "the learner did not send"
                raise TimeoutError(f"{side} {len(data):,} bytes of weights in {self.limit:.0f} s")
            time.sleep(POLL)
        work.wait()

    def alive(self) -> bool:
        """Whether the learner still listens."""
        try:
            socket.create_connection(self.address, 1.0).close()
        except OSError:
            return False
        return True

    def close(self) -> None:
        """Leave, whatever is under way: NCCL ends it by `abort`, which may itself wait, so it is not waited for."""
        group, self._group, self._store = self._group, None, None
        if group is not None:
            ends = threading.Thread(target=group.abort, daemon=True)
            ends.start()
            ends.join(5.0)


def _within(do: Callable[[], None], seconds: float, late: str, lost: Callable[[], None]) -> None:
    """Runs what may wait inside a library that has no limit of its own."""
    failed: list[BaseException] = []

    def run() -> None:
        try:
            do()
        except BaseException as e:  # noqa: BLE001 (raised again below)
            failed.append(e)

    beside, until = threading.Thread(target=run, daemon=True), time.monotonic() + seconds
    beside.start()
    while beside.is_alive():
        lost()
        if time.monotonic() > until:
            raise TimeoutError(f"{late} in {seconds:.0f} s")
        beside.join(0.02)
    if failed:
        raise failed[0]


def handles(weights: Mapping[str, Tensor]) -> list[list[Any]]:
    """What another process of this machine opens the same memory by, as JSON: once, and as long as the weights are kept here. On the
    CPU, weights move into shared memory. Raises ValueError where CUDA shares none."""
    out = []
    for name, t in weights.items():
        t = t.detach()
        storage: Any = t.untyped_storage()
        try:
            parts = storage._share_cuda_() if t.is_cuda else storage._share_filename_cpu_()
        except RuntimeError as e:
            raise ValueError(
                f"the learner's memory cannot be shared ({str(e).splitlines()[0]}): without expandable_segments in "
                "PYTORCH_CUDA_ALLOC_CONF it can, or set rl.transport=disk"
            ) from e
        seen = [list(t.shape), list(t.stride()), t.storage_offset()]
        told = [base64.b64encode(p).decode() if isinstance(p, bytes) else p for p in parts]
        out.append([name, dtype_name(t.dtype), seen, told])
    return out


def opened(handles: Iterable[Sequence[Any]], at: torch.device | str) -> Iterator[tuple[str, Tensor]]:
    """The weights of `handles`, where they lie."""
    device = torch.device(at)
    for name, kind, (shape, stride, offset), told in handles:
        parts: list[Any] = [base64.b64decode(p) if isinstance(p, str) else p for p in told]
        dtype = getattr(torch, kind)
        if device.type == "cuda":
            from torch.multiprocessing.reductions import rebuild_cuda_tensor

            _, handle, size, at, counter, counted, event, synchronised = parts
            index = (
                torch.cuda.current_device() if device.index is None else device.index
            )  # the sender's may have another number
            yield (
                name,
                rebuild_cuda_tensor(
                    torch.Tensor, shape, stride, offset, torch.UntypedStorage, dtype, index, handle, size, at, False,
                    counter, counted, event, synchronised,
                ),
            )  # fmt: skip
        else:
            storage: Any = torch.UntypedStorage._new_shared_filename_cpu(*parts)
            yield name, torch.empty(0, dtype=dtype).set_(storage, offset, shape, stride)


def device_of(at: torch.device | str) -> str:
    """What no other device in the world is called; "" of a CPU."""
    device = torch.device(at)
    return str(torch.cuda.get_device_properties(device).uuid) if device.type == "cuda" else ""


def token_digest(tokenizer: Any) -> str:
    """Of the tokens of a tokenizer (transformers') with their ids, added ones too."""
    tokens = sorted(tokenizer.get_vocab().items())
    return hashlib.blake2b(json.dumps(tokens).encode(), digest_size=16).hexdigest()


def libraries() -> dict[str, str]:
    """What has to be the same on both sides."""
    from torch.cuda import nccl

    version = nccl.version() if torch.cuda.is_available() else ()
    return {"torch": torch.__version__.partition("+")[0], "nccl": ".".join(map(str, version))}
