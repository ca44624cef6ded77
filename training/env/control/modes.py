"""Points of a plane in eight clusters on a circle, some of which are liked: the smallest world for a flow and a reward with a gradient.

Eight Gaussians on a circle are the usual toy of generative models (Metz et al. 2017, "Unrolled Generative Adversarial Networks", arXiv
1611.02163). The rewards stand for the reward models of Seedance 1.0 (2025, arXiv 2506.09113), of which each likes something else.

    score(x) = sum_k weight_k exp(-|x - c_k|^2 / (2 width^2)),   c_k the centre of a liked cluster

A sample is a point [2]; there is one prompt, and no condition but a constant. near: whether it is in a cluster, within 5 deviations. `few`: in how
many steps samples are drawn when the policy is measured, 0 for as many as while it learns.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from training.env.control import Shape, World
from training.env.control._denoising import Schedule, schedule

GIVES = ("score", "near", "calls")
RADIUS, DEVIATION = 0.8, 0.05
CENTRES = RADIUS * np.array([(math.cos(k * math.pi / 4), math.sin(k * math.pi / 4)) for k in range(8)])


def composite(x: np.ndarray, liked: Sequence[int], weights: Sequence[float], width: float) -> np.ndarray:
    """x [n, 2] -> score [n]."""
    far = ((x[:, None] - CENTRES[list(liked)]) ** 2).sum(-1)
    return (np.array(weights) * np.exp(-far / (2 * width**2))).sum(1)


@dataclass(frozen=True, kw_only=True)
class Modes:
    schedule: Schedule
    hidden: int
    warm: dict[str, Any]
    liked: tuple[int, ...]
    weights: tuple[float, ...]
    width: float
    network: str = "flow"
    keeps_sample: bool = True  # the player tells the first step of a path where it ends

    @property
    def shape(self) -> Shape:
        return Shape(observation=2 + 1 + 3, actions=2, continuous=True)

    def prompt(self, seed: int) -> tuple[str, np.ndarray]:
        return "a point", np.ones(1)

    def examples(self, n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        return CENTRES[rng.integers(8, size=n)] + DEVIATION * rng.standard_normal((n, 2)), np.ones((n, 1))

    def judge(self, samples: np.ndarray, seeds: Sequence[int]) -> list[dict[str, float]]:
        score = composite(samples, self.liked, self.weights, self.width)
        near = np.linalg.norm(samples[:, None] - CENTRES, axis=-1).min(1) <= 5 * DEVIATION
        return [{"score": float(s), "near": float(n)} for s, n in zip(score, near, strict=True)]

    def told(self, sample: np.ndarray) -> str:
        return f"({sample[0]:.2f}, {sample[1]:.2f})"


def modes(
    *,
    liked: list = [0, 2],  # noqa: B006
    weights: list = [1.0, 1.0],  # noqa: B006
    width: float = 0.4,
    steps: int = 10,
    few: int = 0,
    noise: float | list = 0.1,
    window: int = 0,
    shift_every: int = 0,
    branch: int = 1,
    warm_steps: int = 2000,
    hidden: int = 64,
) -> World:
    """liked: clusters that a reward likes, 0 to 7 against the clock, and `weights` of these rewards. width: of a reward. steps, noise, window,
    shift_every, branch: as of control/sprites. few: steps when measured, 0 for the same. warm_steps, hidden: of the warm start, and of the
    network."""
    if not liked or len(liked) != len(weights) or not all(0 <= int(k) < 8 for k in liked) or not width > 0:
        raise ValueError(
            f"control/modes: liked is {liked}, weights {weights} and width {width}: name clusters from 0 to 7, a weight for each, and a width above 0"
        )
    if warm_steps < 0 or hidden < 1 or few < 0:
        raise ValueError(
            f"control/modes: warm_steps is {warm_steps}, hidden {hidden} and few {few}: sizes are from 0, from 1 and from 0"
        )
    return Modes(  # type: ignore[return-value] (a world of samples: _denoising.Denoised)
        schedule=schedule("modes", steps=steps, window=window, shift_every=shift_every, noise=noise, branch=branch),
        hidden=hidden,
        warm={"steps": warm_steps, "rows": 256, "lr": 3e-3},
        liked=tuple(int(k) for k in liked),
        weights=tuple(float(w) for w in weights),
        width=width,
    )
