"""Four views of a small voxel object, made together, that must be views of one thing.

An object fills cells of an 8 x 8 x 8 grid; its views from the front, the right, the back and the left are silhouettes of 8 x 8 pixels,
without perspective. A prompt names a kind (block, stairs, table, tower) and a height (3, 5 or 7 cells): 12 prompts, of which the
stairs of height 3, the block of 5 and the table of 7 are kept for tests; widths, depths and places are free.

A policy that denoises views starts from examples of which a share is mixed: the views from the sides are those of another object of
the same prompt.

The reward is that of Carve3D (Xie et al. 2023, "Carve3D: Improving Multi-view Reconstruction Consistency for Diffusion
Models with RL Finetuning", arXiv 2312.13980) with other means: the object is carved out of the grid by its views, seen again from the
same sides, and compared.

    distance of a view = sum |view - view of the carved object| / area of the bounding box of both
    score = - mean distance over the views      0 exactly if the views are sharp and of one object; -1 if nothing is left of it

`consistent`: 1 if the score is above -0.05. `volume`: share of the grid that the carved object fills. `height`: 1 if it is as high
as was asked for.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from synth.types import seed_for
from training.env.control import Shape, World
from training.env.control._denoising import Schedule, schedule

GIVES = ("score", "consistent", "volume", "height", "calls")
N, VIEWS = 8, 4
FORMS, HEIGHTS = ("block", "stairs", "table", "tower"), (3, 5, 7)
KEPT = {(1, 0), (0, 1), (2, 2)}  # (kind, height index) of tests
PROMPTS = [(f, h) for f in range(len(FORMS)) for h in range(len(HEIGHTS))]
CLOSE = 0.05


def build(prompt: tuple[int, int], rng: np.random.Generator) -> np.ndarray:
    """An object [z, x, y] bool of this kind and height; z is up."""
    form, high = FORMS[prompt[0]], HEIGHTS[prompt[1]]
    wide, deep = (int(k) for k in rng.integers(3, 8, size=2))
    x, y = (int(rng.integers(N - k + 1)) for k in (wide, deep))
    solid = np.zeros((N, N, N), dtype=bool)
    room = solid[:high, x : x + wide, y : y + deep]
    if form == "block":
        room[:] = True
    elif form == "stairs":
        for i in range(wide):
            room[: max(1, round(high * (i + 1) / wide)), i] = True
    elif form == "table":
        room[-1] = True
        room[:, [0, 0, -1, -1], [0, -1, 0, -1]] = True
    else:
        room[0] = True
        room[:, wide // 2, deep // 2] = True
    return solid


def seen(solid: np.ndarray) -> np.ndarray:
    """The views [4, 8, 8] of an object, the top row first: front, right, back, left."""
    front, right = np.any(solid, axis=2)[::-1], np.any(solid, axis=1)[::-1]
    return np.stack([front, right, front[:, ::-1], right[:, ::-1]])


def carved(views: np.ndarray) -> np.ndarray:
    """The largest object [z, x, y] whose views [4, 8, 8] bool are within these."""
    up = views[:, ::-1]
    front, right = up[0] & up[2][:, ::-1], up[1] & up[3][:, ::-1]
    return front[:, :, None] & right[:, None, :]


def compared(sample: np.ndarray) -> tuple[float, np.ndarray]:
    """The score of the views [4, 8, 8] from -1 (empty) to 1 (filled), and the carved object."""
    views = np.clip((sample + 1) / 2, 0, 1)
    solid = carved(views > 0.5)
    if not solid.any():
        return -1.0, solid
    far = []
    for view, again in zip(views, seen(solid), strict=True):
        rows, columns = np.nonzero((view > 0.5) | again)
        area = (np.ptp(rows) + 1) * (np.ptp(columns) + 1)
        far.append(min(float(np.abs(view - again).sum()) / area, 1.0))
    return -float(np.mean(far)), solid


@dataclass(frozen=True, kw_only=True)
class Views:
    schedule: Schedule
    hidden: int
    warm: dict[str, Any]
    test: bool
    shuffled: bool
    network: str = "flow"

    @property
    def shape(self) -> Shape:
        d = VIEWS * N * N
        return Shape(observation=d + len(FORMS) + len(HEIGHTS) + 3, actions=d, continuous=True)

    def asked(self, seed: int) -> tuple[int, int]:
        of = [p for p in PROMPTS if (p in KEPT) == self.test]
        return of[int(np.random.default_rng(seed_for(seed, "views")).integers(len(of)))]

    def prompt(self, seed: int) -> tuple[str, np.ndarray]:
        wanted = self.asked(seed)
        return f"{FORMS[wanted[0]]}, {HEIGHTS[wanted[1]]} high", _one_hot(wanted)

    def examples(self, n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        prompts = [PROMPTS[k] for k in rng.integers(len(PROMPTS), size=n)]
        views = np.empty((n, VIEWS, N, N))
        for i, p in enumerate(prompts):
            views[i] = seen(build(p, rng))
            if rng.random() < self.warm["mixed"]:
                views[i, 1::2] = seen(build(p, rng))[1::2]
                views[i, 2] = seen(build(p, rng))[2]
        return views.reshape(n, -1) * 2 - 1, np.stack([_one_hot(p) for p in prompts])

    def judge(self, samples: np.ndarray, seeds: Sequence[int]) -> list[dict[str, float]]:
        """With `shuffled` view k of a sample is that of the sample k places further on in its group."""
        views = samples.reshape(-1, VIEWS, N, N)
        shown = views
        if self.shuffled:
            shown, group = views.copy(), defaultdict(list)
            for i, seed in enumerate(seeds):
                group[seed].append(i)
            for mine in group.values():
                for k in range(VIEWS):
                    shown[mine, k] = views[np.roll(mine, -k), k]
        out = []
        for each, seed in zip(shown, seeds, strict=True):
            score, solid = compared(each)
            high = solid.any((1, 2)).sum()
            out.append(
                {
                    "score": score,
                    "consistent": float(score > -CLOSE),
                    "volume": float(solid.mean()),
                    "height": float(high == HEIGHTS[self.asked(seed)[1]]),
                }
            )
        return out

    def told(self, sample: np.ndarray) -> str:
        score, solid = compared(sample.reshape(VIEWS, N, N))
        high, wide, deep = (int(solid.any(tuple({0, 1, 2} - {a})).sum()) for a in range(3))
        return f"{high} high, {wide} wide, {deep} deep, consistency {score:.3f}"


def _one_hot(prompt: tuple[int, int]) -> np.ndarray:
    return np.concatenate([np.eye(len(FORMS))[prompt[0]], np.eye(len(HEIGHTS))[prompt[1]]])


def views(
    *,
    prompts: Literal["train", "test"] = "train",
    rewarded: Literal["own", "shuffled"] = "own",
    steps: int = 10,
    noise: float | list = 0.7,
    window: int = 0,
    shift_every: int = 0,
    branch: int = 1,
    mixed: float = 0.3,
    warm_steps: int = 2000,
    hidden: int = 256,
) -> World:
    """prompts: which of them are asked. rewarded: judged by its own views, or by views of several samples of its group (a control).
    steps, noise, window, shift_every, branch: as of control/sprites. mixed: share of examples of the warm start whose views are of several
    objects. warm_steps, hidden: its steps, and the width of the network."""
    if prompts not in ("train", "test") or rewarded not in ("own", "shuffled"):
        raise ValueError(
            f"control/views: prompts is {prompts!r} and rewarded {rewarded!r}: train or test, own or shuffled"
        )
    if not 0 <= mixed <= 1 or warm_steps < 0 or hidden < 1:
        raise ValueError(
            f"control/views: mixed is {mixed}, warm_steps {warm_steps}, hidden {hidden}: a share, and sizes from 0 and from 1"
        )
    return Views(  # type: ignore[return-value] (a world of samples: _denoising.Denoised)
        schedule=schedule("views", steps=steps, window=window, shift_every=shift_every, noise=noise, branch=branch),
        hidden=hidden,
        warm={"steps": warm_steps, "rows": 128, "lr": 2e-3, "mixed": mixed},
        test=prompts == "test",
        shuffled=rewarded == "shuffled",
    )
