"""docs/images/media.png: what the methods of docs/media.md see, drawn by the code that draws it for them. `make media`
writes it; a test asserts that the committed picture is the drawn one.

Rows, from the top: a scene, and what the controls see in its place (noise, white); a clip, frame by frame; a screen before
and after the actions of its answer; four sprites.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from PIL import Image

from synth.scenes import clips, scenes, screens
from tasks.core.paths import CODE as ROOT
from training.env.control.sprites import draw as sprite

FILE = ROOT / "docs" / "images" / "media.png"
SCENE = "Scene of 32: red square 6 at 1 0; blue ring 4 at 3 1; green cross 6 at 0 2; yellow triangle 6 at 2 3"
CLIP = "Clip of 32 in 4 frames: blue ring -, -, 3 3 4, 3 3 4; red square 0 1 6, 1 1 6, -, 2 1 6"
SCREEN = "Screen of 32: red button 1 2; blue field 3 0; cursor 2 3"
ACTIONS = "click 3 0; type c; click 1 2"
SPRITES = (((0, 0, 1, 0), (0, 2)), ((1, 1, 0, 1), (1,)), ((2, 2, 1, 2), (0, 1)), ((2, 3, 2, 1), (0, 1, 2)))
SIDE, GAP = 128, 16  # pixels of a picture as it is shown, and between two


def row(pictures: Sequence[np.ndarray]) -> np.ndarray:
    """Pictures [S, S, 3] uint8 side by side, each enlarged to SIDE or a little less."""
    out = np.full((SIDE + GAP, 4 * (SIDE + GAP), 3), 170, dtype=np.uint8)  # a white picture must be seen on it
    for i, picture in enumerate(pictures):
        large = picture.repeat(SIDE // len(picture), axis=0).repeat(SIDE // len(picture), axis=1)
        at = i * (SIDE + GAP) + GAP // 2
        out[GAP // 2 : GAP // 2 + len(large), at : at + len(large)] = large
    return out


def picture() -> np.ndarray:
    """[H, W, 3] uint8."""
    (scene,) = scenes.draw(SCENE)
    noise = np.random.default_rng(0).integers(0, 256, scene.shape, dtype=np.uint8)
    before = screens.read(SCREEN)
    after = before
    for action in ACTIONS.split(";"):
        after = screens.after(after, action)
    sprites = [((sprite(*one) + 1) * 127.5).astype(np.uint8) for one in SPRITES]
    rows = [
        [scene, noise, np.full_like(scene, 255)],
        clips.draw(CLIP),
        [screens.pixels(before), screens.pixels(after)],
        sprites,
    ]
    return np.concatenate([row(one) for one in rows])


if __name__ == "__main__":
    Image.fromarray(picture()).save(FILE, optimize=True)
    print(f"{FILE.relative_to(ROOT)}: written")
