"""Experience: the data path of one RL step, from problems to packed batches.

curriculum -> problems -> play -> groups -> group_transforms -> observations -> filter (with refill) -> reward shaping ->
values -> advantage -> rows -> minibatches
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

import numpy as np
from torch import nn

from synth.types import Problem, Scored, seed_for
from training.learner.pack import count, pack, rollout_rows
from training.rl.advantage import AdvantagePiece
from training.rl.critic import Critic
from training.rl.curriculum import CurriculumPiece
from training.rl.filter import FilterPiece
from training.rl.gradient import Gradient
from training.rl.group_transform import GroupTransformPiece
from training.rl.observation import observations
from training.rl.restart import Restart
from training.rl.reward import RewardPiece
from training.rl.rollout_services import RolloutServices
from training.rollout.mismatch import check_versions
from training.rollout.play import Player
from training.types import Advantages, Batch, Group, Rewards, Rollout


@dataclass(kw_only=True)
class Collected:
    """The rollouts of a step before they become batches: the groups that passed the filters, all groups as played,
    reasons, help given, the state of the step's random generator, and the time taken."""

    step: int
    kept: list[Group]
    played: list[Group]
    dropped: Counter
    guided: dict[str, float]
    rng: np.random.Generator
    seconds: float


@dataclass(frozen=True, kw_only=True)
class LearnsBy:
    """What one policy among several learns by, in the place of what `Experience` gives all of them."""

    advantage: AdvantagePiece
    rewards: Sequence[RewardPiece] = ()
    advantage_only: bool = True
    skip_zero: bool = False


