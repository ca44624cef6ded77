"""Whether a policy that has learned where things are on screens that numpy drew reads the same screens as pages. `make bench-seeing-pages`

The policy `aiming` of tasks/lab/picture_worlds.py, which has seen no page; 200 screens of the test split. It is asked where the cursor is and
where a widget is (its kinds and colours differ), in one of 16 cells: the mean probability of the right answer, with its 95 % interval over
screens, shown the screen that numpy drew, the page, and noise in its place. The policy is read from the project's starts, or made in some
CPU minutes; pages are read from the cache, or drawn.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch

from benchmarks.seeing import Drawn, drawn_as, probabilities, result
from synth.families.screen_tasks import screen_tasks
from synth.pictures import HELD
from synth.scenes import draw
from synth.scenes.scenes import CELL
from synth.types import Message, Problem
from synth.verify.clicks import read
from tasks.lab.picture_worlds import aiming, made, said
from tasks.models import drawn_pages
from training.model.render import Renderer

RESULTS = Path(__file__).parent / "results" / "seeing-pages.json"
SCREENS = 200
SHOWN: dict[str, Drawn] = {"numpy": draw, "page": drawn_pages.draw, "noise": drawn_as("noise")}


def asked(problem: Problem) -> dict[str, tuple[str, tuple[int, int]]]:
    """What is asked -> its words, and the cell that is right."""
    described, _, request = problem.question.partition("\n")
    cursor, name = read(described).cursor, request.removeprefix("Point at the ").rstrip(".")
    assert cursor is not None
    left, top, *_ = map(int, problem.answer.split())
    return {"cursor": ("cursor", cursor), "widget": (name, (left // CELL, top // CELL))}


def main() -> None:
    torch.set_num_threads(1)
    model, tokenizer = aiming()
    renderer, results = Renderer(tokenizer), []
    problems = made(screen_tasks, "test", SCREENS, asks=("point",), levels=(1,))
    for kind in ("cursor", "widget"):
        right = {}
        for shown, drawn in SHOWN.items():
            talks = []
            for problem in problems:
                what, (x, y) = asked(problem)[kind]
                name = HELD.add(drawn(problem)[0])
                talk = (
                    Message(role="user", content=f"<image>{what} at?", media=(name,)),
                    Message(role="assistant", content=said(f"{x} {y}")),
                )
                talks.append(talk)
            right[shown] = probabilities(model, renderer, talks)
        results.append(
            result(f"where is the {kind}", "probability of the right cell", right, "page", "make bench-seeing-pages")
        )
    RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
