"""How a learner's weights reach vLLM servers: as a file, by a broadcast, or as memory that both see. One method per transport; what is
checked afterwards is the same for all (`Server.take`, `Servers`)."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import torch
from torch import Tensor

from training.rollout import transport
from training.rollout.engine import EngineLost
from training.rollout.transport import BUCKET, LIMIT, Group
from training.rollout.vllm_engine import Sent, Server, laid

HERE = ("127.0.0.1", "localhost")
DISK = "or set rl.transport=disk (docs/engines.md)"
Each = Callable[[Callable[[Server], Any], Sequence[Server]], Any]
"""Asks servers at the same time, and leaves out those that are lost."""


@dataclass(eq=False)
class Publisher:
    """by       disk: a folder that the servers read
             nccl: a broadcast from the learner's device to theirs, in a group that is made once and again where a server is lost or back
             ipc: handles of the learner's own memory, for servers on its device
    device   of the learner's weights, as torch names it
    place    a folder that the servers can read, for `disk`, and for what `nccl` did not bring to its end
    backend  of the group: gloo for tests without a GPU
    limit    seconds that learner and servers have to meet, and that a bucket may take
    bucket   bytes that are sent at once
    """

    by: str
    device: str
    place: Path
    backend: str = "nccl"
    limit: float = LIMIT
    bucket: int = BUCKET
    _group: Group | None = field(default=None, init=False, repr=False)
    _members: tuple[Server, ...] = field(default=(), init=False, repr=False)
    _sizes: dict[Server, int] = field(default_factory=dict, init=False, repr=False)  # workers of each

    def __post_init__(self) -> None:
        if self.device == "cuda" and torch.cuda.is_available():  # each thread has a current device of its own
            self.device = f"cuda:{torch.cuda.current_device()}"

    def fit(self, servers: Sequence[Server]) -> None:
        """Raises ValueError for a server that weights cannot reach by this transport, EngineLost for one that does not answer."""
        if self.by == "disk":
            return
        mine = _here(self.device)
        if self.backend == "nccl" and not mine["device_id"]:
            raise ValueError(
                f"rl.transport={self.by} needs a learner on CUDA, and this one is on {self.device}: set rl.device=cuda, {DISK}"
            )
        devices = {mine["device_id"]: "the learner"}
        for s in servers:
            workers = s.workers_about()
            for theirs in workers:
                self._fits(s, mine, theirs, devices, len(workers))
            self._sizes[s] = len(workers)

    def _fits(
        self, server: Server, mine: Mapping[str, Any], theirs: Mapping[str, Any], taken: dict[str, str], answer: int
    ) -> None:
        who = f"the server {server.url}"
        if "copies" not in theirs:
            raise ValueError(
                f"{who} does not know the transport {self.by}: start it with the worker extension of this version of espalier, {DISK}"
            )
        if theirs["copies"] > 1:
            raise ValueError(
                f"{who} holds {theirs['copies']} copies of the model (--data-parallel-size), of which a request reaches one: start a server "
                f"for each, {DISK}"
            )
        if theirs["workers"] != answer:
            raise ValueError(
                f"{who} has {theirs['workers']} workers (--tensor-parallel-size) and {answer} of them answer, so the others would be waited for in "
                f"vain: start it on one machine, {DISK}"
            )
        if self.backend == "nccl" and theirs["device"] != "cuda":
            raise ValueError(
                f"{who} computes on {theirs['device']}, where {self.by} would bring nothing: start it on CUDA, {DISK}"
            )
        if other := [k for k, v in mine["libraries"].items() if theirs["libraries"].get(k) != v]:
            k = other[0]
            raise ValueError(
                f"{who} runs with {k} {theirs['libraries'].get(k)}, and the learner with {mine['libraries'][k]}: install the same on both "
                f"sides, {DISK}"
            )
        if self.by == "nccl" and theirs["device_id"] and theirs["device_id"] in taken:
            raise ValueError(
                f"{who} is on the device of {taken[theirs['device_id']]}, and NCCL takes one rank of a device: give it another, or set "
                "rl.transport=ipc"
            )
        if self.by == "ipc" and (theirs["machine"], theirs["device_id"]) != (mine["machine"], mine["device_id"]):
            raise ValueError(
                f"{who} is on another device than the learner ({theirs['machine']} {theirs['device_id']}, not {mine['machine']} "
                f"{mine['device_id']}), whose memory it cannot see: set rl.transport=nccl, {DISK}"
            )
        taken[theirs["device_id"]] = who

    def publish(self, weights: Mapping[str, Tensor], version: int, servers: Sequence[Server], each: Each) -> None:
        """Have the servers load `weights` as version `version`. Raises ValueError where other weights arrived than were sent."""
        sent = Sent.of(weights)
        getattr(self, self.by)(weights, version, sent, servers, each)

    def disk(
        self, weights: Mapping[str, Tensor], version: int, sent: Sent, servers: Sequence[Server], each: Each
    ) -> None:
        with laid(self.place, weights, version) as folder:
            each(lambda s: s.take(version, sent, folder=str(folder)), servers)

    def ipc(
        self, weights: Mapping[str, Tensor], version: int, sent: Sent, servers: Sequence[Server], each: Each
    ) -> None:
        """Each server gets handles of its own, as CUDA counts who has opened which."""
        if cuda := next(iter(weights.values())).is_cuda:
            torch.cuda.synchronize()  # another process does not wait for what is computed here
        shared = {name: t.detach() for name, t in weights.items()}
        told = {s: transport.handles(shared) for s in servers}
        each(lambda s: s.take(version, sent, handles=told[s]), servers)
        if cuda:
            torch.cuda.ipc_collect()

    def nccl(
        self, weights: Mapping[str, Tensor], version: int, sent: Sent, servers: Sequence[Server], each: Each
    ) -> None:
        """A server that is lost amid it ends the group: those that are left get this version as a folder, and the next in a new group."""
        with ThreadPoolExecutor(len(servers) or 1) as pool:
            try:
                group = self._together(servers, pool)
                entries = transport.entries_of(weights)
                done = [pool.submit(s.take, version, sent, entries=entries) for s in servers]
                group.send(weights, lambda: _raised(done))
                _ended(done)
                return
            except (EngineLost, TimeoutError, RuntimeError) as e:
                self.leave()
                print(
                    f"warning: version {version} did not reach all servers by nccl ({e}): it goes by disk",
                    file=sys.stderr,
                )
        alive = [s for s, answers in zip(servers, each(Server.answers, servers), strict=True) if answers]
        each(_gone, [s for s in servers if s not in alive])
        self.disk(weights, version, sent, alive, each)

    def _together(self, servers: Sequence[Server], pool: ThreadPoolExecutor) -> Group:
        """The group with these servers' workers."""
        if self._group is not None and self._members == tuple(servers):
            return self._group
        self.leave()
        hosts = [str(urlsplit(s.url).hostname) for s in servers]
        listener = transport.listening(next((h for h in hosts if h not in HERE), hosts[0]))
        host, port = listener.getsockname()
        size = 1 + sum(self._sizes[s] for s in servers)
        joins, first = [], 1
        for s in servers:
            joins.append(pool.submit(s.join, host, port, first, size, self.backend, self.limit, self.bucket))
            first += self._sizes[s]
        self._group = Group(
            (host, port), 0, size, self.backend, self.device, self.limit, self.bucket, listener, lambda: _raised(joins)
        )
        _ended(joins)
        self._members = tuple(servers)
        return self._group

    def leave(self) -> None:
        """End the group; its workers end theirs when they are asked to meet anew, or when they see it."""
        group, self._group, self._members = self._group, None, ()
        if group is not None:
            group.close()


def _here(device: str) -> dict[str, Any]:
    name = transport.device_of(device) if torch.cuda.is_available() else ""
    return {"machine": socket.gethostname(), "device_id": name, "libraries": transport.libraries()}


def _raised(futures: Sequence[Any]) -> None:
    """Raises what one of them has raised by now."""
    for f in futures:
        if f.done():
            f.result()


def _ended(futures: Sequence[Any]) -> None:
    for f in futures:
        f.result()


def _gone(server: Server) -> None:
    raise EngineLost(f"the server {server.url} does not answer")
