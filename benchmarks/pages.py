"""Screens as pages that a browser draws: pages a second, drawn and from the cache. `make bench-pages`

Random screens of screen_tasks after up to two actions, all different, of 32 pixels; five repeats, each with an empty cache and a browser
that has started; median, lowest and highest. `an episode's way`: one page after the other, each asked for when it is needed; what one action
makes of it is drawn with it. `in sheets`: all at once.
"""

from __future__ import annotations

import json
import resource
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

from benchmarks.rows import result_row
from synth.families.screen_tasks import screen
from synth.scenes.screens import Screen, after, pixels
from tasks.models.drawn_pages import Pages

RESULTS = Path(__file__).parent / "results" / "pages.json"
REPEATS = 5
ALONE, TOGETHER = 50, 2000


def some(rng: Random, n: int) -> list[Screen]:
    """n different screens."""
    by_text: dict[str, Screen] = {}
    while len(by_text) < n:
        one = screen(rng, 5)
        for _ in range(rng.randint(0, 2)):
            w = rng.choice(one.widgets)
            one = after(one, rng.choice([f"click {w.x} {w.y}", f"type {rng.choice('abcd')}"]))
        by_text.setdefault(one.text, one)
    return list(by_text.values())


def timed(work: Callable[..., object], *given: object) -> float:
    began = time.perf_counter()
    work(*given)
    return time.perf_counter() - began


def one_by_one(draw: Callable[[Sequence[Screen]], object], screens: Sequence[Screen]) -> None:
    for one in screens:
        draw([one])


def ours(screens: Sequence[Screen]) -> None:
    for one in screens:
        pixels(one)


def main() -> None:
    rng, seconds, version = Random(0), {}, ""
    for _ in range(REPEATS):
        with tempfile.TemporaryDirectory() as folder:
            one, many, alone = some(rng, 1), some(rng, TOGETHER), some(rng, ALONE)
            pages, later = Pages(Path(folder)), Pages(Path(folder), "")
            took = {
                "start, and the first page": timed(pages.draw, one),
                "drawn, an episode's way": timed(one_by_one, pages.draw, alone),
                "drawn, in sheets": timed(pages.draw, many),
            }
            pages.close()
            took |= {
                "from the cache": timed(one_by_one, later.draw, many),
                "our own, by numpy": timed(ours, many),
            }
            for case, value in took.items():
                seconds.setdefault(case, []).append(value)
            version = pages.file.stem.removeprefix("pages-") if pages.file else ""
    n = {"start, and the first page": 1, "drawn, an episode's way": ALONE}
    rows = []
    for case, times in seconds.items():
        start = case in n and n[case] == 1
        values = [t if start else n.get(case, TOGETHER) / t for t in times]
        rows.append(
            result_row(
                case,
                "time" if start else "pages",
                round(statistics.median(values), 2 if start else 0),
                "seconds" if start else "a second",
                "make bench-pages",
                REPEATS,
                better="lower" if start else "higher",
                low=round(min(values), 2 if start else 0),
                high=round(max(values), 2 if start else 0),
                one_core=True,
                chromium=version,
            )
        )
        print(rows[-1]["case"], rows[-1]["value"], rows[-1]["unit"], rows[-1]["low"], rows[-1]["high"], flush=True)
    RESULTS.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    print(
        f"peak {resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024} MB in the largest process of the browser"
    )


if __name__ == "__main__":
    main()
