"""What the small policy of pixels sees: the mean probability of the right answer to questions of the test split, shown the picture, noise
or plain white. `make bench-seeing`

Its warm start is read from the project's starts, or made (three CPU minutes).
"""

from __future__ import annotations

import json
import math
import platform
from pathlib import Path

import torch

from synth.families.scene_questions import ASKS, scene_questions
from tasks.lab import picture_worlds as worlds
from training.env.look import look
from training.learner.learner import score
from training.learner.pack import Row, pack
from training.model.render import Renderer

RESULTS = Path(__file__).parent / "results" / "seeing.json"
QUESTIONS = 100


def main() -> None:
    model, tokenizer = worlds.seeing()
    renderer, found = Renderer(tokenizer), []
    for kind in ASKS:
        problems = worlds.made(scene_questions, "test", QUESTIONS, asks=(kind,), levels=(1,))
        right = {}
        for shown in ("picture", "noise", "white"):
            talks = [worlds.talk(look(shown=shown), p, worlds.said(p.answer)) for p in problems]  # type: ignore[arg-type]
            batch = pack([Row(ids=ids, trainable=mask) for ids, mask in map(renderer.demonstration, talks)])
            logp = score(model, batch).logp * batch.trainable
            right[shown] = round(sum(map(math.exp, batch.row_sum(logp).tolist())) / len(problems), 3)
        print(kind, right, flush=True)
        found.append(result(kind, right.pop("picture"), right))
    RESULTS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def result(kind: str, picture: float, controls: dict[str, float]) -> dict:
    return {
        "case": f"asked for: {kind}",
        "metric": "probability of the right answer",
        "value": picture,
        "unit": "share",
        "better": "higher",
        "low": None,
        "high": None,
        "n": QUESTIONS,
        "peers": controls,
        "ratio_to_best_peer": None,
        "device": f"1 thread, {platform.machine()}",
        "versions": {"python": platform.python_version(), "torch": torch.__version__},
        "command": "make bench-seeing",
    }


if __name__ == "__main__":
    main()
