"""Environments in the process that samples, in its threads, and in processes of their own: when do players help?

`make bench-players`: one batch of 64 conversations of three turns, with a sampler that costs nothing, so that what is measured
is the environments and the way to them. An environment's turn does nothing, sleeps 50 ms (as a tool that waits for
something does), or computes 20 ms in Python. *threads* is `engine.tool_calls` of 32. Ways take turns, `RUNS` times; seconds
are of the clock, medians, without the start of the processes, which is a row of its own.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

HERE = Path(__file__).parents[1]
sys.path[:0] = [str(HERE), str(HERE / "tests" / "support")]

from benchmarks.rows import result_row  # noqa: E402
from synth.types import Message, Problem, Sampling, Scored  # noqa: E402
from training.rollout.players import Players  # noqa: E402

RESULT = HERE / "benchmarks" / "results" / "players.json"
COMMAND = "python -m benchmarks.players"
TURNS, CONVERSATIONS, RUNS = 3, 64, 3
SLEEP, COMPUTE = 0.05, 0.02


class Turn:
    """An environment whose turn does `work`."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self.work = work

    def start(self, problem: Problem, tools: Any) -> tuple[dict, list[Message]]:
        return {"n": 0, "calls": 0}, list(problem.prompt)

    def step(self, state: dict, text: str) -> tuple[list[Message], bool, Scored | None]:
        state["n"] += 1
        self.work()
        over = state["n"] == TURNS
        return [] if over else [Message(role="tool", content="It is so.")], over, Scored(value=1.0) if over else None


def compute() -> None:
    end, n = time.thread_time() + COMPUTE, 0
    while time.thread_time() < end:
        n += 1


def built() -> tuple[dict[str, Turn], dict]:
    works = {"nothing": int, "sleeps 50 ms": partial(time.sleep, SLEEP), "computes 20 ms": compute}
    return {name: Turn(work) for name, work in works.items()}, {}


def played(kind: str, **more: Any) -> float:
    """Seconds of a batch."""
    import tiny

    from training.rollout.play import Player

    source = tiny.Scripted(lambda seen, seed: "a turn")
    problem = Problem.make(
        prompt="?", answer="", verifier="exact", args={"aliases": []}, env=kind, family="f", split="train"
    )
    sampling = Sampling(max_tokens=40)
    player = Player(
        sampler=source, renderer=source.renderer, envs=built()[0], sampling=sampling, max_tokens=400, **more
    )  # type: ignore[arg-type]
    begin = time.perf_counter()
    player.play([problem], CONVERSATIONS, 1)
    return time.perf_counter() - begin


def main() -> None:
    rows, seconds = [], {}
    with Players(built, 2) as two, Players(built, 8) as eight:
        begin = time.perf_counter()
        played("nothing", players=two)
        start = time.perf_counter() - begin
        played("nothing", players=eight)
        ways = {
            "in process": {},
            "threads": {"calls": 32},
            "2 players": {"players": two},
            "8 players": {"players": eight},
        }
        for kind in built()[0]:
            for _ in range(RUNS):
                for way, more in ways.items():
                    seconds.setdefault((kind, way), []).append(played(kind, **more))
    for (kind, way), took in seconds.items():
        print(f"{kind:16} {way:12} {median(took):8.3f} s", flush=True)
        rows.append(entry(f"a turn that {kind}, {way}".replace("that nothing", "that does nothing"), "clock", took))
    rows.append(entry("start of 2 and 8 players with environments that need no import", "clock", [start]))
    RESULT.write_text(json.dumps(rows, indent=1) + "\n")


def entry(case: str, metric: str, took: list[float]) -> dict[str, Any]:
    value, low, high = (round(x, 4) for x in (median(took), min(took), max(took)))
    return result_row(case, metric, value, "s", COMMAND, len(took), better="lower", low=low, high=high)


if __name__ == "__main__":
    main()
