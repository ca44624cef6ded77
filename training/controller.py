"""One controller, and processes that do what it says: a step reads like one program, and a plan says which process runs which call.

    with Controller("training.replica", devices=2, settings={...}) as run:
        run.call("gradient", rows, where=(0, 2), how="split")     rows given out, results one per process, in the order of the rows
        run.call("update", gradient, where=(0, 2), how="all")     the same to all; what the first says
        run.step(calls, plan, inputs)                             a whole graph of calls (training/placement), each when it may

A module of work has `start(rank, **settings)`, which returns an object; its methods are the calls. Each process works off what it is sent in
order, so two calls never share a device at one time. What is sent must be plain values and arrays. An error in a process is raised here.
"""

from __future__ import annotations

import importlib
import multiprocessing
import traceback
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any

from training.placement._graph import Call, Plan


class Controller:
    """`devices` processes of `module`; use it with `with`. Raises RuntimeError where one of them fails or dies."""

    def __init__(self, module: str, devices: int, settings: Mapping[str, Any] | None = None) -> None:
        context = multiprocessing.get_context("spawn")  # a forked process would share the threads of torch
        self.pipes: list[Connection] = []
        self.processes = []
        for rank in range(devices):
            mine, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(theirs, module, rank, dict(settings or {})), daemon=True)
            process.start()
            theirs.close()
            self.pipes.append(mine)
            self.processes.append(process)

    def __enter__(self) -> Controller:
        return self

    def __exit__(self, *_: Any) -> None:
        for pipe in self.pipes:
            try:
                pipe.send(None)
            except OSError:
                pass
        for process in self.processes:
            process.join(10)
            if process.is_alive():
                process.terminate()

    def call(self, name: str, value: Any, *, where: tuple[int, int], how: str) -> Any:
        """One call, waited for. how: "all" or "split" (of a sequence)."""
        ranks = range(where[0], where[0] + where[1])
        self._send(name, value, ranks, how)
        said = [self._receive(r) for r in ranks]
        return said[0] if how == "all" else said

    def step(self, calls: Sequence[Call], plan: Plan, inputs: Any, how: Mapping[str, str] | None = None) -> dict[str, Any]:
        """Results of all calls by name, each begun when what it waits for is there and its processes are free. A call, spaces as underscores,
        is given {"inputs": ..., "share": (k, n): it is the k-th of n processes, and the results of what it waits for by name}. Of n
        processes the first one's result counts, or where how[name] is "split" the list of all."""
        done: dict[str, Any] = {}
        running: dict[str, dict[int, Any]] = {}
        busy: dict[int, str] = {}
        while len(done) < len(calls):
            for c in calls:
                ranks = range(plan[c.name][0], sum(plan[c.name]))
                if c.name not in done and c.name not in running and all(a in done for a in c.after) and not any(r in busy for r in ranks):
                    given = {"inputs": inputs, **{a: done[a] for a in c.after}}
                    for k, rank in enumerate(ranks):
                        self.pipes[rank].send((c.name.replace(" ", "_"), {**given, "share": (k, len(ranks))}))
                    running[c.name] = {}
                    busy.update(dict.fromkeys(ranks, c.name))
            for pipe in wait([self.pipes[r] for r in busy]):
                rank = self.pipes.index(pipe)
                name = busy.pop(rank)
                running[name][rank] = self._receive(rank)
                if len(running[name]) == plan[name][1]:
                    said = running.pop(name)
                    done[name] = [said[r] for r in sorted(said)] if (how or {}).get(name) == "split" else said[min(said)]
        return done

    def _send(self, name: str, value: Any, ranks: range, how: str) -> None:
        if how not in ("all", "split"):
            raise ValueError(f"the call {name!r} is to be given out {how!r}: choose all or split")
        parts = [value] * len(ranks)
        if how == "split":
            cuts = [len(value) * i // len(ranks) for i in range(len(ranks) + 1)]
            parts = [value[a:b] for a, b in zip(cuts, cuts[1:])]
        for rank, part in zip(ranks, parts, strict=True):
            self.pipes[rank].send((name, part))

    def _receive(self, rank: int) -> Any:
        try:
            good, said = self.pipes[rank].recv()
        except EOFError as e:
            raise RuntimeError(f"process {rank} of the controller died: see what it wrote above") from e
        if not good:
            raise RuntimeError(f"process {rank} of the controller failed:\n{said}")
        return said


def _serve(pipe: Connection, module: str, rank: int, settings: dict[str, Any]) -> None:
    """A worker's life: calls in, results out, until there is None."""
    try:
        work = importlib.import_module(module).start(rank, **settings)
        while (asked := pipe.recv()) is not None:
            name, value = asked
            pipe.send((True, getattr(work, name)(value)))
    except (EOFError, KeyboardInterrupt):
        return
    except Exception:
        pipe.send((False, traceback.format_exc()))
