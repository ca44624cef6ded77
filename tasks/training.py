"""What the training stages share: device, model, curve of metrics, and rows of demonstrations and pairs."""

from __future__ import annotations

import csv
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from synth.types import Message, PreferencePair, seed_for
from tasks.errors import UserError
from tasks.run import task
from tasks.stage import Stage
from training.learner import Learner
from training.pack import Row
from training.render import Renderer
from training.rounds import Round, run

WATCHED = 10.0  # seconds of steps that make one task


def prepare(stage: Stage, device: str) -> None:
    """Fix what makes a run repeatable: seeds, threads, deterministic kernels. Raises UserError for a device that is not there."""
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise UserError(f"{stage.name}: device is {device!r}, but torch sees no CUDA device: set `profile: cpu`, or see `espalier doctor`")
    torch.manual_seed(seed_for(stage.seed, stage.name) % 2**63)
    torch.set_num_threads(stage.threads)
    torch.use_deterministic_algorithms(device == "cpu")


class Curve:
    """Metrics of every step into curve.csv, and every `every` steps to the tracker and the progress bar."""

    def __init__(self, stage: Stage, total: int, *, shown: Sequence[str], every: int = 10) -> None:
        self.stage, self.shown, self.every, self.rows = stage, shown, every, []
        self.bar = stage.progress(total, "steps")

    def add(self, metrics: Mapping[str, float], **tags: Any) -> None:
        step = len(self.rows)
        self.rows.append({"step": step, **tags, **metrics})
        self.bar.update(1, **{k: round(metrics[k], 3) for k in self.shown if k in metrics})
        if step % self.every == 0:
            self.stage.log(metrics, step=step)

    def close(self) -> None:
        """Write curve.csv: one row per step, empty where a step has no such metric."""
        self.bar.close()
        names = list(dict.fromkeys(k for r in self.rows for k in r))
        with (self.stage.out / "curve.csv").open("w", encoding="utf-8", newline="") as f:
            writer = csv.DictWriter(f, fieldnames=names, lineterminator="\n")
            writer.writeheader()
            writer.writerows({k: f"{v:.6g}" if isinstance(v, float) else v for k, v in r.items()} for r in self.rows)
        self.stage.artifact(self.stage.out / "curve.csv")

    def mean(self, name: str, last: int = 20) -> float:
        """Mean of a metric over the last steps that have it."""
        values = [r[name] for r in self.rows if name in r][-last:]
        return float(np.mean(values)) if values else float("nan")


def drive(rounds: Sequence[Round], roles: Mapping[str, Learner], curve: Curve) -> None:
    """Play all rounds. Under Prefect the steps of WATCHED seconds are one task: a task costs some 10 ms, so that is far below 2 %."""
    steps = run(rounds, roles)
    while learn(steps, curve):
        pass


@task
def learn(steps: Iterator[tuple[Round, Any, Mapping[str, float]]], curve: Curve) -> bool:
    """Take steps for WATCHED seconds; False where none is left."""
    begin = time.monotonic()
    for played, _, metrics in steps:
        curve.add(metrics, round=played.name)
        if time.monotonic() - begin >= WATCHED:
            return True
    return False


def shuffled(n: int, size: int, seed: int) -> Iterator[list[int]]:
    """Endless batches of `size` indices below n: a new order for every epoch, each index once per epoch."""
    epoch, order = 0, []
    while True:
        while len(order) < size:
            order += list(np.random.default_rng(seed_for(seed, "epoch", "", "", epoch)).permutation(n))
            epoch += 1
        batch, order = order[:size], order[size:]
        yield [int(i) for i in batch]


def demonstration_row(renderer: Renderer, messages: Sequence[Message], context_weight: float) -> Row:
    """Loss weight 1 on what the model should say, `context_weight` on what it is told (0: those tokens are not trained on)."""
    ids, said = renderer.demonstration(messages)
    weight = np.where(said, 1.0, context_weight)
    return Row(ids=ids, trainable=weight > 0, columns={"loss_weight": weight})


def pair_rows(renderer: Renderer, pairs: Iterable[PreferencePair], max_tokens: int) -> tuple[list[Row], int]:
    """Rows 2i (chosen) and 2i + 1 (rejected), trainable on the answer alone; and how many pairs were left out as longer than `max_tokens`."""
    rows: list[Row] = []
    long = 0
    for i, pair in enumerate(pairs):
        prompt = prompt_ids(renderer, pair.prompt)
        two = [np.concatenate([prompt, renderer.turn(text)]) for text in (pair.chosen, pair.rejected)]
        if max(map(len, two)) > max_tokens:
            long += 1
            continue
        rows += [Row(ids=ids, trainable=np.arange(len(ids)) >= len(prompt), group=i) for ids in two]
    return rows, long


def prompt_ids(renderer: Renderer, messages: Sequence[Message]) -> np.ndarray:
    """Ids of a conversation up to where the assistant writes next, cut into the same pieces as rollouts and demonstrations are."""
    last = max((i for i, m in enumerate(messages) if m.role == "assistant"), default=-1)
    if last < 0:
        return renderer.prompt(messages)
    head, _ = renderer.demonstration(messages[: last + 1])
    return np.concatenate([head, renderer.observation(messages[last + 1 :])])

