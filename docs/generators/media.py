"""docs/images/media.png and docs/images/worlds.png: what the methods of docs/media.md see, drawn by the code that draws it for them, and
the table of what is done about it, between marks in that page. `make media` writes them; a test asserts that the committed ones are these.
Where a browser is installed it also draws docs/images/pages.png: the screen of media.png before and after each action, as numpy draws it,
as a page, and as the same page at four times the size.

Rows of media.png, from the top: a scene, and what the controls see in its place (noise, white); a clip, frame by frame; a screen
before and after the actions of its answer; four sprites.

Rows of worlds.png: of each world of protocols, the pictures of one conversation in the order in which they are shown.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from synth.pictures import HELD
from synth.scenes import clips, draw, painter, scenes, screens
from synth.types import Problem, Scored
from tasks.core.paths import CODE as ROOT
from tasks.models.drawn_pages import Pages
from training.env import Env
from training.env.control import _drawn, views
from training.env.control.sprites import draw as sprite
from training.env.focus import focus
from training.env.frames import frames
from training.env.look import look
from training.env.perceive import perceive
from training.env.point import point
from training.env.reflect import reflect
from training.env.rewatch import rewatch
from training.env.screen import screen

FILE = ROOT / "docs" / "images" / "media.png"
WORLDS = FILE.with_name("worlds.png")
PAGES = FILE.with_name("pages.png")
PAGE = ROOT / "docs" / "media.md"
SCENE = "Scene of 32: red square 6 at 1 0; blue ring 4 at 3 1; green cross 6 at 0 2; yellow triangle 6 at 2 3"
CLIP = "Clip of 32 in 4 frames: blue ring -, -, 3 3 4, 3 3 4; red square 0 1 6, 1 1 6, -, 2 1 6"
SCREEN = "Screen of 32: red button 1 2; blue field 3 0; cursor 2 3"
ACTIONS = "click 3 0; type c; click 1 2"
SPRITES = (((0, 0, 1, 0), (0, 2)), ((1, 1, 0, 1), (1,)), ((2, 2, 1, 2), (0, 1)), ((2, 3, 2, 1), (0, 1, 2)))
SIDE, GAP = 128, 16  # pixels of a picture as it is shown, and between two
SMALL, MOST = 64, 8  # the same of worlds.png, and pictures in a row of it
BLOCK = re.compile(r"(<!-- worlds -->\n).*?(<!-- /worlds -->)", re.DOTALL)


@dataclass(frozen=True)
class Example:
    """A conversation that scores 1 in a world of protocols. asked: the description of the picture, and the question."""

    env: Env
    asked: tuple[str, str]
    answer: str
    verifier: str
    turns: tuple[str, ...]

    @property
    def problem(self) -> Problem:
        text = "\n".join(self.asked)
        return Problem.make(prompt=text, answer=self.answer, verifier=self.verifier, family="example", split="train")

    def played(self) -> tuple[list[np.ndarray], float]:
        """The pictures that were shown, in order, and the score."""
        state, messages = self.env.start(self.problem, {"draw": draw})
        shown, score = [name for m in messages for name in m.media], None
        for turn in self.turns:
            told, over, score = self.env.step(state, turn)
            shown += [] if over else [name for m in told for name in m.media]
        return [HELD.of(name) for name in shown], score.value if isinstance(score, Scored) else 0.0


RED = ("Scene of 32: red triangle 4 at 1 0; red square 4 at 1 2; blue cross 6 at 3 1", "How many shapes are red?")
SEEN: Mapping[str, Example] = {
    "counts": Example(look(), RED, "2", "exact", ("<answer>2</answer>",)),
    "blurts": Example(
        perceive(),
        RED,
        "2",
        "exact",
        ("<perception>red triangle, red square, blue cross; asked: red</perception><answer>2</answer>",),
    ),
    "ponders": Example(
        reflect(),
        RED,
        "2",
        "exact",
        ("<answer>1</answer><reflection>wrong, look again</reflection><answer>2</answer>",),
    ),
    "rates": Example(
        look(),
        (
            "Scene of 32: yellow cross 6 at 1 0; yellow triangle 4 at 2 1",
            "How warm is the picture, from 1 (no red or yellow shape) to 9 (no other shape)?",
        ),
        "9",
        "rating",
        ("<answer>9</answer>",),
    ),
    "sprawls": Example(
        look(),
        (
            "Scene of 32: yellow cross 4 at 1 0; blue cross 6 at 3 1; green ring 4 at 1 2",
            "Which boxes hold the blue shapes?",
        ),
        "25 9 31 15",
        "boxes",
        ("<answer>25 9 31 15</answer>",),
    ),
    "glances": Example(
        focus(),
        ("Scene of 128: blue ring 6 at 5 2; yellow square 4 at 0 13", "Which shape is yellow?"),
        "square",
        "exact",
        ("<box>0 3</box>", "<answer>square</answer>"),
    ),
    "routed": Example(
        look(),
        (
            "Map of 32: blue 0 1, 0 2, 0 3, 1 3; red 0 0, 0 1, 1 1",
            "How does one get from 0 0 to 0 3?",
        ),
        "0 0 red 0 1; 0 1 blue 0 3",
        "transit",
        ("<answer>0 0 red 0 1; 0 1 blue 0 3</answer>",),
    ),
    "listed": Example(
        look(),
        ("Screen of 32: green button 3 0; red field 0 3; cursor 3 1", "Which elements are shown?"),
        "button 25 1 31 7; field 1 25 7 31",
        "elements",
        ("<answer>button 25 1 31 7; field 1 25 7 31</answer>",),
    ),
    "pointing": Example(
        point(),
        (
            "Screen of 32: yellow button 1 0; blue field 3 2; blue button 1 3; cursor 3 1",
            "Point at the blue button.",
        ),
        "9 25 15 31",
        "boxes",
        ("from 3 1 to 1 3<move>left 2</move>", "from 1 1 to 1 3<move>down 2</move>", "from 1 3 to 1 3<stop/>"),
    ),
    "acting": Example(
        screen(most=4),
        (
            "Screen of 32: red button 3 2; blue field 3 3; cursor 1 3",
            "Write d into the blue field, then press the red button.",
        ),
        "click 3 3; type d; click 3 2",
        "clicks",
        ("<act>click 3 3</act>", "<act>type d</act>", "<act>click 3 2</act>"),
    ),
    "filling": Example(
        screen(most=4),
        ("Screen of 32: red button 3 2; blue field 0 3; cursor 1 3", "Write d into the blue field."),
        "click 0 3; type d",
        "clicks",
        ("<act>click 1 1</act>", "<act>click 0 3</act>", "<act>type d</act>"),
    ),
    "rated": Example(
        look(),
        (
            "Clip of 32 in 8 frames: yellow ring 3 3 6, 2 3 6, -, 2 3 6, -, 2 3 6, 1 3 6, 0 3 6",
            "Caption: a yellow ring moves left. Rate looks, caption and motion.",
        ),
        "3 5 5",
        "scores",
        ("<answer>3 5 5</answer>",),
    ),
    "grounded": Example(
        look(),
        (
            "Clip of 32 in 8 frames: green triangle 1 3 4, 1 3 4, 1 3 4, 1 3 4, 1 3 4, 1 3 4, 1 3 4, 1 3 4; "
            "red cross 3 2 4, 3 2 4, 3 2 4, -, -, -, 3 2 4, -",
            "In which frames is the red cross shown?",
        ),
        "1-3; 7-7",
        "segments",
        ("<think>1-3; 7-7</think><answer>1-3; 7-7</answer>",),
    ),
    "spotted": Example(
        frames(first=3, each=3, most=3),
        (
            "Clip of 32 in 8 frames: blue square -, -, -, -, -, -, 1 3 6, -; "
            "yellow cross 1 1 4, 1 1 4, 1 1 4, 1 1 4, 1 1 4, 1 1 4, 1 1 4, 1 1 6",
            "The yellow cross is larger after the flash. Which colour flashes?",
        ),
        "blue",
        "exact",
        ("<frames>5 7</frames>", "<answer>blue</answer>"),
    ),
    "watched": Example(
        rewatch(),
        ("Clip of 32 in 4 frames: red cross 3 0 4, 3 1 4, 3 2 4, 3 2 4", "Which way does the red cross move?"),
        "down",
        "exact",
        (
            "<observation>frame 1: red cross at 3 0</observation><observation>frame 4: red cross at 3 2</observation>"
            "<answer>down</answer>",
        ),
    ),
}
PROMPT = painter.phrased(painter.honoured("ant")[0], "ant", "cow")
MADE = {  # what generators make, and what is said of it
    "views": ("a table, 5 cells high, from four sides", "minus the distance to the views of what they carve out: 0"),
    "painter": (f"`{PROMPT}`, and the same things in another phrasing", "the ant is the larger one in the first alone"),
}


def row(pictures: Sequence[np.ndarray], side: int = SIDE, most: int = 4) -> np.ndarray:
    """Pictures [S, S, 3] uint8 side by side, each enlarged to `side` or a little less."""
    out = np.full((side + GAP, most * (side + GAP), 3), 170, dtype=np.uint8)  # a white picture must be seen on it
    for i, one in enumerate(pictures):
        less = one[:: max(1, len(one) // side), :: max(1, len(one) // side)]
        large = less.repeat(side // len(less), axis=0).repeat(side // len(less), axis=1)
        at = i * (side + GAP) + GAP // 2
        out[GAP // 2 : GAP // 2 + len(large), at : at + len(large)] = large
    return out


def acted() -> list[screens.Screen]:
    """The screen SCREEN, and after each of ACTIONS."""
    out = [screens.read(SCREEN)]
    for action in ACTIONS.split(";"):
        out.append(screens.after(out[-1], action))
    return out


def picture() -> np.ndarray:
    """[H, W, 3] uint8."""
    (scene,) = scenes.draw(SCENE)
    noise = np.random.default_rng(0).integers(0, 256, scene.shape, dtype=np.uint8)
    before, *_, after = acted()
    sprites = [_drawn.sprite(sprite(*one)) for one in SPRITES]
    rows = [
        [scene, noise, np.full_like(scene, 255)],
        clips.draw(CLIP),
        [screens.pixels(before), screens.pixels(after)],
        sprites,
    ]
    return np.concatenate([row(one) for one in rows])


def pages(drawn: Pages) -> np.ndarray:
    """[H, W, 3] uint8: a row of our own pictures, one of pages, and one of pages at four times the size."""
    shown = acted()
    rows = [[screens.pixels(s) for s in shown], drawn.draw(shown), drawn.draw(shown, SIDE // shown[0].side)]
    return np.concatenate([row(one) for one in rows])


def generators() -> dict[str, list[np.ndarray]]:
    """What is in the rows of MADE."""
    table = views.seen(views.build((views.FORMS.index("table"), 1), np.random.default_rng(0)))
    return {
        "views": _drawn.silhouettes(table * 2.0 - 1),
        "painter": [painter.paint(PROMPT), painter.paint("an ant larger than a cow")],
    }


def worlds() -> np.ndarray:
    """[H, W, 3] uint8: a row for each world of SEEN, and each of MADE."""
    rows = [*(example.played()[0] for example in SEEN.values()), *generators().values()]
    return np.concatenate([row(one, SMALL, MOST) for one in rows])


def told() -> str:
    """Markdown: what is asked and done in each row of `worlds`."""
    lines = ["| row | world | asked, beside the pictures | done |", "| ---: | --- | --- | --- |"]
    for k, (name, e) in enumerate(SEEN.items(), 1):
        done = ", then ".join(f"`{turn}`" for turn in e.turns)
        lines.append(f"| {k} | `{name}` | {e.asked[1]} | {done} |")
    for k, (name, (question, done)) in enumerate(MADE.items(), len(SEEN) + 1):
        lines.append(f"| {k} | `{name}` | {question} | {done} |")
    return "\n".join(lines) + "\n"


def generated(page: str) -> str:
    """The page with its table of worlds written anew."""
    return BLOCK.sub(lambda m: f"{m[1]}{told()}{m[2]}", page)


if __name__ == "__main__":
    Image.fromarray(picture()).save(FILE, optimize=True)
    Image.fromarray(worlds()).save(WORLDS, optimize=True)
    with tempfile.TemporaryDirectory() as empty:
        if (drawn := Pages(Path(empty))).path:
            Image.fromarray(pages(drawn)).save(PAGES, optimize=True)
        drawn.close()
    PAGE.write_text(generated(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    print(
        f"{FILE.relative_to(ROOT)}, {WORLDS.relative_to(ROOT)}, {PAGES.relative_to(ROOT)}, {PAGE.relative_to(ROOT)}: written"
        + ("" if drawn.path else " (no browser: pages.png is as it was)")
    )
