"""What the small policies of pixels see, shown the picture, noise, plain white or the picture of another problem. `make bench-seeing`

Questions: the mean probability of the right answer of the shared policy. Worlds: the mean score of the policy that each protocol starts
from, sampled at temperature 1 on problems of the test split, with its 95 % interval over problems. Where the score is as high
without the picture, a policy guesses, and a protocol of that world says nothing of what is seen.

`one answer` is what can be had without looking at all: the score of the one answer that is best on problems of the training split, given to
every problem. It is left out where what is done on the way is scored, and where questions name what the answer has to (routes).

`python -m benchmarks.seeing WORLD ...` measures these worlds alone. The warm starts are read from the project's starts, or made (the shared one in three CPU minutes, that of clips in more, `acting` in two and a half, each other in one).
"""

from __future__ import annotations

import json
import math
import platform
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
from torch import nn

from benchmarks.rows import result_row
from synth.families.scene_questions import ASKS, scene_questions
from synth.pictures import HELD, name_of
from synth.scenes import draw
from synth.types import Message, Problem, Scored, seed_for
from synth.verify import verifier
from tasks.lab import clip_worlds
from tasks.lab import picture_worlds as worlds
from tasks.lab.starts import Start, Talk
from training.env.look import look
from training.learner.learner import score
from training.learner.pack import Row, pack
from training.metrics import half_width
from training.model.render import Renderer

RESULTS = Path(__file__).parent / "results" / "seeing.json"
QUESTIONS = 100
TRIES = 4  # samples of each problem
Drawn = Callable[[Problem], list[np.ndarray]]


def _noise(picture: np.ndarray) -> np.ndarray:
    """Noise of the size of a picture, another for each."""
    rng = np.random.default_rng(seed_for("seeing", name_of(picture)))
    return rng.integers(0, 256, picture.shape, dtype=np.uint8)


# what is shown -> what is made of a picture
BLANKS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "picture": lambda picture: picture,
    "noise": _noise,
    "white": lambda picture: np.full_like(picture, 255),
}


def drawn_as(shown: str) -> Drawn:
    """Draws a problem, and makes of each picture what BLANKS says."""
    return lambda problem: [BLANKS[shown](picture) for picture in draw(problem)]


SHOWN: dict[str, Drawn] = {shown: drawn_as(shown) for shown in BLANKS}
ON_THE_WAY = {"pointing", "acting", "filling", "browsing", "routed"}  # worlds without `one answer`
MOST = 40  # answers that are tried as the one


def another(problems: Sequence[Problem]) -> Drawn:
    """Draws the picture of another one of these problems, of the same number and size of pictures where there is one."""
    alike: dict[Any, list[Problem]] = {}
    for problem in problems:
        alike.setdefault(tuple(x.shape for x in draw(problem)), []).append(problem)

    def drawn(problem: Problem) -> list[np.ndarray]:
        own = draw(problem)
        described = problem.question.partition("\n")[0]
        others = [
            p for p in alike.get(tuple(x.shape for x in own), problems) if p.question.partition("\n")[0] != described
        ]
        return draw(others[seed_for("seeing", "another", problem.question) % len(others)])

    return drawn


def one_answer(known: Sequence[Problem], measured: Sequence[Problem]) -> float:
    """The mean score on the measured problems of the one answer that is best on those that are known."""

    def worth(answer: str, problems: Sequence[Problem]) -> float:
        scores = [verifier(p.verifier)[1](p, answer, **p.args) for p in problems]
        return float(np.mean([s.value for s in scores if isinstance(s, Scored)]))

    common = [answer for answer, _ in Counter(p.answer for p in known).most_common(MOST)]
    return worth(max(common, key=lambda a: worth(a, known)), measured)


def main(names: Sequence[str] = ()) -> None:
    """names: worlds whose rows are made anew, the others stay; none: all rows."""
    if names:
        rows = {r["case"]: r for r in json.loads(RESULTS.read_text(encoding="utf-8"))}
        results = [*(rows | {r["case"]: r for r in map(of_world, names)}).values()]
    else:
        results = [*questions(), *places(), *map(of_world, (*worlds.NAMES, *clip_worlds.WORLDS))]
    RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


