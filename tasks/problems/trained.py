"""A trained model as the solver or the proposer of self-play (tasks/problems/selfplay.py): a folder in Hugging Face layout,
or a Hub id."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from synth.selfplay.loop import Solver, View
from synth.types import Problem, Sampling
from synth.verify import extract_answer
from training.env.propose import propose
from training.env.single import single
from training.model.model import load_model
from training.model.render import Renderer
from training.rollout.play import Player
from training.rollout.torch_sampler import TorchSampler


class Played:
    """A `Player` as a solver. It is stateless: the weights do not change here."""

    def __init__(self, player: Player) -> None:
        self.player = player

    def __call__(self, problems: Sequence[Problem], samples: int, *seed: Any) -> list[list[str]]:
        groups = self.player.play(problems, samples, *seed)
        return [[r.info["messages"][-1].content for r in g.rollouts] for g in groups]

    def state(self) -> dict[str, Any]:
        return {}

    def load_state(self, state: dict[str, Any]) -> None:
        pass


def model_solver(folder: str, *, temperature: float = 1.0, max_turn_tokens: int = 48, max_tokens: int = 512) -> Solver:
    """The model of `folder` as the solver."""
    return Played(
        _player(
            folder,
            {"single": single()},
            Sampling(temperature=temperature, max_tokens=max_turn_tokens),
            max_tokens=max_tokens,
        )
    )


def _player(folder: str, envs: dict[str, Any], sampling: Sampling, **limits: Any) -> Player:
    model, tokenizer = load_model(folder, dtype="float32", device="cpu")
    renderer = Renderer(tokenizer)
    return Player(
        sampler=TorchSampler(model, renderer.end_id), renderer=renderer, envs=envs, sampling=sampling, **limits
    )


def context(family: str) -> Problem:
    """The proposer's prompt: a problem of a family, at a level of the proposer's choice."""
    return Problem.make(
        prompt=f"Propose a problem of {family}.",
        answer="",
        verifier="exact",
        env="propose",
        family=f"propose/{family}",
        split="train",
    )


class ModelProposer:
    """The model of `folder` as the proposer: asked for a problem of a family, it writes a spec and chooses the level
    itself. It takes the place of a proposer piece (`piece` and `keywords` name it in the ledger)."""

    def __init__(self, folder: str) -> None:
        self.piece, self.keywords = "model", {"folder": str(folder)}
        self.player = _player(folder, {"propose": propose()}, Sampling(max_tokens=64))

    def __call__(self, view: View, rng: np.random.Generator, n: int) -> list[str]:
        contexts = [context(cell.family) for cell in view.wanted[:n]]
        groups = self.player.play(contexts, 1, int(rng.integers(2**62)))
        return [extract_answer(g.rollouts[0].info["messages"][-1].content) or "" for g in groups]
