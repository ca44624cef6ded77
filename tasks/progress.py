"""A progress line on stderr: redrawn in place on a terminal, one plain line every few seconds elsewhere (a log, CI); nothing
where ESPALIER_QUIET is set."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator, Sized
from typing import Any, Generic, TypeVar

T = TypeVar("T")
TERMINAL_EVERY, LOG_EVERY = 0.1, 5.0  # seconds between two drawings


class Progress(Generic[T]):
    """`for x in Progress(rows, "questions")` counts by itself; with a total, call `update(n, loss=1.2)`. `close` draws the last state."""

    def __init__(self, work: Iterable[T] | int | None, label: str) -> None:
        self.work = () if isinstance(work, int) or work is None else work
        self.total = work if isinstance(work, int) else len(work) if isinstance(work, Sized) else None
        self.label, self.done, self.shown = label, 0, ""
        self.terminal, self.quiet = sys.stderr.isatty(), bool(os.environ.get("ESPALIER_QUIET"))
        self.begin = self.drawn = time.monotonic()

    def __iter__(self) -> Iterator[T]:
        try:
            for x in self.work:
                yield x
                self.update()
        finally:
            self.close()

    def __enter__(self) -> Progress[T]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def update(self, n: int = 1, **shown: Any) -> None:
        """`n` more are done; `shown` are values to print beside the bar."""
        self.done += n
        if shown:
            self.shown = "  ".join(f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in shown.items())
        if time.monotonic() - self.drawn >= (TERMINAL_EVERY if self.terminal else LOG_EVERY):
            self._draw()

    def close(self) -> None:
        if self.terminal or self.drawn != self.begin:  # what was over before its first line stays silent in a log
            self._draw(last=True)

    def _draw(self, last: bool = False) -> None:
        self.drawn = time.monotonic()
        if self.quiet:
            return
        seconds = self.drawn - self.begin
        text = f"{self.label}  {self.done}"
        if self.total:
            share = min(1.0, self.done / self.total)
            left = seconds * (1 - share) / share if share else 0.0
            text = f"{self.label}  {'█' * round(20 * share):░<20}  {self.done}/{self.total}  {seconds:.0f} s" + (
                f", {left:.0f} s left" if left and not last else ""
            )
        text += f"  {self.shown}" if self.shown else ""
        end = "\n" if last or not self.terminal else ""
        print(f"\r\x1b[K{text}" if self.terminal else text, end=end, file=sys.stderr, flush=True)
