"""Pieces and numbers put together as reinforcement learning of one policy: what the stage `rl` runs, and the checks of
recipes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from torch import nn

from synth.types import Problem
from training.learner.follow import CRITIC, followed
from training.learner.learner import Learner, Optim, Read, token_stats
from training.learner.loop import Round
from training.learner.world import ONE, World
from training.rl.advantage import AdvantagePiece
from training.rl.correction import CorrectionPiece
from training.rl.critic import Critic, ValueModel, value_stats
from training.rl.curriculum import CurriculumPiece
from training.rl.experience import Experience
from training.rl.filter import FilterPiece
from training.rl.group_transform import GroupTransformPiece
from training.rl.objective import PolicyObjective
from training.rl.observation import observations
from training.rl.policy_loss import PolicyLossPiece
from training.rl.ratio import RatioPiece
from training.rl.regulariser import RegulariserPiece
from training.rl.reward import RewardPiece
from training.rl.teachers import Teachers
from training.rl.turn_budget import TurnBudgetPiece
from training.rl.value_loss import ValueLossPiece
from training.rollout.mismatch import Compared
from training.rollout.play import Player


@dataclass(frozen=True, kw_only=True)
class Training:
    """One round of RL, the learners of its roles, and the parts that have a state beside them."""

    round: Round
    roles: dict[str, Learner]
    parts: dict[str, Any]

    @property
    def experience(self) -> Experience:
        return self.parts["experience"]


def compose(
    *,
    policy: nn.Module,
    player: Player,
    problems: Sequence[Problem],
    steps: int,
    optim: Optim,
    prompts_per_step: int,
    samples_per_prompt: int,
    curriculum: CurriculumPiece,
    advantage: AdvantagePiece,
    ratio: RatioPiece,
    policy_loss: PolicyLossPiece,
    reference: nn.Module | None = None,
    teachers: Teachers | None = None,
    needs: frozenset[str] = frozenset(),
    seed: int = 0,
    device: str = "cpu",
    tokens_per_microbatch: int = 16384,
    gradient_checkpointing: bool = False,
    router_loss: float = 0.0,
    epochs: int = 1,
    minibatches: int = 1,
    refill: int | Literal["until_full"] = 0,
    max_unscorable: float = 0.02,
    critic: ValueLossPiece | None = None,
    body: Callable[[], nn.Module] | None = None,
    read: Read = token_stats,
    read_value: Read = value_stats,
    critic_optim: Optim | None = None,
    critic_lambda: float = 1.0,
    critic_passes: int = 1,
    critic_warmup: int = 0,
    turn_budget: TurnBudgetPiece | None = None,
    group_transforms: Sequence[GroupTransformPiece] = (),
    filters: Sequence[FilterPiece] = (),
    rewards: Sequence[RewardPiece] = (),
    corrections: Sequence[CorrectionPiece] = (),
    regularisers: Sequence[RegulariserPiece] = (),
    judge: Callable[..., Any] | None = None,
    after: Callable[..., None] = lambda step, metrics: None,
    world: World = ONE,
) -> Training:
    """Names and defaults are those of the stage's knobs (tasks/stages/rl.py).

    needs         what the pieces need beside the rollouts: the union of their `NEEDS`
    world         the processes that learn together: the first plays, and the others follow it (training/learner/follow.py)
    teachers      wanted where a piece NEEDS "teachers"
    body          makes the language model that a critic starts from; wanted, with `critic_optim`, where `critic` is given
    read          how a pass of the policy becomes log-probs; of a policy that writes no tokens another than `token_stats`
    read_value    how a pass of the critic becomes values; where it is another than `value_stats`, `body` makes the critic itself

    Raises ValueError for a critic without them.
    """
    temperature = player.sampling.temperature
    compared = Compared.of(policy, player.sampler)
    learner = Learner(
        policy,
        optim,
        read=read,
        gradient_checkpointing=gradient_checkpointing,
        router_loss=router_loss,
        world=world,
    )
    objective = PolicyObjective(
        ratio=ratio,
        policy_loss=policy_loss,
        corrections=corrections,
        regularisers=regularisers,
        policy=learner.model,
        reference=reference,
        teachers=teachers,
        needs=needs,
        temperature=temperature,
        tokens_per_microbatch=tokens_per_microbatch,
        world=world,
        read=read,
    )
    pieces = [curriculum, *group_transforms, *filters, *rewards, advantage, ratio, policy_loss, *corrections]
    pieces += [*regularisers, critic]
    beside = None
    if critic is not None:
        if body is None or critic_optim is None:
            raise ValueError(
                "compose: a critic needs `body` (a function that makes its language model) and `critic_optim`"
            )
        beside = Critic(
            learner=Learner(
                ValueModel(body()) if read_value is value_stats else body(), critic_optim, read=read_value, world=world
            ),
            loss=critic,
            lam=critic_lambda,
            passes=critic_passes,
            gamma=getattr(advantage, "keywords", {}).get(
                "gamma", 1.0
            ),  # it learns the returns that the advantage reads
            warmup=critic_warmup,
            tokens_per_microbatch=tokens_per_microbatch,
        )
    experience = Experience(
        problems=problems,
        player=player,
        advantage=advantage,
        curriculum=curriculum,
        filters=filters,
        rewards=rewards,
        group_transforms=group_transforms,
        judge=judge,
        critic=beside,
        observations=[*observations(pieces, "groups"), *([teachers.observe] if teachers else [])],
        budget=partial(turn_budget, steps=steps) if turn_budget else None,
        needs=needs,
        prompts_per_step=prompts_per_step,
        samples_per_prompt=samples_per_prompt,
        refill=refill,
        epochs=epochs,
        minibatches=minibatches,
        advantage_only=objective.advantage_only,
        compared=compared,
        skip_zero=objective.row_local,
        max_unscorable=max_unscorable,
        seed=seed,
        device=device,
    )
    learners = [learner, *([beside.learner] if beside else [])]

    def publish() -> None:
        for one in learners:
            one.publish()

    source = followed(experience, world, device, {CRITIC: beside.update} if beside else {}, publish)
    learned = Round(
        name="rl",
        role="policy",
        source=source,
        objective=objective,
        prepare=objective.prepare,
        steps=steps,
        temperature=temperature,
        tokens_per_microbatch=tokens_per_microbatch,
        after=after,
    )
    parts = {"experience": experience} | ({"critic": beside} if beside else {})
    return Training(
        round=learned,
        roles={"policy": learner},
        parts=parts,
    )
