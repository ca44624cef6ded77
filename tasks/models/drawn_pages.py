"""Screens as a browser draws them (synth/scenes/pages.py), each page once: pictures are kept in the user's cache under the hash of the
page, so later runs start no browser and need none.

The cache is a file of SQLite for each version of the browser, since pixels differ between versions; without a browser the newest is
read. One page that is to be drawn is drawn with all that one action makes of it, in one picture: a sheet costs little more than a page.
"""

from __future__ import annotations

import io
import os
import sqlite3
import threading
import zlib
from collections.abc import Iterable, Sequence
from contextlib import closing
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from platformdirs import user_cache_path

from synth.pictures import name_of
from synth.scenes import parts
from synth.scenes.pages import COLUMNS, page
from synth.scenes.screens import STATES, Screen, Widget, after, read
from synth.types import Problem, digest
from tasks.core.errors import UserError
from tasks.models.browser import NAMES, Browser, program, version

SHEET = 256  # pages that are drawn at once
NEAR = 32  # actions that a screen may have for what they make of it to be drawn with it
TABLE = "CREATE TABLE IF NOT EXISTS pages (page TEXT PRIMARY KEY, picture TEXT, height INTEGER, width INTEGER, rgb BLOB) WITHOUT ROWID"
INSTALL = f"install Chromium (`apt-get install chromium fonts-dejavu-core`; one of {', '.join(NAMES)} on the PATH)"


def draw(problem: Problem) -> list[np.ndarray]:
    """The screen that a problem describes as a page, [side, side, 3] uint8, in a list. Raises ValueError for a problem that describes
    none, UserError for a page that is not cached where no browser can draw it."""
    shown, _ = parts(problem.question)
    try:
        screen = read(shown.partition("\n")[0])
    except ValueError as e:
        raise ValueError(f"problem {problem.id} is to be drawn by a browser, which draws screens alone: {e}") from None
    return _pages(os.getpid()).draw([screen])


@lru_cache(1)
def _pages(process: int) -> Pages:
    """Those of this process: a forked one starts a browser of its own."""
    return Pages(user_cache_path("espalier"))


class Pages:
    """Pages from a cache in `folder`, those that it lacks by the browser at `path`, which is started when it is first needed. path: ""
    for none."""

    def __init__(self, folder: Path, path: str | None = None) -> None:
        self.folder, self.path = folder, (program() or "") if path is None else path
        self._file: Path | None = None
        self._browser: Browser | None = None
        self._lock = threading.Lock()
        self.known: dict[str, np.ndarray] = {}  # what was asked for, by the hash of the page
        self.drawn = 0  # pages that the browser has drawn

    def draw(self, screens: Sequence[Screen], scale: int = 1) -> list[np.ndarray]:
        """The pictures [scale x side, scale x side, 3] uint8 of screens, in order, read-only. Raises UserError where one is not cached and
        no browser can draw it."""
        with self._lock:
            keys = [key_of(s, scale) for s in screens]
            lacking = {k: s for k, s in zip(keys, screens, strict=True) if k not in self.known}
            if lacking:
                self.known |= self._read(lacking)
            if lacking := {k: s for k, s in lacking.items() if k not in self.known}:
                more = {key_of(s, scale): s for s in _next(*lacking.values())} if len(lacking) == 1 else {}
                for side in sorted({s.side for s in lacking.values()}):
                    pictures = self._draw({k: s for k, s in (lacking | more).items() if s.side == side}, scale)
                    self.known |= {k: x for k, x in pictures.items() if k in lacking}
            return [self.known[k] for k in keys]

    def close(self) -> None:
        """End the browser; it is started again if it is needed."""
        if self._browser is not None:
            self._browser.close()
            self._browser = None

    def _draw(self, screens: dict[str, Screen], scale: int) -> dict[str, np.ndarray]:
        """Draw pages of one side, and keep them on disk."""
        if self._browser is None:
            self._browser = self._started()
        items, out = list(screens.items()), {}
        for lo in range(0, len(items), SHEET):
            some = items[lo : lo + SHEET]
            pictures = sheet(self._browser, [s for _, s in some], scale)
            self.drawn += len(some)
            by_key = {k: x for (k, _), x in zip(some, pictures, strict=True)}
            self._write(by_key)
            out |= by_key
        return out

    def _started(self) -> Browser:
        pillow = "" if find_spec("PIL") else "pip install 'espalier[vision]'"
        if not self.path:
            raise UserError(
                f"a screen is to be drawn by a browser, and neither a browser nor its picture in {self.folder} is here: {INSTALL}"
                + (f" and Pillow (`{pillow}`)" if pillow else "")
                + ", or write `drawn: numpy`"
            )
        if pillow:
            raise UserError(f"the pictures of a browser are read by Pillow: {pillow}")
        browser = Browser(self.path)
        looks = [Screen(8, (Widget("red", kind, 0, 0, state),)) for kind, states in STATES.items() for state in states]
        alike = {name_of(x) for x in sheet(browser, looks, 1)}
        if len(alike) < len(looks):
            browser.close()
            raise UserError(
                f"the browser {self.path} draws {len(looks)} states of buttons and fields in {len(alike)} ways, so letters cannot be told "
                "apart: install a font (`apt-get install fonts-dejavu-core`)"
            )
        return browser

    @property
    def file(self) -> Path | None:
        """Of the version of the browser, or the newest where none is installed; None where that is none."""
        if self._file is None and self.path:
            self._file = self.folder / f"pages-{version(self.path)}.sqlite"
        elif self._file is None:
            files = self.folder.glob("pages-*.sqlite")
            self._file = max(files, key=lambda p: (p.stat().st_mtime, p.name), default=None)
        return self._file

    def _read(self, keys: Iterable[str]) -> dict[str, np.ndarray]:
        """Those of these pages that are cached; one that is damaged is as if it were not."""
        file, out = self.file, {}
        if file is None or not file.is_file():
            return {}
        try:
            with closing(sqlite3.connect(file, timeout=60)) as db:
                for key in keys:
                    row = db.execute("SELECT picture, height, width, rgb FROM pages WHERE page = ?", (key,)).fetchone()
                    if row and (pixels := _unpacked(*row)) is not None:
                        out[key] = pixels
        except sqlite3.Error:
            pass
        return out

    def _write(self, pictures: dict[str, np.ndarray]) -> None:
        assert self.file is not None
        rows = [(k, name_of(x), x.shape[0], x.shape[1], zlib.compress(x.tobytes())) for k, x in pictures.items()]
        try:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            with closing(sqlite3.connect(self.file, timeout=60)) as db, db:
                db.execute(TABLE)
                db.executemany("INSERT OR REPLACE INTO pages VALUES (?, ?, ?, ?, ?)", rows)
        except (OSError, sqlite3.Error):
            pass  # a cache that cannot be written costs time at the next run, and nothing else