def questions() -> list[dict]:
    model, tokenizer = worlds.seeing()
    renderer, results = Renderer(tokenizer), []
    for kind in ASKS:
        problems, known = (
            worlds.made(scene_questions, split, QUESTIONS, asks=(kind,), levels=(1,)) for split in ("test", "train")
        )
        right = {}
        for shown, drawn in {**SHOWN, "another": another(problems)}.items():
            talks = [worlds.talk(look(), p, worlds.said(p.answer), tools={"draw": drawn}) for p in problems]
            right[shown] = probabilities(model, renderer, talks)
        right["one answer"] = [one_answer(known, problems)]
        results.append(result(f"asked for: {kind}", "probability of the right answer", right))
    return results


def places() -> list[dict]:
    """Where something is, asked of the policy that tasks on screens and on large scenes begin from."""
    model, tokenizer = worlds.aiming()
    renderer, by_kind = Renderer(tokenizer), {}
    for talk in worlds.places(Random(0), QUESTIONS, "test"):
        for question, answer in zip(talk[::2], talk[1::2], strict=True):
            text = question.content.removeprefix("<image>")
            what = "cursor" if text == "cursor at?" else "widget" if text.endswith(" at?") else "shape, at a quarter"
            first = Message(role="user", content=f"<image>{text}", media=talk[0].media)
            by_kind.setdefault(what, []).append((first, answer))
    results = []
    for what, talks in by_kind.items():
        right = {}
        for shown in SHOWN:
            pictures = [HELD.add(BLANKS[shown](HELD.of(q.media[0]))) for q, _ in talks]
            seen = [(replace(q, media=(name,)), a) for name, (q, a) in zip(pictures, talks, strict=True)]
            right[shown] = probabilities(model, renderer, seen)
        common = Counter(a.content for _, a in talks).most_common(1)[0][1]
        right["one answer"] = [common / len(talks)]
        results.append(result(f"asked where: {what}", "probability of the right answer", right))
    return results


def probabilities(model: nn.Module, renderer: Renderer, talks: Sequence[Talk]) -> list[float]:
    """The probability of what the model's turns of each conversation say."""
    batch = pack([Row(ids=ids, trainable=mask) for ids, mask in map(renderer.demonstration, talks)])
    return [*map(math.exp, batch.row_sum(score(model, batch).logp * batch.trainable).tolist())]


def blinded(tools: Mapping[str, Any], drawn: Drawn) -> dict[str, Any]:
    """The tools of a player, drawing this in the place of pictures and pages: environments draw with one of the two, and only draw."""
    return {**tools, "draw": drawn, "page": drawn}


def of_world(name: str) -> dict:
    here: Start = worlds.start(name) if name in worlds.NAMES else clip_worlds.seeing(name)
    sizes: Any = here.small["sampling"]
    tools, scores = here.tools, {}
    for shown, drawn in {**SHOWN, "another": another(here.measured)}.items():
        here.tools = tools if shown == "picture" else blinded(tools, drawn)
        player = here.player(**sizes)
        groups = player.play(here.measured, TRIES, seed_for("seeing", name))
        scores[shown] = [
            float(np.mean([r.score.value for r in g.rollouts if isinstance(r.score, Scored)])) for g in groups
        ]
    if name not in ON_THE_WAY:
        scores["one answer"] = [one_answer(here.world.training, here.measured)]
    return result(f"world: {name}", "mean score", scores)


def result(
    case: str,
    metric: str,
    values: dict[str, list[float]],
    own: str = "picture",
    command: str = "make bench-seeing",
) -> dict:
    """values: what is shown -> the value of each problem. own: what the row is about; the others are its peers."""
    mean = {shown: round(float(np.mean(v)), 3) for shown, v in values.items()}
    print(case, mean, flush=True)
    half = float(half_width(np.array(values[own])))
    mine = mean.pop(own)
    return result_row(
        case,
        metric,
        mine,
        "share",
        command,
        len(values[own]),
        low=round(mine - half, 3),
        high=round(mine + half, 3),
        peers=mean,
        device=f"1 thread, {platform.machine()}",
        torch=torch.__version__,
    )


if __name__ == "__main__":
    main(sys.argv[1:])
