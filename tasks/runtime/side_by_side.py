"""Runs stages concurrently: each begins once the stages that it reads are done, within a budget of cores and devices.

Every stage is a `dvc repro -s` of its own. DVC's locks let two of them work at once, and serialise their changes of
dvc.lock; a stage that finds the lock held tries again.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tasks.runtime import dvc

AGAIN, PATIENCE = 0.5, 600.0  # seconds between two tries while DVC's lock is held, and in total


@dataclass(frozen=True)
class Cost:
    """What a running stage takes: cores and devices."""

    cores: int = 1
    devices: int = 0


@dataclass(frozen=True)
class Budget:
    """How many stages, cores and devices may be in use at a time. A stage that needs more than all cores runs alone."""

    jobs: int
    cores: int
    devices: int = 0


def walk(
    order: Mapping[str, set[str]],
    bring: Callable[[str, list[int], Callable[[], bool]], bool],
    cost: Callable[[str], Cost],
    budget: Budget,
) -> list[str]:
    """Bring every stage of `order` (stage -> those that it reads) up to date. Returns those that ran, as they ended.

    bring   of a stage, the devices that it has, and a function that says whether it should stop: whether it ran
    Raises the first error, once what was running beside it has ended; what has not begun is not begun then.
    """
    waiting, done, running, ran = list(order), set(), {}, []
    free = list(range(budget.devices))
    ended: queue.SimpleQueue[tuple[str, bool, BaseException | None]] = queue.SimpleQueue()
    stop, error = threading.Event(), None

    def work(name: str, devices: list[int]) -> None:
        try:
            ended.put((name, bring(name, devices, stop.is_set), None))
        except BaseException as e:
            ended.put((name, False, e))

    try:
        while (waiting and error is None) or running:
            for name in [n for n in waiting if order[n] <= done] if error is None else []:
                c = cost(name)
                held = sum(x.cores for x, _ in running.values())
                if running and (len(running) >= budget.jobs or held + c.cores > budget.cores or c.devices > len(free)):
                    continue
                mine = [free.pop(0) for _ in range(min(c.devices, len(free)))]
                waiting.remove(name)
                running[name] = (c, mine)
                threading.Thread(target=work, args=(name, mine), name=name, daemon=True).start()
            try:
                name, moved, failed = ended.get(timeout=1.0)  # a signal must be able to end the wait
            except queue.Empty:
                continue
            _, mine = running.pop(name)
            free = sorted([*free, *mine])
            if failed is None:
                done.add(name)
                ran += [name] * moved
            elif error is None:
                error = failed
    except BaseException:
        stop.set()
        while running:
            running.pop(ended.get()[0])
        raise
    if error is not None:
        raise error
    return ran


def patient(
    name: str, root: Path, env: Mapping[str, str], each: Callable[[str], None], stopped: Callable[[], bool]
) -> str:
    """`dvc.stage`, repeated while another stage's DVC holds the lock."""
    until = time.monotonic() + PATIENCE
    while True:
        try:
            return dvc.stage(name, root, env, each, stopped=stopped)
        except dvc.Busy:
            if time.monotonic() > until:
                raise
            time.sleep(AGAIN)
