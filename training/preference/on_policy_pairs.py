"""Pairs that the policy samples while it learns: prompts are played and scored, and the best answer is paired with the
worst."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from synth.types import Problem, seed_for
from training.learner.pack import Row, pack, rollout_row
from training.preference.update_rule import UpdateRule, Worth
from training.rollout.play import Player
from training.types import Batch, Group, Rollout


@dataclass(kw_only=True)
class SampledPairs:
    """A `Source` of rounds, for objectives over pairs: `samples` rollouts of each of `prompts` problems become at most
    `prompts` units of pairs.

    Dong et al. 2024, "RLHF Workflow: From Reward Modeling to Online RLHF" (arXiv 2405.07863): chosen = the rollout with
    the highest score, rejected = the lowest; a prompt whose scores are all equal gives no pair. margin [P], the
    difference of scores, is a column.

    rules           of training/preference/update_rule: they may change the prompts, the rollouts and their value; the
                    first rule that chooses which two rollouts are compared decides
    pairs_per_unit  pairs of a prompt in a unit: the best two against the worst two (2); a prompt with fewer gives one
                    pair twice
    """

    problems: Sequence[Problem]
    player: Player
    prompts: int
    samples: int
    seed: int
    name: str = "sampled"
    pairs_per_unit: int = 1
    rules: Sequence[UpdateRule] = ()
    device: str = "cpu"

    def __call__(self, step: int) -> tuple[Iterable[Batch], Mapping[str, float]]:
        rng = np.random.default_rng(seed_for(self.seed, self.name, "step", "", step))
        at = rng.choice(len(self.problems), self.prompts, replace=self.prompts > len(self.problems))
        drawn, worths = self.asked([self.problems[i] for i in at], rng)
        groups = self.player.play(drawn, self.samples, self.seed, self.name, step)
        for rule in self.rules:
            groups = rule.played(drawn, groups, self.player, (self.seed, self.name, step))
        self.player.sampler.version += 1
        rows = [r for i, (g, w) in enumerate(zip(groups, worths, strict=True)) for r in self.unit(g, i, w)]
        means = [float(np.nanmean(g.rewards)) for g in groups if not np.isnan(g.rewards).all()]
        metrics = {"reward": float(np.mean(means)) if means else float("nan"), "pairs": len(rows) / 2}
        return ([pack(rows, device=self.device)] if rows else []), metrics

    def asked(
        self, problems: Sequence[Problem], rng: np.random.Generator
    ) -> tuple[list[Problem], list[tuple[Worth, ...]]]:
        """The prompts that replace the problems, and for each the function that values its rollouts, after all
        rules."""
        answered: list[tuple[Problem, tuple[Worth, ...]]] = [(p, ()) for p in problems]
        for rule in self.rules:
            changed = rule.asked([p for p, _ in answered], rng, self.player)
            answered = [(p, (*before, worth)) for (_, before), (p, worth) in zip(answered, changed, strict=True)]
        return [p for p, _ in answered], [worths for _, worths in answered]

    def unit(self, group: Group, index: int, worths: Sequence[Worth] = ()) -> list[Row]:
        """The rows of a group's pairs, or none if all its rollouts have the same value. Unscorable rollouts are left
        out."""
        values = []
        for x, rollout in zip(group.rewards, group.rollouts, strict=True):
            if not math.isnan(x) and rollout.n_model:
                value = float(x)
                for worth in worths:
                    value = worth(value, rollout)
                values.append((value, rollout))
        for rule in self.rules:
            if len(values) > 1 and (two := rule.compared([r for _, r in values])) is not None:
                values = [values[i] for i in two]
                if values[0][0] != values[1][0]:
                    rule.learned(*(r for _, r in sorted(values, key=lambda v: -v[0])))
                break
        values.sort(key=lambda v: -v[0])  # stable sort: of equal rollouts the one drawn first
        if len(values) < 2 or values[0][0] == values[-1][0]:
            return []
        pairs = [(values[0], values[-1])] * self.pairs_per_unit
        if self.pairs_per_unit == 2 and len(values) >= 4 and values[1][0] > values[-2][0]:
            pairs[1] = (values[1], values[-2])
        return [pair_row(r, index, best[0] - worst[0]) for best, worst in pairs for r in (best[1], worst[1])]


def pair_row(rollout: Rollout, index: int, margin: float) -> Row:
    row = rollout_row(rollout, 0.0, index)
    return Row(
        ids=row.ids,
        trainable=row.trainable,
        group=index,
        columns={"turn": row.columns["turn"]},
        scalars={"margin": margin},
    )
