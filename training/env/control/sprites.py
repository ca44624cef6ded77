"""Pictures of 12 x 12 pixels of a list of attributes: how many of which shape, in which colour, where.

A picture has three by three cells of 4 x 4 pixels. A prompt names a shape (square, cross, ring), a colour (red, green,
blue, yellow), a number (1 to 3) and a column (left, middle, right): 108 prompts, of which every fourth is kept for
tests. Which rows of the column are drawn is free, so a prompt has one to three right pictures.

A policy that denoises pictures starts from examples with a share of wrong labels: one attribute of the prompt is another one.
A picture is judged by code: each cell is the nearest of 12 drawings and nothing, or unknown if none is near.

    score = (shape + colour + place + count) / 4      shape, colour, place: share of the things drawn that have it; count: 0 or 1

Nothing drawn has score 0. `exact`: 1 if all four are 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from typing import Any, Literal

import numpy as np

from synth.types import seed_for
from training.env.control import Shape, World
from training.env.control._denoising import Schedule, schedule

GIVES = ("score", "shape", "colour", "place", "count", "exact", "calls")
SIDE, CELL = 12, 4
SHAPES, COLOURS, PLACES = ("square", "cross", "ring"), ("red", "green", "blue", "yellow"), ("left", "middle", "right")
KINDS = (len(SHAPES), len(COLOURS), 3, len(PLACES))  # the count is 1 + its index
NEAR = 0.45  # root mean squared distance of a cell to a drawing, in units of the pixels' range from -1 to 1
_RGB = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0]], dtype=np.float64)


@cache
def _drawings() -> np.ndarray:
    """[13, 4, 4, 3]: nothing, then shape by shape in each colour, from -1 to 1."""
    r, c = np.mgrid[:CELL, :CELL]
    middle = lambda x: (x > 0) & (x < CELL - 1)  # noqa: E731
    masks = np.stack([np.ones((CELL, CELL), bool), middle(r) | middle(c), ~(middle(r) & middle(c))])
    drawn = masks[:, None, :, :, None] * _RGB[None, :, None, None, :]
    return np.concatenate([np.zeros((1, CELL, CELL, 3)), drawn.reshape(-1, CELL, CELL, 3)]) * 2 - 1


def draw(prompt: Sequence[int], rows: Sequence[int]) -> np.ndarray:
    """The picture [12, 12, 3] of (shape, colour, count index, place) in these rows of the column."""
    picture = -np.ones((SIDE, SIDE, 3))
    shape, colour, _, place = prompt
    for row in rows:
        picture[row * CELL : (row + 1) * CELL, place * CELL : (place + 1) * CELL] = _drawings()[
            1 + shape * len(COLOURS) + colour
        ]
    return picture


def read(pictures: np.ndarray) -> np.ndarray:
    """pictures [n, 432] -> [n, 3, 3]: what is in each cell: 0 nothing, 1 + shape * 4 + colour, or -1 unknown."""
    cells = pictures.reshape(-1, 3, CELL, 3, CELL, 3).transpose(0, 1, 3, 2, 4, 5).reshape(-1, 9, CELL * CELL * 3)
    far = ((cells[:, :, None] - _drawings().reshape(1, 1, len(_drawings()), -1)) ** 2).mean(-1)
    best = far.argmin(-1)
    best[np.sqrt(far.min(-1)) > NEAR] = -1
    return best.reshape(-1, 3, 3)


def measured(cells: np.ndarray, prompt: Sequence[int]) -> dict[str, float]:
    """Parts of the score of what is in the cells [3, 3]."""
    shape, colour, count, place = prompt
    rows, columns = np.nonzero(cells)
    if not len(rows):
        return dict.fromkeys(("score", "shape", "colour", "place", "count", "exact"), 0.0)
    things = cells[rows, columns]
    known = things > 0
    out = {
        "shape": float(np.mean(known & ((things - 1) // len(COLOURS) == shape))),
        "colour": float(np.mean(known & ((things - 1) % len(COLOURS) == colour))),
        "place": float(np.mean(columns == place)),
        "count": float(len(rows) == count + 1),
    }
    return {**out, "score": sum(out.values()) / 4, "exact": float(min(out.values()) == 1.0)}


@dataclass(frozen=True, kw_only=True)
class Sprites:
    schedule: Schedule
    hidden: int
    warm: dict[str, Any]
    test: bool
    other: bool
    network: str = "flow"

    @property
    def shape(self) -> Shape:
        return Shape(observation=SIDE * SIDE * 3 + sum(KINDS) + 3, actions=SIDE * SIDE * 3, continuous=True)

    def asked(self, seed: int, *what: str) -> tuple[int, ...]:
        """(shape, colour, count index, place) of a seed, of the prompts of this split."""
        rng = np.random.default_rng(seed_for(seed, "sprites", *what))
        i = int(rng.integers(27)) * 4
        i += 3 if self.test else int(rng.integers(3))
        # One of four in a row of the grid of prompts, with another colour in each: every attribute is in both splits.
        shape, count, place, colour = np.unravel_index(i, (KINDS[0], KINDS[2], KINDS[3], KINDS[1]))
        return int(shape), int((colour + shape + count + place) % len(COLOURS)), int(count), int(place)

    def prompt(self, seed: int) -> tuple[str, np.ndarray]:
        attributes = self.asked(seed)
        shape, colour, count, place = attributes
        return f"{count + 1} {COLOURS[colour]} {SHAPES[shape]}, {PLACES[place]}", _one_hot(attributes)

    def examples(self, n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        kinds = np.array(KINDS)
        prompts = rng.integers(kinds, size=(n, 4))
        pictures, told = np.empty((n, SIDE * SIDE * 3)), prompts.copy()
        for i, p in enumerate(prompts):
            rows = list(combinations(range(3), int(p[2]) + 1))
            pictures[i] = draw(p, rows[rng.integers(len(rows))]).ravel()
        wrong = np.nonzero(rng.random(n) < self.warm["wrong_labels"])[0]
        which = rng.integers(4, size=len(wrong))
        told[wrong, which] = (told[wrong, which] + 1 + rng.integers(kinds[which] - 1)) % kinds[which]
        return pictures, np.stack([_one_hot(p) for p in told])

    def judge(self, samples: np.ndarray, seeds: Sequence[int]) -> list[dict[str, float]]:
        what = ("other",) if self.other else ()
        return [measured(cells, self.asked(s, *what)) for cells, s in zip(read(samples), seeds, strict=True)]

    def told(self, sample: np.ndarray) -> str:
        names = ["?", "-", *(f"{c} {s}" for s in SHAPES for c in COLOURS)]
        return " / ".join(", ".join(names[k + 1] for k in row) for row in read(sample[None])[0])


def _one_hot(prompt: Sequence[int]) -> np.ndarray:
    return np.concatenate([np.eye(n)[int(k)] for k, n in zip(prompt, KINDS, strict=True)])


def sprites(
    *,
    prompts: Literal["train", "test"] = "train",
    rewarded: Literal["own", "other"] = "own",
    steps: int = 10,
    noise: float | list = 0.7,
    window: int = 0,
    shift_every: int = 0,
    branch: int = 1,
    wrong_labels: float = 0.3,
    warm_steps: int = 2000,
    hidden: int = 256,
) -> World:
    """prompts: which of them are asked. rewarded: judged by its own prompt, or by another one (a control: such a reward teaches nothing).
    steps: from noise to picture. noise: a of each noisy step, or of the first and the last; 0: the flow itself. window: how many steps are
    noisy, 0 for all. shift_every: updates after which the window moves on. branch: how often a path forks at each noisy step.
    wrong_labels: share of examples of the warm start with a wrong attribute. warm_steps, hidden: its steps, and the width of the network."""
    if prompts not in ("train", "test") or rewarded not in ("own", "other"):
        raise ValueError(
            f"control/sprites: prompts is {prompts!r} and rewarded {rewarded!r}: train or test, own or other"
        )
    if not 0 <= wrong_labels <= 1 or warm_steps < 0 or hidden < 1:
        raise ValueError(
            f"control/sprites: wrong_labels is {wrong_labels}, warm_steps {warm_steps}, hidden {hidden}: a share, and sizes from 0 and from 1"
        )
    return Sprites(  # type: ignore[return-value] (a world of samples: _denoising.Denoised)
        schedule=schedule("sprites", steps=steps, window=window, shift_every=shift_every, noise=noise, branch=branch),
        hidden=hidden,
        warm={"steps": warm_steps, "rows": 128, "lr": 2e-3, "wrong_labels": wrong_labels},
        test=prompts == "test",
        other=rewarded == "other",
    )
