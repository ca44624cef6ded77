"""A trained proposer: programs certify its proposals, a solver attempts them, and the solver's success is their score.

`Proposing` takes the place of `Experience`'s `Player`, so that rewards (the bell over the success), advantages and
losses are the same pieces as elsewhere. Certified problems go into a `Pool`, from which the solver's own `Experience`
draws: two sources in one list of rounds. The proposer never states an answer, and only problems that a program has
proved are attempted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from synth.types import Problem, Quarantined, Sampling, Score, Scored, Unscorable, from_row, to_row
from synth.verify import extract_answer
from training.rollout.play import Player
from training.types import Group, Rollout


@dataclass
class Pool:
    """Certified problems, each once, in the order of arrival; `problems` is the same list object for the pool's whole
    life. A part of the checkpoint."""

    problems: list[Problem] = field(default_factory=list)

    def add(self, problem: Problem) -> bool:
        """Add a problem; returns whether it is new."""
        known = any(problem.id == p.id for p in self.problems)
        if not known:
            self.problems.append(problem)
        return not known

    def state(self) -> list[dict[str, Any]]:
        return [to_row(p) for p in self.problems]

    def load_state(self, state: Sequence[dict[str, Any]]) -> None:
        self.problems[:] = [from_row(Problem, row) for row in state]


@dataclass(kw_only=True)
class Proposing:
    """player proposes, solver attempts each certified proposal `attempts` times; certify: the text of a spec ->
    problem, or why not."""

    player: Player
    solver: Player
    certify: Callable[[str], Problem | Quarantined]
    pool: Pool
    attempts: int = 8

    @property
    def sampler(self) -> Any:
        return self.player.sampler

    @property
    def sampling(self) -> Sampling:
        return self.player.sampling

    @property
    def renderer(self) -> Any:
        return self.player.renderer

    def play(self, problems: Sequence[Problem], samples: int, *seed: Any) -> list[Group]:
        """Groups of proposals, scored: the solver's mean success in [0, 1]; 0 with the reason as a part of the score if
        a proposal is not a valid problem (or known already, "duplicate"); Unscorable if none of the attempts could be
        scored."""
        groups = self.player.play(problems, samples, *seed)
        fresh: dict[str, Problem] = {}
        verdicts: list[list[Problem | str]] = []
        for group in groups:
            verdicts.append([])
            for rollout in group.rollouts:
                text = extract_answer(rollout.info["messages"][-1].content)
                item = self.certify(text) if text is not None else None
                if isinstance(item, Problem) and item.id not in fresh and self.pool.add(item):
                    fresh[item.id] = item
                    verdicts[-1].append(item)
                else:
                    verdicts[-1].append(
                        "duplicate"
                        if isinstance(item, Problem)
                        else item.reason
                        if item is not None
                        else "spec_invalid"
                    )
        attempted = list(fresh.values())
        played = self.solver.play(attempted, self.attempts, *seed, "attempts") if attempted else []
        rates = {p.id: _mean(g.rewards) for p, g in zip(attempted, played, strict=True)}
        return [
            Group(id=g.id, rollouts=tuple(_scored(r, v, rates) for r, v in zip(g.rollouts, per_rollout, strict=True)))
            for g, per_rollout in zip(groups, verdicts, strict=True)
        ]


def _mean(rewards: np.ndarray) -> float:
    known = rewards[~np.isnan(rewards)]
    return float(known.mean()) if len(known) else float("nan")


def _scored(rollout: Rollout, verdict: Problem | str, rates: dict[str, float]) -> Rollout:
    score: Score
    if isinstance(verdict, str):
        score = Scored(value=0.0, parts={verdict: 1.0})
    elif (rate := rates[verdict.id]) == rate:
        score = Scored(value=rate, parts={"certified": 1.0})
    else:
        score = Unscorable(reason="no_attempt: none of the attempts could be scored")
    return replace(rollout, score=score)
