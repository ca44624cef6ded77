"""Threads of a process that computes: how many, and how long they wait for each other."""

from __future__ import annotations

import os
import sys

import psutil

SHORT_SPIN = "5000"  # turns of a loop: some microseconds


def settings(threads: int) -> dict[str, str]:
    """What OpenMP reads when torch is loaded, unless the user has set it: the number of threads (results are bitwise the
    same per number), and how long one that waits for another spins before it sleeps.

    By default it spins for as long as a small step takes. On free cores that is fastest; where another program has the
    core that the other thread needs, the whole time is spun away, and a short spin is several times as fast
    (docs/learner.md#a-busy-machine). So this looks for a tenth of a second at what others use; not where torch is loaded,
    for then it is settled.
    """
    out = {"OMP_NUM_THREADS": str(threads)}
    if threads > 1 and "torch" not in sys.modules and not {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"} & set(os.environ):
        free = (psutil.cpu_count() or 1) * (1 - psutil.cpu_percent(interval=0.1) / 100)
        if free < threads - 0.5:
            out["GOMP_SPINCOUNT"] = SHORT_SPIN
    return {name: value for name, value in out.items() if name not in os.environ}


def set_threads(threads: int) -> None:
    """Puts `settings` into the environment of this process, before it loads torch."""
    os.environ.update(settings(threads))
