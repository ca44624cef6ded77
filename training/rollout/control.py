"""Plays worlds of numbers: all episodes of a call step by step in one batch, into scored `Group`s.

It corresponds to `Player` for text. A problem is a seed of the world, so the rollouts of a group begin in the same
state. A step is a segment of one token, the action, with extras "observation" [1, d] (and "action" [1, k] if actions
are numbers; "factors" if the world has some, "expert" if it has one, "rewards" [1, k] if it has several sources, and what the policy notes) and the world's reward as its step reward, so that code that reads turns
reads steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from synth.types import Problem, Sampling, Scored, seed_for
from training.env.control import World
from training.model.control import Actor
from training.types import Group, Rollout, Segment

GIVES = ("return", "steps", "unpaid", "cut")  # parts of every score, in addition to those of the world


def seeds(n: int, *, seed: int, family: str) -> list[Problem]:
    """Problems that stand for the seeds of a world."""
    return [
        Problem.make(
            prompt=f"{family}, start {i}",
            answer="",
            verifier="control",
            args={"seed": seed_for(seed, "rl", "control", family, i)},
            env="control",
            family=family,
            split="train",
        )
        for i in range(n)
    ]


@dataclass(kw_only=True)
class ActionSampler:
    """The policy that acts, and the version of its weights."""

    model: Actor
    version: int = 0


@dataclass
class _Episode:
    """A running episode: its place, its own random stream, the world's state, the current observation, the actions so
    far."""

    group: int
    rng: np.random.Generator
    state: Any
    seen: np.ndarray
    segments: list[Segment]
    parts: dict[str, float] = field(default_factory=dict)
    done: bool = False
    total: float = 0.0


@dataclass(frozen=True, kw_only=True)
class ControlPlayer:
    """max_steps: the most steps of an episode; one that is cut there has the part `cut` 1 and no value for the steps
    that would have followed."""

    sampler: ActionSampler
    world: World
    sampling: Sampling = field(default_factory=Sampling)
    max_steps: int = 1000

    def play(self, problems: Sequence[Problem], samples: int, *seed: Any) -> list[Group]:
        """`samples` episodes of each problem. Each draws from its own random stream, so the other episodes do not
        matter."""
        episodes: list[_Episode] = []
        try:
            for g, problem in enumerate(problems):
                for i in range(samples):
                    state, seen = self.world.start(problem.args["seed"])
                    rng = np.random.default_rng(seed_for(*seed, problem.id, g, i))
                    episodes.append(_Episode(g, rng, state, seen, [self._beginning()]))
            for _ in range(self.max_steps):
                alive = [e for e in episodes if not e.done]
                if not alive:
                    break
                self._act(alive)
        finally:
            for e in episodes:
                self.world.close(e.state)
        names = [f"{p.id}/{g}" for g, p in enumerate(problems)]
        done: list[list[Rollout]] = [[] for _ in problems]
        for e in episodes:
            done[e.group].append(_rollout(e, problems[e.group], names[e.group]))
        return [Group(id=name, rollouts=tuple(r)) for name, r in zip(names, done, strict=True)]

    def _extras(self, seen: np.ndarray, action: np.ndarray | None, did: Any = None) -> dict[str, np.ndarray]:
        """did: the action in the world's form, if there was one."""
        extras = {"observation": seen[None]}
        if action is not None:
            extras["action"] = action[None]
        if (factors := getattr(self.world, "factors", None)) is not None:
            first = factors(seen, 0 if did is None else did)[None]
            extras["factors"] = np.zeros_like(first) if did is None else first
        if (expert := getattr(self.world, "expert", None)) is not None:
            extras["expert"] = np.array([0 if did is None else expert(seen)])
        return extras

    def _beginning(self) -> Segment:
        """The first entry of a row, which has no action."""
        shape = self.world.shape
        action = np.zeros(shape.actions) if shape.continuous else None
        return Segment(
            ids=np.zeros(1, dtype=np.int64), role="env", extras=self._extras(np.zeros(shape.observation), action)
        )

    @torch.no_grad()
    def _act(self, alive: list[_Episode]) -> None:
        """One step of all running episodes."""
        model, temperature = self.sampler.model, self.sampling.temperature
        device = next(model.parameters()).device
        seen = torch.from_numpy(np.stack([e.seen for e in alive])).to(device, torch.float32)
        out = model(seen)
        if not model.continuous:
            log_p = torch.log_softmax(out.float() / temperature, -1)
            entropy = -(log_p.exp() * log_p).sum(1).cpu().numpy()
            table = log_p.double().cpu().numpy()
            drawn = np.array([[e.rng.random()] for e in alive])
            ids = np.minimum((np.exp(table).cumsum(1) < drawn).sum(1), table.shape[1] - 1)
            actions: list[np.ndarray | None] = [None] * len(alive)
            logp = table[np.arange(len(ids)), ids]
        else:
            normal = model.normal(out, temperature)
            noise = torch.from_numpy(np.stack([e.rng.standard_normal(out.shape[1]) for e in alive])).to(out)
            drawn_action = normal.mean + normal.stddev * noise
            entropy = normal.entropy().sum(1).cpu().numpy()
            logp = normal.log_prob(drawn_action).sum(1).cpu().numpy()
            actions = list(drawn_action.double().cpu().numpy())
            ids = np.zeros(len(alive), dtype=np.int64)
        notes = getattr(model, "noted", lambda seen: {})(seen)
        for i, e in enumerate(alive):
            action = actions[i]
            did = int(ids[i]) if action is None else action
            step = self.world.step(e.state, did)
            e.segments.append(
                Segment(
                    ids=ids[i : i + 1].astype(np.int64),
                    role="model",
                    logp=logp[i : i + 1].astype(np.float32),
                    entropy=entropy[i : i + 1].astype(np.float32),
                    stop="end" if step.done else None,
                    version=self.sampler.version,
                    sampling=self.sampling,
                    reward=step.reward,
                    extras={
                        **self._extras(e.seen, action, did),
                        **({} if step.rewards is None else {"rewards": step.rewards[None]}),
                        **{k: x[i : i + 1] for k, x in notes.items()},
                    },
                )
            )
            e.seen, e.done, e.total, e.parts = step.observation, step.done, e.total + step.reward, step.parts


def _rollout(e: _Episode, problem: Problem, group: str) -> Rollout:
    """Its score is the return. The part `unpaid` is the reward that belongs to no step, which is 0: advantages that add
    the rewards of steps to the score use it instead of the score."""
    n = len(e.segments) - 1
    score = Scored(
        value=e.total,
        parts={**e.parts, "return": e.total, "steps": float(n), "unpaid": 0.0, "cut": float(not e.done)},
    )
    text = f"{n} steps, return {e.total:g}: " + (
        " ".join(str(int(s.ids[0])) for s in e.segments[1:]) if "action" not in e.segments[0].extras else "actions"
    )
    return Rollout(problem=problem, group=group, segments=tuple(e.segments), score=score, text=text)
