"""Shared code of the training stages: a repeatable device, the curve of metrics, steps that resume, the order of
examples."""

from __future__ import annotations

import csv
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch

from synth.types import seed_for
from tasks.core.errors import UserError
from tasks.planning.places import check_shards
from tasks.planning.settings import Optimizer
from tasks.runtime import ranks
from tasks.runtime.prefect_shim import task
from tasks.runtime.stage import Stage
from tasks.storage.checkpoint import Checkpoints
from tasks.storage.faults import fault
from training.learner.learner import Learner, Optim
from training.learner.loop import Round, Source, run
from training.learner.profile import MEASURED, reached
from training.learner.world import BEAT, ONE, World, join
from training.model import products
from training.model.native.build import turn_off, why_not
from training.types import Batch

WATCHED = 10.0  # seconds of steps that are grouped into one task


def make_repeatable(stage: Stage, device: str) -> None:
    """Makes a run repeatable: sets seeds, threads and deterministic kernels. Raises UserError for a device that does
    not exist."""
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise UserError(
            f"{stage.name}: device is {device!r}, but torch sees no CUDA device: set `profile: cpu`, or see `espalier doctor`"
        )
    torch.manual_seed(seed_for(stage.seed, stage.name) % 2**63)
    torch.set_num_threads(stage.threads)
    torch.use_deterministic_algorithms(device == "cpu")
    # a debugging aid of the line above that costs 3 % of a step
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]


