"""Pairs that the policy makes while it learns: played, scored, the best against the worst of a prompt."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import cos, radians, sin
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.functional import logsigmoid

from synth.types import Message, Problem, seed_for
from training.learner import score
from training.meta import MetaWeight
from training.pack import Row, pack, rollout_row
from training.rollout.play import Player
from training.types import Batch, Group, Rollout


@dataclass(kw_only=True)
class SampledPairs:
    """A `Source` of rounds, for objectives over pairs: `samples` rollouts of each of `prompts` problems become at most `prompts` units of
    pairs.

    Dong et al. 2024, "RLHF Workflow: From Reward Modeling to Online RLHF" (arXiv 2405.07863): chosen = the rollout with the highest score,
    rejected = the lowest; a prompt whose scores are all equal gives no pair. margin [P], the difference of scores, is a column.

    length_penalty  taken from a score for every token that the model wrote: of two right answers the shorter one is better
    together        pairs of a prompt in a unit: the best two against the worst two (2); a prompt that has not so many gives one pair twice
    angles          degrees; with some, each problem is asked with a direction v = (cos, sin) in a system message, and scored by
                    v . (score, brevity): Wang et al. 2024, "Directional Preference Alignment" (arXiv 2402.18571)
    limit           tokens of an answer at which brevity is 0 (it is 1 - tokens / limit)
    """

    problems: Sequence[Problem]
    player: Player
    prompts: int
    samples: int
    seed: int
    name: str = "sampled"
    together: int = 1
    length_penalty: float = 0.0
    angles: Sequence[float] = ()
    limit: int = 64
    device: str = "cpu"

    def __call__(self, step: int) -> tuple[Iterable[Batch], Mapping[str, float]]:
        rng = np.random.default_rng(seed_for(self.seed, self.name, "step", "", step))
        at = rng.choice(len(self.problems), self.prompts, replace=self.prompts > len(self.problems))
        asked = [self.problems[i] for i in at]
        directions = [(1.0, 0.0)] * len(asked)
        if self.angles:
            directions = [(cos(a), sin(a)) for a in (radians(self.angles[i]) for i in rng.integers(0, len(self.angles), len(asked)))]
            asked = [directed(p, v) for p, v in zip(asked, directions, strict=True)]
        groups = self.player.play(asked, self.samples, self.seed, self.name, step)
        self.player.sampler.version += 1
        rows = [r for i, (g, v) in enumerate(zip(groups, directions, strict=True)) for r in self.unit(g, v, i)]
        means = [float(np.nanmean(g.rewards)) for g in groups if not np.isnan(g.rewards).all()]
        metrics = {"reward": float(np.mean(means)) if means else float("nan"), "pairs": len(rows) / 2}
        return ([pack(rows, device=self.device)] if rows else []), metrics

    def unit(self, group: Group, direction: tuple[float, float], index: int) -> list[Row]:
        """The rows of a group's pairs, or none where its scores are all equal. An unscorable rollout is left out."""
        scored = [(float(x), r) for x, r in zip(group.rewards, group.rollouts, strict=True) if x == x and r.n_model]
        values = [(direction[0] * x + direction[1] * (1 - r.n_model / self.limit) - self.length_penalty * r.n_model, r) for x, r in scored]
        values.sort(key=lambda v: -v[0])  # stable: the first drawn of equals
        if len(values) < 2 or values[0][0] == values[-1][0]:
            return []
        pairs = [(values[0], values[-1])] * self.together
        if self.together == 2 and len(values) >= 4 and values[1][0] > values[-2][0]:
            pairs[1] = (values[1], values[-2])
        return [pair_row(r, index, best[0] - worst[0]) for best, worst in pairs for r in (best[1], worst[1])]


def pair_row(rollout: Rollout, index: int, margin: float) -> Row:
    row = rollout_row(rollout, 0.0, index)
    return Row(ids=row.ids, trainable=row.trainable, group=index, columns={"turn": row.columns["turn"]}, scalars={"margin": margin})


def directed(problem: Problem, v: tuple[float, float]) -> Problem:
    """The problem with a direction, in hundredths, in a system message before it."""
    said = Message(role="system", content=f"right {round(100 * v[0])} short {round(100 * v[1])}")
    return replace(problem, prompt=(said, *problem.prompt))


@dataclass(kw_only=True)
class MetaPairs:
    """A `Source` of offline pairs beside on-policy pairs of the same prompts, for the loss `metaapo`.

    Each step takes units of offline rows, asks the policy and the reference for their preference score l, and weighs them by w = h(l).
    Where a uniform draw exceeds w the prompt is played, and the best against the worst is its on-policy pair; elsewhere the offline pair
    stands in its place. `meta` learns from the two losses of the prompts that were played.

    offline   step -> the units of the step: (chosen row, rejected row, problem or None)
    """

    offline: Callable[[int], Sequence[tuple[Row, Row, Problem | None]]]
    sampled: SampledPairs
    policy: nn.Module
    reference: nn.Module
    meta: MetaWeight
    beta: float = 0.1
    tokens_per_microbatch: int = 16384

    def __call__(self, step: int) -> tuple[Iterable[Batch], Mapping[str, float]]:
        units = self.offline(step)
        device = self.sampled.device
        said = self._score(pack([r for c, j, _ in units for r in (c, j)], device=device))
        weight = self.meta(said)
        draw = np.random.default_rng(seed_for(self.sampled.seed, "meta", "step", "", step)).random(len(units))
        asked = [i for i, (u, d) in enumerate(zip(units, draw, strict=True)) if u[2] is not None and d > float(weight[i])]
        groups = self.sampled.player.play([units[i][2] for i in asked], self.sampled.samples, self.sampled.seed, "meta", step)
        self.sampled.player.sampler.version += 1
        played = {i: rows for i, g in zip(asked, groups, strict=True) if (rows := self.sampled.unit(g, (1.0, 0.0), i))}
        rows = []
        for i, (chosen, rejected, _) in enumerate(units):
            for r in (chosen, rejected, *(played.get(i) or (chosen, rejected))):
                rows.append(replace(r, group=len(rows) // 2, scalars={**r.scalars, "weight": float(weight[i])}))
        batch = pack(rows, device=device)
        learned = 0.0
        if played:
            score = self._score(batch)
            at = torch.tensor(sorted(played))
            learned = self.meta.learn(score[0::2][at], -score[0::2][at], -score[1::2][at])
        metrics = {"meta_weight": float(weight.mean()), "meta_loss": learned, "played": len(asked) / len(units)}
        return [batch], metrics

    def _score(self, batch: Batch) -> torch.Tensor:
        """[P] log sigmoid(beta d) of the pairs, without gradient."""
        gain = [score(m, batch, tokens_per_microbatch=self.tokens_per_microbatch).logp for m in (self.policy, self.reference)]
        sums = batch.row_sum(torch.where(batch.trainable, gain[0] - gain[1], 0.0))
        return logsigmoid(self.beta * (sums[0::2] - sums[1::2])).cpu()

    def state(self) -> dict[str, Any]:
        return self.meta.state()

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.meta.load_state(state)