def key_of(screen: Screen, scale: int) -> str:
    """What a page is cached under: the hash of its HTML and of the size of its picture."""
    return digest("page", page([screen]), scale)


def sheet(browser: Browser, screens: Sequence[Screen], scale: int) -> list[np.ndarray]:
    """The pictures of screens of one side, drawn at once and cut. Raises UserError where the browser gives no such picture."""
    from PIL import Image

    side = screens[0].side
    columns, rows = min(len(screens), COLUMNS), -(-len(screens) // COLUMNS)
    browser.show(page(screens), columns * side, rows * side, scale)
    try:
        with Image.open(io.BytesIO(browser.picture())) as image:
            pixels = np.array(image.convert("RGB"))
    except (OSError, ValueError, SyntaxError) as e:
        pixels = np.zeros((0, 0, 3), np.uint8)
        why = f"what cannot be read ({e})"
    else:
        why = f"a picture of {pixels.shape[1]} x {pixels.shape[0]} pixels"
    if pixels.shape[:2] != (rows * side * scale, columns * side * scale):
        browser.close()
        raise UserError(
            f"the browser {browser.path} drew {why} in place of {columns * side * scale} x {rows * side * scale}: install another version"
        )
    step, out = side * scale, []
    for i in range(len(screens)):
        y, x = i // COLUMNS * step, i % COLUMNS * step
        out.append(np.ascontiguousarray(pixels[y : y + step, x : x + step]))
        out[-1].flags.writeable = False
    return out


def _next(screen: Screen) -> list[Screen]:
    """What one action makes of a screen."""
    cells = [(x, y) for y in range(screen.cells) for x in range(screen.cells)]
    actions = [*(f"click {x} {y}" for x, y in cells), *(f"type {letter}" for letter in "abcd")]
    return [after(screen, a) for a in actions] if len(actions) <= NEAR else []


def _unpacked(picture: str, height: int, width: int, rgb: bytes) -> np.ndarray | None:
    try:
        pixels = np.frombuffer(zlib.decompress(rgb), np.uint8).reshape(height, width, 3)
        return pixels if name_of(pixels) == picture else None
    except (zlib.error, ValueError, TypeError):
        return None
