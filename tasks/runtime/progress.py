"""Progress on stderr: rich's bar on a terminal, one plain line every few seconds elsewhere (a log, CI); nothing if
ESPALIER_QUIET is set."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator, Sized
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from tasks.core.text import harmless, own

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

T = TypeVar("T")
TERMINAL_EVERY, LOG_EVERY = 0.1, 5.0  # seconds between two drawings


class Progress(Generic[T]):
    """`for x in Progress(rows, "questions")` counts by itself; with a total, call `update(n, loss=1.2)`. `close` draws
    the last state."""

    def __init__(self, work: Iterable[T] | int | None, label: str) -> None:
        self.work = () if isinstance(work, int) or work is None else work
        self.total = work if isinstance(work, int) else len(work) if isinstance(work, Sized) else None
        self.label, self.done, self.shown = label, 0, ""
        self.begin = self.drawn = time.monotonic()
        self.first: tuple[float, int] | None = None  # when something was done first, and how much
        quiet = bool(os.environ.get("ESPALIER_QUIET"))
        self.plain = not quiet and not sys.stderr.isatty()
        self.bar = None if quiet or self.plain else _bar(harmless(label), self.total)

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
        if self.first is None and self.done:
            self.first = time.monotonic(), self.done
        if shown:
            self.shown = "  ".join(f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in shown.items())
        if time.monotonic() - self.drawn >= (TERMINAL_EVERY if self.bar else LOG_EVERY):
            self._draw()

    def counted(self, x: T) -> T:
        """x, counted: for `map`."""
        self.update()
        return x

    def close(self) -> None:
        if self.bar or self.drawn != self.begin:  # work that ends before its first line is not logged
            self._draw()
        if self.bar:
            self.bar.stop()
            self.bar = None

    def _left(self) -> str:
        """By the rate since something was done first: what came before was to get ready, or done by an earlier run."""
        if not (self.total and self.first and self.done > self.first[1]):
            return ""
        begin, before = self.first
        return f", {(self.drawn - begin) / (self.done - before) * (self.total - self.done):.0f} s left"

    def _draw(self) -> None:
        self.drawn = time.monotonic()
        if self.bar:
            self.bar.update(self.bar.task_ids[0], completed=self.done, shown=harmless(self.shown), refresh=True)
        elif self.plain:
            count = f"{self.done}/{self.total}" if self.total else str(self.done)
            values = f"  {self.shown}" if self.shown else ""
            line = f"{self.label}  {count}  {self.drawn - self.begin:.0f} s{self._left()}{values}"
            print(harmless(line), file=own(sys.stderr), flush=True)


def _bar(label: str, total: int | None) -> Bar:
    """A running bar with one task. rich does not take stdout and stderr over (what is printed there must still pass
    `harmless`), and has no thread (a process that is forked while one draws could wait for its lock for ever)."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    bar = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[shown]}", markup=False),
        console=Console(file=own(sys.stderr)),
        auto_refresh=False,
        redirect_stdout=False,
        redirect_stderr=False,
    )
    bar.add_task(label, total=total, shown="")
    bar.start()
    return bar
