"""What a warm start beyond text, and each of its recipes, takes: `make bench-media-minutes`.

Warm starts: CPU seconds of one thread, from nothing, so that other work on the machine does not count; a start that goes on from another
one is measured after that one. Recipes: the seconds of one training run with its measuring, which are those of its recorded protocol
(flows/recipes/evidence) over its runs, two for each seed; they were counted on the wall of whatever machine recorded them, and a warm
start that was not there yet is among them. Where protocols were run one after the other in one process, a side that an earlier one had
run already took no time. Beside them are the training steps of a run. Of a recipe with a second protocol on pixels, that one.

`python -m benchmarks.media_minutes NAME ...` measures these warm starts anew and keeps the other rows; `python -m benchmarks.media_minutes
recipes` measures nothing and reads the evidence of the recipes anew.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from benchmarks.rows import result_row
from tasks.lab import clip_worlds, picture_worlds
from tasks.lab.behaviour import evidence_of
from tasks.models import flow
from training.env.control.modes import modes
from training.env.control.molecules import molecules
from training.env.control.sprites import sprites
from training.env.control.views import views

RESULTS = Path(__file__).parent / "results" / "media-minutes.json"
COMMAND = "make bench-media-minutes"

STARTS: dict[str, Callable[[Path], object]] = {  # in a folder without starts
    "pictures, shared": lambda empty: picture_worlds.seeing(),
    "places, after it": lambda empty: picture_worlds.aiming(),
    "clips, after it": lambda empty: clip_worlds.watching(),
    "sprites": lambda empty: flow.warm(sprites(), empty),
    "views": lambda empty: flow.warm(views(), empty),
    "modes": lambda empty: flow.warm(modes(), empty),
    "molecules": lambda empty: flow.warm(molecules(), empty),
}
RECIPES = {
    "vision": "vtperception-r1 geo-r1 aes-r1-rapo mgpo-grounding rewardmap m2-reasoning srpo-reflection papo-perception",
    "clips": "videoscore2 framemind framethinker rewatch-r1 museg tw-grpo",
    "screens": "gui-cursor gui-shepherd ui-ug ui-s1-semionline arpo-replay",
    "generators": "dynamic-treerpo carve3d counterfactual-t2i-prompts seedance-rlhf",
    "molecules": "paccmann-rl-covid",
    "control": "guide-dag md3qn mac-mlmc t2mir flickerfusion lare words-as-beacons drs-stage-reward robohorizon reprohrl vr-morl-pg",
}


def main(names: Sequence[str] = ()) -> None:
    """names: warm starts that are measured, or "recipes" for none of them; no name: all."""
    if wrong := sorted(set(names) - {*STARTS, "recipes"}):
        raise SystemExit(
            f"there is no warm start {wrong[0]!r}: those known are {', '.join(STARTS)}; `recipes` measures none of them"
        )
    known = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else []
    rows = {r["case"]: r for r in known if names and r["case"].startswith("warm start")}
    for name in names or STARTS:  # a run that is cut off keeps what it has measured
        if name != "recipes":
            rows[f"warm start: {name}"] = of_start(name)
        ordered = [rows[f"warm start: {x}"] for x in STARTS if f"warm start: {x}" in rows]
        RESULTS.write_text(json.dumps([*ordered, *of_recipes()], indent=1) + "\n", encoding="utf-8")


def of_recipes() -> list[dict]:
    """The rows of all recipes, by the evidence that is recorded now."""
    return [row for kind, listed in RECIPES.items() for name in listed.split() for row in of_recipe(name, kind)]


def of_start(name: str) -> dict:
    torch.set_num_threads(1)
    here = Path.cwd()
    with tempfile.TemporaryDirectory() as empty:
        os.chdir(empty)  # a project without starts
        try:
            if name.endswith("after it"):
                picture_worlds.seeing()
            began = time.process_time()
            STARTS[name](Path(empty))
            seconds = time.process_time() - began
        finally:
            os.chdir(here)
    row = result_row(
        f"warm start: {name}",
        "CPU time",
        round(seconds, 1),
        "seconds",
        COMMAND,
        1,
        better="lower",
        device=f"1 thread, {platform.machine()}",
        torch=torch.__version__,
    )
    print(row["case"], row["value"], flush=True)
    return row


def of_recipe(name: str, kind: str) -> list[dict]:
    """The seconds of one run of a recipe's protocol, and its training steps."""
    evidence = evidence_of(name, "on_task") or evidence_of(name)
    assert evidence is not None, name
    protocol = evidence["protocol"]
    runs = 2 * protocol["seeds"]
    took = {
        "one run": (round(evidence["seconds"] / runs, 1), "seconds"),
        "training of a run": (protocol["steps"], "steps"),
    }
    rows = [
        result_row(
            f"{kind}: {name}",
            metric,
            value,
            unit,
            COMMAND,
            runs,
            better="lower",
            device="the machine that recorded it",
        )
        for metric, (value, unit) in took.items()
    ]
    return [{**row, "versions": {}} for row in rows]


if __name__ == "__main__":
    main(sys.argv[1:])
