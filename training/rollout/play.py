"""Play problems in their environments: conversations turn by turn, all of a wave in one batch, into scored `Group`s."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from synth.types import Message, Problem, Sampling, Score, Scored, seed_for
from training.env import Env
from training.render import Renderer
from training.rollout.torch_sampler import TorchSampler
from training.types import Group, Rollout, Segment


@dataclass(frozen=True, kw_only=True)
class Player:
    """Everything needed to play.

    envs, tools  by name; a problem names its environment, and the environment the tools it wants
    sampling     of every turn; its `seed` is not read: each rollout has its own
    max_tokens   of a whole conversation, prompt included: one that could grow beyond ends with score 0 (`truncated`)
    wave         conversations in flight
    """

    sampler: TorchSampler
    renderer: Renderer
    envs: Mapping[str, Env]
    tools: Mapping[str, Callable[..., str]] = field(default_factory=dict)
    sampling: Sampling = field(default_factory=Sampling)
    max_tokens: int = 512
    wave: int = 256

    def play(self, problems: Sequence[Problem], samples: int, *seed: Any, openings: Sequence[np.ndarray] = ()) -> list[Group]:
        """`samples` rollouts of each problem; `seed` are the parts that, with problem and place, are hashed into the seed of each.
        openings: per problem, ids that the first turn begins with: given, not sampled, so never trained on.

        Group id = problem id with its place, so that a problem drawn twice makes two groups. Raises LookupError for a problem whose
        environment or tool was not given, and ValueError for a prompt that leaves no room for a turn.
        """
        jobs = [(g, i) for g in range(len(problems)) for i in range(samples)]
        done: list[list[Rollout]] = [[] for _ in problems]
        for lo in range(0, len(jobs), self.wave):
            part = jobs[lo : lo + self.wave]
            seeds = [seed_for(*seed, problems[g].id, g, i) for g, i in part]
            opened = [openings[g] if len(openings) else np.zeros(0, dtype=np.int64) for g, _ in part]
            played = self._wave([problems[g] for g, _ in part], [f"{problems[g].id}/{g}" for g, _ in part], seeds, opened)
            for (g, _), rollout in zip(part, played, strict=True):
                done[g].append(rollout)
        return [Group(id=f"{p.id}/{g}", rollouts=tuple(r)) for g, (p, r) in enumerate(zip(problems, done, strict=True))]

    def _wave(self, problems: list[Problem], groups: list[str], seeds: list[int], opened: list[np.ndarray]) -> list[Rollout]:
        """One rollout per problem, turn by turn, all that are alive in one batch."""
        n = len(problems)
        missing = sorted({p.env for p in problems} - set(self.envs))
        if missing:
            lost = next(p.id for p in problems if p.env == missing[0])
            raise LookupError(f"problem {lost} plays in the environment {missing[0]!r}, which this run was not given")
        envs = [self.envs[p.env] for p in problems]
        states, messages = map(list, zip(*(e.start(p, self.tools) for e, p in zip(envs, problems, strict=True)), strict=True))
        prompts = [np.concatenate([self.renderer.prompt(m), x]) for m, x in zip(messages, opened, strict=True)]
        for problem, ids in zip(problems, prompts, strict=True):
            if len(ids) + self.sampling.max_tokens > self.max_tokens:
                raise ValueError(
                    f"the prompt of problem {problem.id} has {len(ids)} tokens: with {self.sampling.max_tokens} for a turn that is more "
                    f"than max_tokens = {self.max_tokens} of a conversation; raise it or leave the problem out"
                )
        segments: list[list[Segment]] = [[Segment(ids=ids, role="env")] for ids in prompts]
        scores: list[Score | None] = [None] * n
        session = self.sampler.open(prompts, seeds)
        used = [len(p) for p in prompts]
        alive = list(range(n))
        while alive:
            observed: dict[int, np.ndarray] = {}
            for i, segment in zip(alive, session.generate(self.sampling), strict=True):
                text = self.renderer.decode(segment.ids if len(segments[i]) > 1 else np.concatenate([opened[i], segment.ids]))
                segments[i].append(segment)
                messages[i].append(Message(role="assistant", content=text))
                if segment.stop == "length":  # an unfinished turn is never acted on
                    scores[i] = Scored(value=0.0, parts={"truncated": 1.0})
                    continue
                said, over, scores[i] = envs[i].step(states[i], text)
                segments[i][-1] = replace(segment, reward=states[i].pop("step_reward", None))
                messages[i].extend(said)
                if over:
                    continue
                ids = self.renderer.observation(said)
                used[i] += len(segment.ids) + len(ids)
                if used[i] + self.sampling.max_tokens > self.max_tokens:
                    scores[i] = Scored(value=0.0, parts={"truncated": 1.0})
                    continue
                segments[i].append(Segment(ids=ids, role="env"))
                observed[i] = ids
            alive = [i for i in alive if i in observed]
            if alive:
                session.observe(alive, [observed[i] for i in alive])
        return [
            Rollout(
                problem=problems[i],
                group=groups[i],
                segments=tuple(segments[i]),
                score=scores[i],
                text="\n".join(f"[{m.role}] {m.content}" for m in messages[i]),
                info={"calls": states[i].get("calls", 0), "messages": tuple(messages[i])},
            )
            for i in range(n)
        ]