@dataclass(kw_only=True)
class Experience:
    """A `Source` of rounds: call it with a step. All that must survive a restart is in `state()` (plain values and
    arrays).

    problems              to draw from; groups of `samples_per_prompt` rollouts of `prompts_per_step` of them make a
                          step
    refill                how often a step may draw again when filters dropped groups (0: train on the remaining
                          groups), or "until_full": until the step is full, or as many problems were drawn for it as
                          exist
    epochs, minibatches   passes over the step's rollouts, and optimizer steps per pass
    advantage_only           a minibatch with zero advantages has no gradient and is skipped: true for an objective
                             without regularisers
    skip_zero             leave rows with zero advantage out of the model's passes: exact if only the policy loss reads
                          a row
    max_unscorable        largest share of unscorable rollouts in a step before the run stops
    judge                 adds a part to the scores of groups: its comparison of each answer with the others
    group_transforms                change groups after they were played: other prompts, demonstrations, replays
    critic                gives each token a value and is trained on the step; during its warm-up the policy gets no
                          batch
    budget                step -> the most tokens of a turn
    compared              called after a step was sampled: checks that sampler and learner hold the same weights and
                          give the same log-probs
    restart               puts the first weights back, for a group transform that NEEDS it
    reference             the model before training, for a group transform that NEEDS it
    observations          of groups (training/rl/observation): what pieces need besides the rollouts
    needs                 of the pieces: "chance" is a column of uniform random numbers
    policies              their names, if there are several. Each learns from its own text, with its own baseline:
                          rewards, advantages and the state of their pieces are per policy, and a group is one role on
                          one prompt
    learns_by             policy -> what it learns by, where it has pieces of its own
    critics               policy -> its critic, as `critic` is that of a single policy: it reads what that policy reads,
                          and learns from its rewards
    gradient              an estimator of the gradient: says how many problems a step plays, and gets the advantages of
                          each source of reward alone
    exchange              the number of steps after which each plays the next one's roles; 0: never
    """

    problems: Sequence[Problem]
    player: Player
    advantage: AdvantagePiece
    curriculum: CurriculumPiece
    filters: Sequence[FilterPiece] = ()
    rewards: Sequence[RewardPiece] = ()
    group_transforms: Sequence[GroupTransformPiece] = ()
    judge: Callable[[Sequence[Group]], list[Group]] | None = None
    critic: Critic | None = None
    critics: Mapping[str, Critic] = field(default_factory=dict)
    compared: Callable[[], Mapping[str, float]] | None = None
    restart: Restart | None = None
    reference: nn.Module | None = None
    budget: Callable[[int], int] | None = None
    observations: Sequence[Callable[..., list[Group]]] = ()
    needs: frozenset[str] = frozenset()
    prompts_per_step: int = 16
    samples_per_prompt: int = 8
    refill: int | Literal["until_full"] = 2
    epochs: int = 1
    minibatches: int = 1
    advantage_only: bool = True
    skip_zero: bool = False
    max_unscorable: float = 0.05
    seed: int = 0
    device: str = "cpu"
    policies: Sequence[str] = ()
    learns_by: Mapping[str, LearnsBy] = field(default_factory=dict)
    exchange: int = 0
    gradient: Gradient | None = None
    pieces: dict[str, dict] = field(default_factory=dict)  # the state of each piece, by its name
    groups: list[Group] = field(default_factory=list)  # of the last step, for inspection

    def __post_init__(self) -> None:
        """A name for each piece's state: the piece's name, with a number if the same piece occurs again in a list."""
        self.names: list[tuple[Callable[..., Any], str]] = []
        own = [p for how in self.learns_by.values() for p in (*how.rewards, how.advantage)]
        for piece in (self.curriculum, *self.group_transforms, *self.filters, *self.rewards, self.advantage, *own):
            name = getattr(piece, "piece", getattr(piece, "__name__", "piece"))
            again = sum(other.partition("#")[0] == name for _, other in self.names)
            self.names.append((piece, f"{name}#{again + 1}" if again else name))

    def _own(self, piece: Callable[..., Any], policy: str = "") -> dict:
        name = next(name for known, name in self.names if known is piece)
        return self.pieces.setdefault(f"{name} of {policy}" if policy else name, {})

    def _how(self, policy: str) -> LearnsBy:
        usual = LearnsBy(
            advantage=self.advantage,
            rewards=self.rewards,
            advantage_only=self.advantage_only,
            skip_zero=self.skip_zero,
        )
        return self.learns_by.get(policy, usual)

    def state(self) -> dict[str, Any]:
        return {"pieces": self.pieces, "version": self.player.sampler.version}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.pieces = dict(state["pieces"])
        self.player.sampler.version = state["version"]

    def __call__(self, step: int) -> tuple[Iterable[Batch], Mapping[str, float]]:
        """Play, score and pack one step. Raises ValueError if too many rollouts have no score, or an advantage is not
        finite."""
        collected = self.collect(step)
        check_versions(collected.kept, self.player.sampler.version)
        seen = self.compared() if self.compared else {}
        self.player.sampler.version += 1
        batches, metrics = self.finish(collected)
        return batches, {**metrics, **seen}

    def collect(self, step: int) -> Collected:
        """Play a step with the weights that the sampler holds."""
        rng = np.random.default_rng(seed_for(self.seed, "rl", "step", "", step))
        began = time.monotonic()
        player = self.player
        if self.budget is not None:
            player = replace(player, sampling=replace(player.sampling, max_tokens=self.budget(step)))
        if self.exchange:
            player = replace(player, plays=exchanged(player.plays, self.policies, step // self.exchange))
        kept, played, dropped, guided = self._collect(player, step, rng)
        return Collected(
            step=step,
            kept=kept,
            played=played,
            dropped=dropped,
            guided=guided,
            rng=rng,
            seconds=time.monotonic() - began,
        )

    def finish(self, collected: Collected) -> tuple[Iterable[Batch], Mapping[str, float]]:
        """Score and pack what was collected. Raises as `__call__` does."""
        step, kept, played, dropped, guided, rng, seconds = (getattr(collected, f.name) for f in fields(collected))
        self.groups = played
        metrics = _metrics(played) | {
            "groups": float(len(kept)),
            "groups_dropped": float(sum(dropped.values())),
            "rollout_seconds": seconds,
            **guided,
        }
        if self.judge:
            metrics |= _judged(played)
        if metrics["unscorable"] > self.max_unscorable:
            first = next(r.score.reason for g in played for r in g.rollouts if not isinstance(r.score, Scored))
            raise ValueError(
                f"{metrics['unscorable']:.0%} of the rollouts of step {step} could not be scored, more than max_unscorable = "
                f"{self.max_unscorable:.0%}; the first reason: {first}: fix the verifier or tool that gave it"
            )
        if not kept:
            return [], metrics
        self._own(self.curriculum)["latest"] = {}  # the advantages per family, for curricula that need them
        if self.policies:
            return self._each(step, kept, metrics)
        shaped: Rewards = [g.rewards for g in kept]
        for piece in self.rewards:
            shaped = piece(kept, shaped, self._own(piece), rng)
        if self.gradient is not None:
            advantages = self._credit(kept, shaped, rng)
            return self._batches(self._by_source(kept, rng), advantages, rng), metrics
        if self.critic is None:
            return self._batches(kept, self._credit(kept, shaped, rng), rng), metrics
        kept = self.critic.estimate(kept)
        advantages = self._credit(kept, shaped, rng)
        metrics |= self.critic.learn(kept, shaped)
        return [] if step < self.critic.warmup else self._batches(kept, advantages, rng), metrics

    def _each(
        self, step: int, groups: list[Group], metrics: dict[str, float]
    ) -> tuple[Iterable[Batch], dict[str, float]]:
        """The batches of each policy, from its text in each of its roles. The data of one policy do not depend on the
        other policies."""
        batches: list[Batch] = []
        for policy in self.policies:
            rng = np.random.default_rng(seed_for(self.seed, "rl", "step", policy, step))
            mine = spoken(groups, policy)
            shaped: Rewards = [g.rewards for g in mine]
            metrics |= {f"{policy}/reward": _mean(np.concatenate(shaped)) if mine else math.nan}
            for piece in self._how(policy).rewards:
                shaped = piece(mine, shaped, self._own(piece, policy), rng)
            critic = self.critics.get(policy)
            if critic:
                mine = critic.estimate(mine)
            advantages = self._credit(mine, shaped, rng, policy)
            if critic:
                metrics |= {f"{policy}/{name}": value for name, value in critic.learn(mine, shaped).items()}
                if step < critic.warmup:
                    continue
            batches += [replace(b, policy=policy) for b in self._batches(mine, advantages, rng, policy)]
        return batches, metrics

    def _by_source(self, groups: list[Group], rng: np.random.Generator) -> list[Group]:
        """The groups with the extra "by_source" [n, k] of their model tokens, the advantages where each of the k sources of
        reward is the only one, and "return_by_source" [n, k] of their first tokens, the returns. Rollouts without the extra
        "rewards" have one source, the score."""
        sources = [by_source(g) for g in groups]
        shaped_by: list[Advantages] = []
        for i in range(len(sources[0])):
            of = [one[i] for one in sources]
            shaped: Rewards = [g.rewards for g in of]
            for piece in self.rewards:
                shaped = piece(of, shaped, self._own(piece, f"source {i}"), rng)
            shaped_by.append(self.advantage(of, shaped, self._own(self.advantage, f"source {i}"), rng))
        out = []
        for g, group in enumerate(groups):
            rollouts = []
            for r, rollout in enumerate(group.rollouts):
                known = isinstance(rollout.score, Scored)
                each = [np.broadcast_to(by[g][r], rollout.n_model) for by in shaped_by]
                paid = [float(one.rollouts[r].score.value) if known else 0.0 for one in sources[g]]  # type: ignore[union-attr]
                rollouts.append(_noted(rollout, np.stack(each, 1), np.array(paid)))
            out.append(replace(group, rollouts=tuple(rollouts)))
        return out

    def _credit(self, groups: list[Group], shaped: Rewards, rng: np.random.Generator, policy: str = "") -> Advantages:
        """Turns shaped rewards into advantages. An unscorable rollout is not evidence: it gets NaN and is removed from
        the step, denominators included."""
        estimate = self._how(policy).advantage
        advantages = estimate(groups, shaped, self._own(estimate, policy), rng)
        for group, group_advantages in zip(groups, advantages, strict=True):
            if not all(
                np.all(np.isfinite(c))
                for r, c in zip(group.rewards, group_advantages, strict=True)
                if not math.isnan(r)
            ):
                raise ValueError(
                    f"the advantage estimator gave an advantage that is not finite, for rewards {group.rewards.tolist()}: fix the piece"
                )
        latest: dict[str, list[float]] = self._own(self.curriculum)["latest"]
        for group, group_advantages in zip(groups, advantages, strict=True):
            sizes = [
                float(np.mean(np.abs(c)))
                for r, c in zip(group.rewards, group_advantages, strict=True)
                if not math.isnan(r) and np.size(c)
            ]
            latest.setdefault(group.rollouts[0].problem.family, []).extend(sizes)
        return [
            [c if not math.isnan(r) else np.nan for r, c in zip(g.rewards, cs, strict=True)]
            for g, cs in zip(groups, advantages, strict=True)
        ]

    def _collect(
        self, player: Player, step: int, rng: np.random.Generator
    ) -> tuple[list[Group], list[Group], Counter, dict[str, float]]:
        """Play until `prompts_per_step` groups pass the filters, or the refills are used up: (kept, all as played,
        reasons, help given)."""
        services = RolloutServices(
            player=player,
            seed=(self.seed, "rl", step, "guide"),
            temperature=player.sampling.temperature,
            problems=self.problems,
            reference=self.reference,
        )
        if self.restart:
            services.restart = self.restart
        off_policy = 0
        kept: list[Group] = []
        played: list[Group] = []
        dropped: Counter = Counter()
        own = self._own(self.curriculum)
        scores = own.setdefault("scores", {})
        for piece, _ in self.names:
            for observe in observations([piece], "problems"):
                name = observe.piece.rpartition("/")[2]  # type: ignore[attr-defined]
                if name not in self._own(piece):
                    self._own(piece)[name] = observe(player, self.problems)
        drawn, attempt, usual = 0, -1, self.prompts_per_step
        most = self.gradient.prompts(step, usual) if self.gradient else usual
        while wanted := most - len(kept):
            attempt += 1
            if attempt and not (self.filters and self._again(attempt, drawn)):
                break
            drawn += wanted
            chosen = [self.problems[i] for i in self.curriculum(self.problems, self._own(self.curriculum), rng, wanted)]
            groups = player.play(chosen, self.samples_per_prompt, self.seed, "rl", step, attempt)
            groups = [
                Group(
                    id=f"{step}/{attempt}/{g.id}",
                    rollouts=tuple(replace(r, group=f"{step}/{attempt}/{g.id}") for r in g.rollouts),
                )
                for g in groups
            ]
            if self.judge:
                groups = self.judge(groups)
            for problem, group in zip(chosen, groups, strict=True):
                if not np.isnan(group.rewards).all():
                    scores.setdefault(problem.id, []).append(float(np.nanmean(group.rewards)))
            played += groups
            services.attempt = attempt
            for group_transform in self.group_transforms:
                groups = group_transform(groups, services, self._own(group_transform), rng)
            off_policy += sum(r.off_policy for g in groups for r in g.rollouts)
            if self.judge and self.group_transforms:  # the rollouts that they changed or added are in other groups now
                groups = self.judge(groups)
            for observe in self.observations:
                groups = observe(player, groups, chosen, (self.seed, "rl", step, attempt))
            verdicts: list[str | None] = [None] * len(groups)
            for piece in self.filters:
                verdicts = [
                    a or b
                    for a, b in zip(
                        verdicts, piece(groups, [g.rewards for g in groups], self._own(piece), rng), strict=True
                    )
                ]
            kept += [g for g, v in zip(groups, verdicts, strict=True) if v is None]
            dropped.update(v for v in verdicts if v is not None)
        return (
            kept,
            played,
            dropped,
            {"off_policy": float(off_policy), "guide_tokens": float(services.tokens)} if self.group_transforms else {},
        )

    def _again(self, attempt: int, drawn: int) -> bool:
        """Whether a step that is not full may draw again (`attempt` counts from 0), after `drawn` problems."""
        return drawn < len(self.problems) if self.refill == "until_full" else attempt <= self.refill

    def _batches(
        self, groups: list[Group], advantages: Advantages, rng: np.random.Generator, policy: str = ""
    ) -> Iterator[Batch]:
        """The minibatches of every epoch, without those that have no gradient."""
        how = self._how(policy)
        rows = rollout_rows(groups, advantages)
        if "chance" in self.needs:
            rows = [replace(r, columns={**r.columns, "chance": rng.random(len(r.ids))}) for r in rows]
        for _ in range(self.epochs if rows else 0):
            order = rng.permutation(len(rows)) if self.minibatches > 1 else np.arange(len(rows))
            for part in np.array_split(order, self.minibatches):
                whole = [rows[i] for i in part]
                nonzero_advantage = [r for r in whole if np.any(r.columns["advantages"] != 0)]
                if nonzero_advantage or (whole and not how.advantage_only):
                    yield pack(nonzero_advantage if how.skip_zero else whole, device=self.device, totals=count(whole))


def by_source(group: Group) -> list[Group]:
    """The group as each source of reward alone would have paid it: the rewards of its turns, and as its score their sum."""

    def alone(rollout: Rollout, i: int) -> Rollout:
        segments = tuple(
            replace(s, reward=float(s.extras["rewards"][:, i].sum())) if "rewards" in s.extras else s
            for s in rollout.segments
        )
        total = sum(s.reward or 0.0 for s in segments if "rewards" in s.extras)
        score = replace(rollout.score, value=total) if isinstance(rollout.score, Scored) else rollout.score
        return replace(rollout, segments=segments, score=score)

    kept = [s.extras["rewards"] for r in group.rollouts for s in r.segments if "rewards" in s.extras]
    if not kept:
        return [group]
    return [replace(group, rollouts=tuple(alone(r, i) for r in group.rollouts)) for i in range(kept[0].shape[1])]


def _noted(rollout: Rollout, advantages: np.ndarray, returns: np.ndarray) -> Rollout:
    """The rollout with advantages [n_model, k] and returns [k] by source as extras of its tokens; the returns on the very
    first token, so that the sum over a row is theirs."""
    at, segments = 0, []
    for i, s in enumerate(rollout.segments):
        n = len(s.ids)
        mine = np.zeros((n, advantages.shape[1]))
        if s.role == "model":
            mine, at = advantages[at : at + n], at + n
        paid = np.zeros_like(mine)
        if i == 0 and n:
            paid[0] = returns
        segments.append(replace(s, extras={**s.extras, "by_source": mine, "return_by_source": paid}))
    return replace(rollout, segments=tuple(segments))


def spoken(groups: Sequence[Group], policy: str) -> list[Group]:
    """The text of one policy, as a group for each of its roles on each prompt: first all groups of one role, then those
    of the next."""
    segments = [s for g in groups for r in g.rollouts for s in r.segments if s.policy == policy and s.role == "model"]
    out = []
    for speaker in sorted({s.speaker for s in segments}):
        for g in groups:
            seen = [one for r in g.rollouts if (one := r.spoken(speaker, policy)) is not None]
            if seen:
                out.append(Group(id=g.id, rollouts=tuple(seen)))
    return out


def exchanged(plays: Mapping[str, str], policies: Sequence[str], times: int) -> dict[str, str]:
    """Role -> policy after `times` exchanges, in each of which every policy takes over the next one's roles."""
    other = {name: policies[(i + times) % len(policies)] for i, name in enumerate(policies)}
    return {role: other[name] for role, name in plays.items()}


def _mean(values: np.ndarray) -> float:
    """The mean of the values that are known."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else math.nan


def _judged(groups: Sequence[Group]) -> dict[str, float]:
    """By how much the judge prefers right answers to wrong ones; this falls if the policy learns to exploit the
    judge."""
    known = [
        (r.score.value > 0, r.score.parts["judge"]) for g in groups for r in g.rollouts if isinstance(r.score, Scored)
    ]
    sides = [[opinion for right, opinion in known if right == side] for side in (True, False)]
    return {"judge_gap": float(np.mean(sides[0]) - np.mean(sides[1]))} if all(sides) else {}


def _metrics(groups: Sequence[Group]) -> dict[str, float]:
    """Metrics of all rollouts played: mean reward, mean best of a group, shares of groups in which none or all are
    right, lengths, tool calls."""
    rollouts = [r for g in groups for r in g.rollouts]
    rewards = np.concatenate([g.rewards for g in groups])
    scored = [x for x in (g.rewards[~np.isnan(g.rewards)] for g in groups) if len(x)]
    mean = lambda values: float(np.mean(values)) if len(values) else float("nan")  # noqa: E731
    return {
        "reward": mean(rewards[~np.isnan(rewards)]),
        "reward_max": mean([x.max() for x in scored]),
        "solve_none": mean([x.max() <= 0 for x in scored]),
        "solve_all": mean([x.min() >= 1 for x in scored]),
        "unscorable": mean(np.isnan(rewards)),
        "truncated": mean([isinstance(r.score, Scored) and r.score.parts.get("truncated", 0.0) for r in rollouts]),
        "rollouts": float(len(rollouts)),
        "tokens": float(sum(r.n_model for r in rollouts)),
        "length": mean([r.n_model for r in rollouts]),
        "calls": mean([r.info.get("calls", 0) for r in rollouts]),
    }
