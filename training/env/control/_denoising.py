"""Shared by worlds whose steps are those of a denoiser: when a step is noisy, and where a path forks.

A flow runs from noise at t = 1 to a sample at t = 0 in `steps` equal steps. A step of the window is stochastic: it is
an action with a log-prob. The other steps follow the flow and choose nothing. `branch` of at least 2 makes a tree: each
path forks at every step of the window, so that branch ** window samples share their beginnings.

Nothing here knows a network (training/model/flow.py): a world says what is asked, what examples look like, and how good
a sample is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from training.env.control import Shape


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """steps: from noise to sample. window: how many of them are noisy, 0 for all. shift_every: updates after which the
    window moves one step towards the sample, 0 for never. noise: a of the first and of the last noisy step, between
    them linear. branch: how often a path forks at each noisy step."""

    steps: int = 10
    window: int = 0
    shift_every: int = 0
    noise: tuple[float, float] = (0.7, 0.7)
    branch: int = 1

    @property
    def noisy(self) -> int:
        return self.window or self.steps

    @property
    def leaves(self) -> int:
        """Samples of one tree."""
        return self.branch**self.noisy if self.branch > 1 else 1

    def first(self, version: int) -> int:
        """The first noisy step after this many updates."""
        return min(version // self.shift_every if self.shift_every else 0, self.steps - self.noisy)

    def forks(self, k: int, version: int) -> bool:
        """Whether step k is noisy."""
        return 0 <= k - self.first(version) < self.noisy and max(self.noise) > 0

    def at(self, k: int, version: int) -> tuple[float, float, float]:
        """t before step k, its length, and the diffusion sigma_t = a sqrt(t / (1 - t)) of Flow-GRPO (arXiv 2505.05470);
        at t = 1 that of the next step's t, as in its code. 0 outside the window."""
        h = 1 / self.steps
        t = 1 - k * h
        if not self.forks(k, version):
            return t, h, 0.0
        share = (k - self.first(version)) / max(self.noisy - 1, 1)
        a = self.noise[0] + share * (self.noise[1] - self.noise[0])
        return t, h, a * math.sqrt(t / (1 - min(t, 1 - h)))

    def calls(self, version: int) -> int:
        """How often the network is asked for one tree: once for each path that is alive before a step."""
        alive, n = 1, 0
        for k in range(self.steps):
            n += alive
            alive *= self.branch if self.forks(k, version) else 1
        return n


def schedule(
    piece: str, *, steps: int, window: int, shift_every: int, noise: float | Sequence[float], branch: int
) -> Schedule:
    """The schedule of these knobs. Raises ValueError for one that cannot be."""
    ends = (float(noise), float(noise)) if isinstance(noise, int | float) else tuple(map(float, noise))
    where = f"control/{piece}"
    if steps < 1:
        raise ValueError(f"{where}: steps is {steps}: a flow takes 1 step or more")
    if not 0 <= window <= steps:
        raise ValueError(f"{where}: window is {window}: it is a number of the {steps} steps, 0 for all")
    if len(ends) != 2 or any(math.isnan(a) or a < 0 for a in ends) or (max(ends) > 0) != (min(ends) > 0):
        raise ValueError(
            f"{where}: noise is {noise}: one number above 0, or two for the first and last noisy step, or 0"
        )
    if branch < 1 or shift_every < 0:
        raise ValueError(f"{where}: branch is {branch} and shift_every {shift_every}: from 1 and from 0")
    settings = Schedule(steps=steps, window=window, shift_every=shift_every, noise=(ends[0], ends[1]), branch=branch)
    if settings.leaves > 4096:
        raise ValueError(
            f"{where}: a tree of {branch} ** {settings.noisy} samples is too large: lower branch or window"
        )
    return settings


class Denoised(Protocol):
    """A world of samples. A prompt is a seed; a sample is a vector of `shape.actions` numbers near -1 to 1.

    shape.observation counts the sample, the condition, and three numbers: t, length of the step, diffusion."""

    network: str  # "flow"
    schedule: Schedule
    hidden: int  # width of the network
    warm: Mapping[str, Any]  # steps, rows, lr of the warm start, and what else the warm weights depend on

    @property
    def shape(self) -> Shape: ...

    def prompt(self, seed: int) -> tuple[str, np.ndarray]:
        """What a seed asks for, in words and as a condition [c]."""
        ...

    def examples(self, n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Samples [n, d] and conditions [n, c] for the warm start."""
        ...

    def judge(self, samples: np.ndarray, seeds: Sequence[int]) -> list[dict[str, float]]:
        """Parts of the score of each sample [n, d], among them `score`; all samples of one call were made together."""
        ...

    def told(self, sample: np.ndarray) -> str:
        """A sample in words."""
        ...
