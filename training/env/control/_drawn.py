"""What the shipped worlds of samples make, as pictures for people: sprites, views, points of a plane, molecules.

A picture shows a sample and is no part of what is rewarded, so the worlds' own files do not hold it. A world of your own that denoises may
have a function `pictures(sample) -> list of uint8 [H, W, 3]`, of a sample [d].
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from training.env.control import modes, molecules, sprites, views
from training.types import Rollout

LETTERS = (
    "small",
    "oily",
    "aromatic",
    "polar",
    "positive",
    "negative",
)  # kinds of letters of a protein of control/molecules
ATOMS = {"C": (70, 70, 70), "N": (50, 80, 220), "O": (220, 50, 50), "F": (40, 160, 60)}
SIDE = 96  # pixels of the picture of a molecule and of a plane
EDGE = 12  # pixels between a molecule and the edge of its picture
BOND = 18  # pixels of a bond, or fewer where the molecule would not fit


@dataclass(frozen=True)
class Drawing:
    """prompt: the condition in words. text: the sample in words. pictures: of the sample, each uint8 [H, W, 3]."""

    prompt: str
    text: str
    pictures: list[np.ndarray]


def drawer(world: Any) -> Callable[[Rollout], Drawing] | None:
    """How to draw what a rollout of this world made; None for a world that makes nothing to look at."""
    if isinstance(world, molecules.Molecules):
        return lambda rollout: _molecule(world, rollout)
    own: Any = getattr(world, "pictures", None) or PICTURES.get(type(world))
    if own is None or not hasattr(world, "told"):
        return None
    return lambda rollout: Drawing(
        prompt=world.prompt(rollout.problem.args["seed"])[0],
        text=world.told(rollout.info["sample"]),
        pictures=own(rollout.info["sample"]),
    )


def sprite(sample: np.ndarray) -> np.ndarray:
    """A sample [432] or [12, 12, 3], from -1 to 1 (what is beyond is cut), as uint8 [12, 12, 3]."""
    return np.rint((np.clip(sample, -1, 1) + 1) * 127.5).astype(np.uint8).reshape(sprites.SIDE, sprites.SIDE, 3)


def silhouettes(sample: np.ndarray) -> list[np.ndarray]:
    """Four views [256] or [4, 8, 8], from -1 (empty, white) to 1 (filled, dark), as uint8 [8, 8, 3] each."""
    filled = (np.clip(sample, -1, 1).reshape(views.VIEWS, views.N, views.N, 1) + 1) / 2
    return list(np.rint(255 - 215 * filled).astype(np.uint8).repeat(3, 3))


def plane(sample: np.ndarray) -> np.ndarray:
    """A point [2] in red among the eight clusters in grey; the plane from -1.2 to 1.2, up is up."""
    out = np.full((SIDE, SIDE, 3), 255, dtype=np.uint8)
    at = lambda p: (np.clip(p, -1.2, 1.2) * (1, -1) / 2.4 + 0.5) * (SIDE - 1)  # noqa: E731
    for centre in modes.CENTRES:
        _disc(out, at(centre), 6, (200, 200, 200))
    _disc(out, at(np.asarray(sample)), 3, (220, 50, 50))
    return out


def molecule(graph: molecules.Molecule) -> np.ndarray:
    """uint8 [96, 96, 3]: a disc for each atom (C grey, N blue, O red, F green), a line for each bond, two for a double one."""
    out = np.full((SIDE, SIDE, 3), 255, dtype=np.uint8)
    if not graph.atoms:
        return out
    x = _laid_out(len(graph.atoms), [(a, b) for a, b, _ in graph.bonds])
    x -= (x.min(0) + x.max(0)) / 2
    bond = min(BOND, (SIDE - 2 * EDGE) / max(float(np.ptp(x, axis=0).max()), 1e-9))
    x = x * bond + (SIDE - 1) / 2
    for a, b, order in graph.bonds:
        along = x[b] - x[a]
        across = np.array([-along[1], along[0]]) / max(float(np.linalg.norm(along)), 1e-9)
        for side in (0.0,) if order == 1 else (-2.0, 2.0):
            for share in np.linspace(0, 1, 2 * BOND):
                _disc(out, x[a] + share * along + side * across, 0.8, (120, 120, 120))
    for element, at in zip(graph.atoms, x, strict=True):
        _disc(out, at, min(5, bond / 3), ATOMS[element])
    return out


PICTURES: dict[type, Callable[[np.ndarray], list[np.ndarray]]] = {
    sprites.Sprites: lambda x: [sprite(x)],
    views.Views: silhouettes,
    modes.Modes: lambda x: [plane(x)],
}


def _molecule(world: molecules.Molecules, rollout: Rollout) -> Drawing:
    symbols = [int(s.ids[0]) for s in rollout.segments[1:]]
    protein = molecules.protein_of(world.start(rollout.problem.args["seed"])[0].protein)
    return Drawing(
        prompt=f"a molecule for the protein {', '.join(LETTERS[k] for k in protein)}",
        text="".join(molecules.SYMBOLS[k] for k in symbols),
        pictures=[molecule(molecules.made(symbols))],
    )


def _laid_out(n: int, bonds: Sequence[tuple[int, int]], rounds: int = 60) -> np.ndarray:
    """Places [n, 2] of atoms whose distances are near their numbers of bonds: classical scaling, then rounds that lower the stress
    (De Leeuw 1977, "Applications of convex analysis to multidimensional scaling")."""
    far = np.full((n, n), float(n))
    np.fill_diagonal(far, 0)
    for a, b in bonds:
        far[a, b] = far[b, a] = 1
    for k in range(n):
        far = np.minimum(far, far[:, k : k + 1] + far[k])
    centred = np.eye(n) - 1 / n
    values, vectors = np.linalg.eigh(-0.5 * centred @ far**2 @ centred)
    x = np.zeros((n, 2))
    for j, k in enumerate(range(n - 1, max(n - 3, -1), -1)):
        v = vectors[:, k] * np.sqrt(max(values[k], 0.0))
        x[:, j] = v * (1 if v[np.abs(v).argmax()] >= 0 else -1)
    for _ in range(rounds):
        now = np.linalg.norm(x[:, None] - x, axis=-1)
        pull = -np.divide(far, now, out=np.zeros_like(far), where=now > 1e-9)
        np.fill_diagonal(pull, 0)
        np.fill_diagonal(pull, -pull.sum(1))
        x = pull @ x / n
    return x


def _disc(out: np.ndarray, at: np.ndarray, radius: float, colour: Sequence[int]) -> None:
    """A disc at (x, y) in pixels."""
    lo = np.maximum(np.floor(at - radius).astype(int), 0)
    hi = np.minimum(np.ceil(at + radius).astype(int) + 1, SIDE)
    y, x = np.mgrid[lo[1] : hi[1], lo[0] : hi[0]]
    out[lo[1] : hi[1], lo[0] : hi[0]][(x - at[0]) ** 2 + (y - at[1]) ** 2 <= radius**2] = colour
