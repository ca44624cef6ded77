"""Experience: the data path of one reinforcement-learning step, from problems to packed batches.

curriculum -> problems -> play -> groups -> filter (with refill) -> reward shaping -> advantage -> rows -> minibatches
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from synth.types import Problem, Scored, seed_for
from training.pack import count, pack, rollout_rows
from training.rollout.play import Player
from training.types import Batch, Group


@dataclass(kw_only=True)
class Experience:
    """A `Source` of rounds: call it with a step. All that must survive a restart is in `state` (plain values and arrays).

    problems              to draw from; groups of `samples_per_prompt` rollouts of `prompts_per_step` of them make a step
    refill                how often a step may draw again when filters dropped groups (0: train on what is left)
    epochs, minibatches   passes over the step's rollouts, and optimizer steps per pass
    skip_zero             leave rows without credit out of the model's passes: exact where no piece but the surrogate looks at a row
    max_unscorable        largest share of unscorable rollouts in a step before the run stops
    """

    problems: Sequence[Problem]
    player: Player
    advantage: Callable[..., Any]
    curriculum: Callable[..., list[int]]
    filters: Sequence[Callable[..., list[str | None]]] = ()
    rewards: Sequence[Callable[..., Any]] = ()
    prompts_per_step: int = 16
    samples_per_prompt: int = 8
    refill: int = 2
    epochs: int = 1
    minibatches: int = 1
    skip_zero: bool = False
    max_unscorable: float = 0.05
    seed: int = 0
    device: str = "cpu"
    state: dict[str, Any] = field(default_factory=dict)
    groups: list[Group] = field(default_factory=list)  # of the last step, for a look

    def _own(self, piece: Callable[..., Any]) -> dict:
        return self.state.setdefault(getattr(piece, "piece", getattr(piece, "__name__", "piece")), {})

    def __call__(self, step: int) -> tuple[Iterable[Batch], Mapping[str, float]]:
        rng = np.random.default_rng(seed_for(self.seed, "rl", "step", "", step))
        began = time.monotonic()
        kept, played, dropped = self._collect(step, rng)
        seconds = time.monotonic() - began
        self.player.sampler.version += 1
        shaped = [g.rewards for g in kept]
        for piece in self.rewards:
            shaped = piece(kept, shaped, self._own(piece), rng)
        credit = self.advantage(kept, shaped, self._own(self.advantage), rng) if kept else []
        # An unscorable rollout is no evidence: it leaves the step, denominators included.
        credit = [[np.nan if np.isnan(r) else c for r, c in zip(g.rewards, cs, strict=True)] for g, cs in zip(kept, credit, strict=True)]
        self.groups = played
        rollouts = [r for g in played for r in g.rollouts]
        rewards = np.concatenate([g.rewards for g in played])
        unscorable = float(np.isnan(rewards).mean())
        if unscorable > self.max_unscorable:
            first = next(r.score.reason for r in rollouts if not isinstance(r.score, Scored))
            raise RuntimeError(f"{unscorable:.0%} of the rollouts of step {step} could not be scored (limit {self.max_unscorable:.0%}); the first reason: {first}")
        metrics = {
            "reward": float(np.nanmean(rewards)), "reward_max": float(np.mean([np.nanmax(g.rewards) for g in played])), "unscorable": unscorable,
            "solve_none": float(np.mean([np.nanmax(g.rewards) <= 0 for g in played])), "solve_all": float(np.mean([np.nanmin(g.rewards) >= 1 for g in played])),
            "groups": float(len(kept)), "groups_dropped": float(sum(dropped.values())), "tokens": float(sum(r.n_model for r in rollouts)),
            "length": float(np.mean([r.n_model for r in rollouts])), "calls": float(np.mean([r.info.get("calls", 0) for r in rollouts])),
            "truncated": float(np.mean([isinstance(r.score, Scored) and r.score.parts.get("truncated", 0.0) for r in rollouts])), "rollout_seconds": seconds,
        }  # fmt: skip
        return self._batches(kept, credit, rng), metrics

    def _collect(self, step: int, rng: np.random.Generator) -> tuple[list[Group], list[Group], Counter]:
        """Play until `prompts_per_step` groups pass the filters, or the refills are used up."""
        kept: list[Group] = []
        played: list[Group] = []
        dropped: Counter = Counter()
        scores = self._own(self.curriculum).setdefault("scores", {})
        for attempt in range(1 + (self.refill if self.filters else 0)):
            wanted = self.prompts_per_step - len(kept)
            if not wanted:
                break
            chosen = [self.problems[i] for i in self.curriculum(self.problems, self._own(self.curriculum), rng, wanted)]
            groups = self.player.play(chosen, self.samples_per_prompt, self.seed, "rl", step, attempt)
            groups = [Group(id=f"{step}/{attempt}/{g.id}", rollouts=tuple(replace(r, group=f"{step}/{attempt}/{g.id}") for r in g.rollouts)) for g in groups]
            for problem, group in zip(chosen, groups, strict=True):
                if not np.isnan(group.rewards).all():
                    scores.setdefault(problem.id, []).append(float(np.nanmean(group.rewards)))
            played += groups
            verdicts: list[str | None] = [None] * len(groups)
            for piece in self.filters:
                verdicts = [a or b for a, b in zip(verdicts, piece(groups, [g.rewards for g in groups], self._own(piece), rng), strict=True)]
            kept += [g for g, v in zip(groups, verdicts, strict=True) if v is None]
            dropped.update(v for v in verdicts if v is not None)
        return kept, played, dropped

    def _batches(self, groups: list[Group], credit: Any, rng: np.random.Generator) -> Iterable[Batch]:
        rows = rollout_rows(groups, credit)
        if not any(np.any(r.columns["credit"] != 0) for r in rows):
            return  # nothing to learn from this step: every group was equal
        for _ in range(self.epochs):
            order = rng.permutation(len(rows)) if self.minibatches > 1 else np.arange(len(rows))
            for part in np.array_split(order, self.minibatches):
                whole = [rows[i] for i in part]
                some = [r for r in whole if np.any(r.columns["credit"] != 0)] if self.skip_zero else whole
                if some:
                    yield pack(some, device=self.device, totals=count(whole))
