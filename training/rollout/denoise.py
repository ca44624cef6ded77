"""Plays worlds of samples: all paths of a call from noise to sample, step by step in one batch, into scored `Group`s.

It stands where `Player` does for text and `ControlPlayer` for actions. A noisy step is a segment of one token with
extras "observation" [1, d + c + 3] and "action" [1, d], the next x; steps that follow the flow leave no segment. Where
the world's schedule forks, a path goes on as `branch` paths, which hold the same segments up to there: the token of a
step is the number of its branch, and the first entry of a row that of its tree, so rows share ids exactly where they
share a path. In a world with `keeps_sample` the first step of a path has the extra "end" [1, d], its sample. Samples of one tree begin with the same noise, trees with different noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from synth.types import Problem, Sampling, Scored, seed_for
from training.env.control._denoising import Denoised
from training.model.flow import FlowPolicy
from training.types import Group, Rollout, Segment


@dataclass(kw_only=True)
class FlowSampler:
    """The policy that denoises, and the version of its weights."""

    model: FlowPolicy
    version: int = 0


@dataclass(frozen=True)
class _Path:
    """The place of one path, who its ancestors were, and its segments so far."""

    group: int
    names: tuple[int, ...]  # of its tree, then of each branch: the seed of its noise
    segments: tuple[Segment, ...]


@dataclass(frozen=True, kw_only=True)
class DenoisingPlayer:
    """Raises ValueError where the samples of a prompt are no whole trees."""

    sampler: FlowSampler
    world: Denoised
    sampling: Sampling = field(default_factory=Sampling)

    def play(self, problems: Sequence[Problem], samples: int, *seed: Any) -> list[Group]:
        """`samples` samples of each problem. The noise of a path depends on its own ancestors alone, so the others do
        not matter."""
        world, plan, version = self.world, self.world.schedule, self.sampler.version
        if samples % plan.leaves:
            raise ValueError(
                f"rl.samples_per_prompt is {samples}, and a tree of the control world has {plan.leaves} samples: make it a multiple of that, "
                "or change branch and window"
            )
        shape = world.shape
        conditions = np.stack([world.prompt(p.args["seed"])[1] for p in problems])
        paths = [
            _Path(g, (i,), (self._beginning(i),)) for g in range(len(problems)) for i in range(samples // plan.leaves)
        ]

        def drawn(path: _Path, k: int) -> np.ndarray:
            rng = np.random.default_rng(seed_for(*seed, problems[path.group].id, path.group, k, *path.names))
            return rng.standard_normal(shape.actions)

        x = np.stack([drawn(p, -1) for p in paths])
        for k in range(plan.steps):
            seen = np.concatenate(
                [x, conditions[[p.group for p in paths]], np.tile(plan.at(k, version), (len(x), 1))], 1
            ).astype(np.float32)
            x, paths = self._step(seen, paths, k, plan.forks(k, version), drawn)
        return self._scored(problems, paths, x, plan.calls(version) / plan.leaves)

    def _beginning(self, tree: int) -> Segment:
        """The first entry of a row, which has no action."""
        shape = self.world.shape
        extras = {"observation": np.zeros((1, shape.observation)), "action": np.zeros((1, shape.actions))}
        return Segment(ids=np.array([tree], dtype=np.int64), role="env", extras=extras)

    @torch.no_grad()
    def _step(
        self, seen: np.ndarray, paths: list[_Path], k: int, noisy: bool, drawn: Any
    ) -> tuple[np.ndarray, list[_Path]]:
        """One call of the network for the paths that are alive; noisy: each chooses, and forks if the world says so."""
        model = self.sampler.model
        out = model(torch.from_numpy(seen).to(next(model.parameters()).device))
        if not noisy:
            return out[:, :-1].cpu().numpy(), paths
        branch = self.world.schedule.branch
        after = [(i, _Path(p.group, (*p.names, b), p.segments)) for i, p in enumerate(paths) for b in range(branch)]
        normal = model.normal(out[[i for i, _ in after]], self.sampling.temperature)
        noise = torch.from_numpy(np.stack([drawn(p, k) for _, p in after])).to(out)
        x = normal.mean + normal.stddev * noise
        logp, entropy = normal.log_prob(x).sum(1).cpu().numpy(), normal.entropy().sum(1).cpu().numpy()
        x = x.cpu().numpy()
        grown = []
        for j, (i, p) in enumerate(after):
            segment = Segment(
                ids=np.array([p.names[-1]], dtype=np.int64),
                role="model",
                logp=logp[j : j + 1],
                entropy=entropy[j : j + 1],
                version=self.sampler.version,
                sampling=self.sampling,
                reward=0.0,
                extras={"observation": seen[i : i + 1], "action": x[j : j + 1]},
            )
            grown.append(_Path(p.group, p.names, (*p.segments, segment)))
        return x, grown

    def _scored(self, problems: Sequence[Problem], paths: list[_Path], x: np.ndarray, calls: float) -> list[Group]:
        world, done = self.world, [[] for _ in problems]
        if getattr(world, "keeps_sample", False):
            paths = [replace(p, segments=_ended(p.segments, end)) for p, end in zip(paths, x, strict=True)]
        parts = world.judge(x.astype(np.float64), [problems[p.group].args["seed"] for p in paths])
        for path, sample, each in zip(paths, x, parts, strict=True):
            problem = problems[path.group]
            shared = {"return": each["score"], "steps": len(path.segments) - 1.0, "unpaid": each["score"], "cut": 0.0}
            done[path.group].append(
                Rollout(
                    problem=problem,
                    group=f"{problem.id}/{path.group}",
                    segments=path.segments,
                    score=Scored(value=each["score"], parts={**each, **shared, "calls": calls}),
                    text=f"{world.prompt(problem.args['seed'])[0]}: {world.told(sample)}",
                    info={"sample": sample},
                )
            )
        return [Group(id=f"{p.id}/{g}", rollouts=tuple(r)) for g, (p, r) in enumerate(zip(problems, done, strict=True))]


def _ended(segments: tuple[Segment, ...], end: np.ndarray) -> tuple[Segment, ...]:
    """The segments, of which the first step says where the path ended."""
    beginning, *steps = segments
    return (
        beginning,
        *(replace(s, extras={**s.extras, "end": end[None]}) if i == 0 else s for i, s in enumerate(steps)),
    )
