"""A small world of the whole way from a model that knows nothing: fine-tuning and preferences, with the running sums of
tasks/lab/thought_worlds.py, of two to five digits.

The real stages `sft` and `prefer` run, at the steps that the recipe ships for the first. What is measured is exact, of problems that no
stage has seen, as many of each length: the probability of the right text.
"""

from __future__ import annotations

from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from synth.types import Demonstration, Message, PreferencePair, Problem, Split, seed_for
from tasks.lab.label_worlds import NOTHING
from tasks.lab.thought_worlds import _text, _tokenizer, newborn
from tasks.lab.worlds import Place, Room, _folder, run_stage
from training.learner.learner import score
from training.learner.pack import Row, pack
from training.model.model import load_model, save_model
from training.model.render import Renderer

LENGTHS, EACH, HELD = (3, 4, 5), 600, 30  # digits; problems of each length to learn from, and to be measured on


@lru_cache
def _problems(split: Split) -> tuple[Problem, ...]:
    out = []
    about: dict[str, Any] = {"verifier": "exact", "env": "single", "family": "sums", "split": split}
    for digits in LENGTHS:
        drawn = np.random.default_rng(seed_for(0, "staged", digits)).permutation(10**digits)
        for number in drawn[:EACH] if split == "train" else drawn[EACH : EACH + HELD]:
            question, solution = _text(np.array([int(c) for c in f"{number:0{digits}d}"]))
            out.append(
                Problem.make(
                    prompt=question, answer=solution[-10], lineage={"solution": solution, "root": question}, **about
                )
            )
    return tuple(out)


@lru_cache
def _newborn() -> Path:
    """A folder with a model that knows nothing."""
    folder = _folder() / "newborn"
    save_model(newborn("staged"), _tokenizer(), folder)
    return folder


def _lay(room: Room) -> None:
    rng = np.random.default_rng(seed_for(room.seed, "staged"))
    demonstrations, pairs = [], []
    for p in _problems("train"):
        solution = p.lineage["solution"]
        talk = (*p.prompt, Message(role="assistant", content=solution))
        demonstrations.append(Demonstration.make(problem=p.id, messages=talk, split="train"))
        at = int(rng.integers(len(p.question)))
        wrong = f"{solution[:at]}{(int(solution[at]) + int(rng.integers(1, 10))) % 10}{solution[at + 1 :]}"
        pairs.append(
            PreferencePair.make(prompt=p.prompt, chosen=solution, rejected=wrong, source="sums", split="train")
        )
    room.write("demonstrations", demonstrations=demonstrations)
    room.write("clean", pairs=pairs)
    room.write("questions", problems=list(_problems("train")))
    room.write("kb", passages=NOTHING)


def _tuned(room: Room, name: str, resolved: Any) -> None:
    """The stage sft, from the model that knows nothing."""
    own = {"model": str(_newborn()), "max_length": 64, "envs": ()}
    run_stage(room, name, resolved, lambda knobs: {**knobs, **own})


def _solved(model: nn.Module, problems: tuple[Problem, ...]) -> float:
    """Mean probability of the right text."""
    renderer, rows = Renderer(_tokenizer()), []
    for p in problems:
        start = renderer.prompt(list(p.prompt))
        ids = np.concatenate([start, renderer.turn(p.lineage["solution"])])
        rows.append(Row(ids=ids, trainable=np.arange(len(ids)) >= len(start)))
    batch = pack(rows)
    return float(np.exp(batch.row_sum(score(model, batch).logp).double().numpy()).mean())


def _measure(room: Room) -> dict[str, float]:
    """solved    probability of the right text at the end, mean over unseen problems
    lost      by how much it fell from one stage to the next, at most; 0 where it never did
    head, tail    of those with three digits, with five
    """
    stages = [_newborn()] + [room.root / "artifacts" / s / "model" for s in ("sft", "prefer") if room.recipe != "base"]
    held = _problems("test")
    models = [load_model(folder)[0] for folder in stages]
    after = [_solved(model, held) for model in models]
    at_the_end = partial(_solved, models[-1])
    return {
        "solved": after[-1],
        "lost": max([0.0, *(a - b for a, b in zip(after, after[1:], strict=False))]),
        "head": at_the_end(held[:HELD]),
        "tail": at_the_end(held[-HELD:]),
    }


def staged() -> Place:
    """See the head of this file."""
    return Place(("sft", "prefer"), _lay, _measure, _tuned)


WORLDS = (staged,)