def together(stage: Stage, learners: int, device: str, shards: int = 1) -> World:
    """The processes that train together, once all have started. Raises UserError if their number differs from the
    stage's learners, if weights cannot be split among that many, or if the machine has too few devices."""
    here = ranks.here()
    if here.size != learners:
        raise UserError(
            f"{stage.name}: learners is {learners}, and this is one of {here.size} processes: start it with `espalier run`, "
            f"or with `torchrun --nproc-per-node {learners} -m flows.{stage.name}`"
        )
    check_shards(stage.name, learners, shards)
    if learners > 1 and device.startswith("cuda"):
        if device != "cuda":
            raise UserError(f"{stage.name}: device is {device!r}, one for {learners} learners: write `device: cuda`")
        if here.local >= torch.cuda.device_count():
            raise UserError(
                f"{stage.name}: learners is {learners}, and this machine has {torch.cuda.device_count()} devices: lower it"
            )
        torch.cuda.set_device(here.local)
    torch.set_num_threads(max(1, stage.threads // learners))
    if shards > 1:  # a reference that rounds differently from the policy gives a spurious gradient
        without_compiled("weights are split over processes")
    beats = ranks.beats(stage.name, stage.root)
    world = join(here.rank, here.size, here.meet, device, shards, beats[here.rank] if beats else here.beat)
    ranks.watch(stage.name, beats)
    return world


def optim(optimizer: Optimizer, steps: int, *, final: float = 0.1) -> Optim:
    """The learner's optimizer for this many steps; `final`: the share of the learning rate at the last step."""
    return Optim(**vars(optimizer), steps=steps, final=final)


def without_compiled(why: str) -> None:
    """Makes this process run models without compiled kernels, for the given reason."""
    turn_off(why)
    products.turn_off()


def compiled() -> str:
    """Which parts of the models run compiled on this machine's CPU, or why none does."""
    return f"nothing: {why}" if (why := why_not()) else "layers and decoding of small models on the CPU"


def multiplied() -> str:
    """Which library computes large float32 products on this machine's CPU."""
    return ", ".join(f"{kind} {way}" for kind, way in products.chosen().items())


class Curve:
    """Metrics of every step into curve.csv, and every `every` steps to the tracker and the progress bar.

    Times and memory are no result: they go to `stage.timings`, so that the same plan gives the same curve.csv, byte for
    byte, resumed or not. `mfu` is the learner's arithmetic as a share of what a large matrix product reaches on
    `device`.
    """

    def __init__(
        self,
        stage: Stage,
        total: int,
        *,
        shown: Sequence[str],
        every: int = 10,
        device: str = "cpu",
        dtype: str = "float32",
    ) -> None:
        self.device, self.dtype = device, getattr(torch, dtype)
        self.stage, self.shown, self.every, self.rows = stage, shown, every, []
        self.bar = stage.progress(total, "steps")

    def add(self, metrics: Mapping[str, float], **tags: Any) -> None:
        step = len(self.rows)
        if "flops_per_second" in metrics:
            metrics = {**metrics, "mfu": metrics["flops_per_second"] / reached(self.device, self.dtype)}
        self.rows.append({"step": step, **tags, **metrics})
        self.bar.update(1, **{k: round(metrics[k], 3) for k in self.shown if k in metrics})
        if step % self.every == 0:
            self.stage.log(metrics, step=step)

    def close(self) -> None:
        """Write curve.csv: one row per step, empty where a step has no such metric."""
        self.bar.close()
        names = dict.fromkeys(k for r in self.rows for k in r)
        times = [k for k in names if k.endswith(MEASURED)]
        self._write(self.stage.out / "curve.csv", [k for k in names if k not in times] or ["step"])
        self._write(self.stage.timings(), ["step", *times])
        self.stage.artifact(self.stage.out / "curve.csv")

    def _write(self, path: Path, names: Sequence[str]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w", encoding="utf-8", newline="") as f:
            writer = csv.DictWriter(f, fieldnames=names, lineterminator="\n", extrasaction="ignore")
            writer.writeheader()
            writer.writerows({k: f"{v:.6g}" if isinstance(v, float) else v for k, v in r.items()} for r in self.rows)

    def restore(self, rows: list[dict[str, Any]]) -> None:
        """Continues after the rows of a run that was killed."""
        self.bar.update(len(rows) - len(self.rows))
        self.rows[:] = rows

    def mean(self, name: str, last: int = 20) -> float:
        """The mean of a metric over the last steps that have it."""
        values = [r[name] for r in self.rows if name in r][-last:]
        return float(np.mean(values)) if values else float("nan")


class Part(Protocol):
    """Anything with a state besides models and optimizers: the state of pieces, counters, cursors."""

    def state(self) -> Any: ...

    def load_state(self, state: Any) -> None: ...


class State:
    """Everything that later steps depend on, as one value: models, optimizers, parts, random number generators, and the
    curve so far."""

    def __init__(self, roles: Mapping[str, Learner], parts: Mapping[str, Part], curve: Curve) -> None:
        self.held: dict[str, Part] = {
            **{f"role {k}": v for k, v in roles.items()},
            **{f"part {k}": v for k, v in parts.items()},
        }
        self.curve = curve

    def values(self) -> dict[str, Any]:
        rng = {"cpu": torch.get_rng_state(), "cuda": torch.cuda.get_rng_state_all()}
        return {"held": {k: v.state() for k, v in self.held.items()}, "rng": rng, "rows": self.curve.rows}

    def restore(self, values: Mapping[str, Any]) -> None:
        for name, part in self.held.items():
            part.load_state(values["held"][name])
        torch.set_rng_state(values["rng"]["cpu"])
        torch.cuda.set_rng_state_all(values["rng"]["cuda"])
        self.curve.restore(values["rows"])


def drive(
    rounds: Sequence[Round],
    roles: Mapping[str, Learner],
    curve: Curve,
    *,
    every: int,
    parts: Mapping[str, Part] | None = None,
    last: bool = True,
) -> None:
    """Play all rounds, from the latest checkpoint in the work folder where there is one; write one every `every` steps,
    and after the last.

    Under Prefect the steps of WATCHED seconds are one task: a task costs some 10 ms, so that is far below 2 %.
    last: whether the end of the last step is worth a checkpoint. Raises UserError for `every` below 1.
    """
    if every < 1:
        raise UserError(f"{curve.stage.name}: checkpoint_every = {every} must be 1 or more")
    steps = _steps(rounds, roles, curve, State(roles, parts or {}, curve), every, last)
    while learner_step(steps):
        pass
    BEAT.rests()


def _steps(
    rounds: Sequence[Round], roles: Mapping[str, Learner], curve: Curve, state: State, every: int, last: bool
) -> Iterator[int]:
    """Runs the remaining steps; yields how many are done."""
    kept = Checkpoints(curve.stage.work / "checkpoints" / rounds[0].name)
    world = next((learner.world for learner in roles.values()), ONE)
    done, total = 0, sum(r.steps for r in rounds)
    # all resume from the step that the first finds: a checkpoint does not depend on the number of processes
    if (sound := world.share(kept.sound() if world.first else None)) is not None:
        done = sound
        state.restore(kept.at(sound, world))
        print(f"{curve.stage.name}: going on after step {done} of {total} ({rounds[0].name})", file=sys.stderr)
    rounds = [replace(r, source=_failing(r.source)) for r in rounds]
    for played, _, metrics in run(rounds, roles, done):
        curve.add(metrics, round=played.name)
        done += 1
        fault("train.step")
        if done % every == 0 and done < total or done == total and last:
            if world.first or world.mesh is not None:  # each process writes its shares
                kept.save(done, state.values(), world)
        yield done


def _failing(source: Source) -> Source:
    """The source, with fault points before and after a step's batches are made."""

    def made(step: int) -> tuple[Iterable[Batch], Mapping[str, float]]:
        fault("train.source")
        batches, metrics = source(step)
        batches = list(batches)
        fault("train.batches")
        return batches, metrics

    return made


@task
def learner_step(steps: Iterator[int]) -> bool:
    """Takes as many steps as fit into WATCHED seconds; returns False if none is left. `steps` is a handle that yields
    how many are done."""
    begin = time.monotonic()
    return any(time.monotonic() - begin >= WATCHED for _ in steps)


def shuffled(n: int, size: int, seed: int) -> Callable[[int], list[int]]:
    """step -> `size` indices below n: a new order for every epoch, each index once per epoch. A function of the step:
    no cursor to keep."""

    @lru_cache(maxsize=2 + size // n)
    def order(epoch: int) -> np.ndarray:
        return np.random.default_rng(seed_for(seed, "epoch", "", "", epoch)).permutation(n)

    return lambda step: [int(order(i // n)[i % n]) for i in range(step * size, (step + 1) * size)]
