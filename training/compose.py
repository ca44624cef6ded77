"""Pieces and numbers put together as reinforcement learning of one policy: what the stage `rl` runs, and the checks of recipes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import nn

from synth.types import Problem
from training.critic import Critic, ValueModel, value_stats
from training.experience import Experience
from training.fidelity import Compared
from training.learner import Learner, Optim
from training.objective import PolicyObjective
from training.rollout.play import Player
from training.rounds import Round


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
    reference: nn.Module | None,
    body: Callable[[], nn.Module],
    player: Player,
    problems: Sequence[Problem],
    needs: frozenset[str],
    seed: int,
    device: str,
    steps: int,
    optim: Optim,
    prompts_per_step: int,
    samples_per_prompt: int,
    tokens_per_microbatch: int,
    recompute: bool = False,
    epochs: int,
    minibatches: int,
    refill: int,
    max_unscorable: float,
    critic: Callable[..., Any] | None,
    critic_optim: Optim,
    critic_lambda: float,
    critic_warmup: int,
    turn_budget: Callable[..., int] | None,
    guides: Sequence[Callable[..., Any]],
    curriculum: Callable[..., Any],
    filters: Sequence[Callable[..., Any]],
    rewards: Sequence[Callable[..., Any]],
    advantage: Callable[..., Any],
    ratio: Callable[..., Any],
    corrections: Sequence[Callable[..., Any]],
    surrogate: Callable[..., Any],
    regularisers: Sequence[Callable[..., Any]],
    judge: Callable[..., Any] | None = None,
    after: Callable[..., None] = lambda step, metrics: None,
) -> Training:
    """Names are those of the stage's knobs (tasks/stages/rl.py). body: makes the language model that a critic starts from."""
    temperature = player.sampling.temperature
    objective = PolicyObjective(
        ratio=ratio, surrogate=surrogate, corrections=corrections, regularisers=regularisers, policy=policy, reference=reference,
        needs=needs, temperature=temperature, tokens_per_microbatch=tokens_per_microbatch,
    )  # fmt: skip
    beside = None
    if critic is not None:
        beside = Critic(
            learner=Learner(ValueModel(body()), critic_optim, read=value_stats), loss=critic, lam=critic_lambda, warmup=critic_warmup,
            tokens_per_microbatch=tokens_per_microbatch,
        )  # fmt: skip
    experience = Experience(
        problems=problems, player=player, advantage=advantage, curriculum=curriculum, filters=filters, rewards=rewards, guides=guides,
        judge=judge, critic=beside, budget=partial(turn_budget, steps=steps) if turn_budget else None, needs=needs, prompts_per_step=prompts_per_step,
        samples_per_prompt=samples_per_prompt, refill=refill, epochs=epochs, minibatches=minibatches, credit_only=objective.credit_only,
        compared=Compared.of(policy, player.sampler), skip_zero=objective.row_local, max_unscorable=max_unscorable, seed=seed, device=device,
    )  # fmt: skip
    learned = Round(
        name="rl", role="policy", source=experience, objective=objective, prepare=objective.prepare, steps=steps, temperature=temperature,
        tokens_per_microbatch=tokens_per_microbatch, after=after,
    )  # fmt: skip
    parts = {"experience": experience} | ({"critic": beside} if beside else {})
    return Training(round=learned, roles={"policy": Learner(policy, optim, recompute=recompute)}, parts=parts)
