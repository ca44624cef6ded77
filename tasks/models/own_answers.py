"""The SFT model plays training and validation problems, and its scored turns make preference pairs
(synth/preferences/own_answers.py)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from synth.preferences.own_answers import Episode, own_answers
from synth.types import Message, PreferencePair, Problem, Quarantined, Scored, seed_for
from tasks.models import tools
from tasks.planning.settings import RolloutSampling
from tasks.runtime.stage import Stage
from tasks.storage import tables
from training.model.model import load_model
from training.model.render import Renderer
from training.rollout.play import Player
from training.rollout.torch_sampler import TorchSampler

PART = 32  # problems that are played together, and stored together in case the run is killed


def pairs_of(
    stage: Stage,
    search: Any,
    envs: Sequence[Any],
    *,
    train: int,
    valid: int,
    samples: int,
    most: int,
    sampling: RolloutSampling,
    device: str,
    dtype: str,
) -> list[PreferencePair | Quarantined]:
    """Pairs of `samples` episodes of each of at most `train` and `valid` problems of every family, questions among them;
    at most `most` of a problem. The problems are chosen by their hashes."""
    hosts = tools.hosts(envs)
    problems = [p for p in _problems(stage, train, valid) if p.env in hosts]
    model, tokenizer = load_model(stage.input("sft", "model"), dtype=dtype, device=device)
    renderer = Renderer(tokenizer)
    player = Player(
        sampler=TorchSampler(model, renderer.end_id),
        renderer=renderer,
        envs=hosts,
        tools=tools.bound(search, hosts.values()),
        sampling=sampling.turn(),
        max_tokens=sampling.max_tokens,
    )
    finished, out = stage.finished("own_answers"), []
    for lo in stage.progress(range(0, len(problems), PART), "own answers"):
        part = problems[lo : lo + PART]
        for problem, rows in zip(
            part, finished(str(lo), partial(_played, player, part, samples, stage.seed)), strict=True
        ):
            episodes = [
                Episode(messages=tuple(Message(role=r, content=c) for r, c in turns), score=score, begins=begins)
                for turns, score, begins in rows
            ]
            out += own_answers(problem, episodes, most=most)
    return out


def _problems(stage: Stage, train: int, valid: int) -> list[Problem]:
    sizes, out = {"train": train, "valid": valid}, list[Problem]()
    for name in ("questions", "problems"):
        chosen = tables.least(
            (p for p in tables.each(stage.input(name, "problems.parquet"), Problem) if p.split in sizes),
            lambda cell: sizes[cell[1]],
            lambda p: seed_for(stage.seed, "preferences", "own_answers", p.id),
            lambda p, name=name: (p.family if name == "problems" else "", p.split),
        )
        out += [p for mine in chosen.values() for p in mine]
    return out


def _played(player: Player, problems: Sequence[Problem], samples: int, seed: int) -> list[list[Any]]:
    """Per problem and episode [messages, score or None, messages before the policy spoke], as JSON values. An episode
    begins with the problem alone, as every stored conversation does (training/rollout/opening.py)."""
    groups = player.play(problems, samples, seed, "preferences", "own_answers")
    return [
        [
            [
                [[m.role, m.content] for m in (*problem.prompt, *spoken(r.info["messages"]))],
                r.score.value if isinstance(r.score, Scored) else None,
                len(problem.prompt),
            ]
            for r in group.rollouts
        ]
        for problem, group in zip(problems, groups, strict=True)
    ]


def spoken(messages: Sequence[Message]) -> Sequence[Message]:
    """From the policy's first turn on."""
    return messages[next((i for i, m in enumerate(messages) if m.role == "assistant"), len(messages)) :]
