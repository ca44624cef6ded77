"""Assembles pieces and numbers into RL of one policy, or of several on one base, for the stage `rl` and for the checks
of recipes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, Literal

from torch import nn

from synth.types import Problem, nearest, seed_for
from training.learner.follow import CRITIC, followed
from training.learner.learner import Learner, Optim, Read, token_stats
from training.learner.loop import Round
from training.learner.policies import Policies
from training.learner.world import ONE, World
from training.rl.advantage import AdvantagePiece
from training.rl.correction import CorrectionPiece
from training.rl.critic import Critic, ValueModel, value_stats
from training.rl.curriculum import CurriculumPiece
from training.rl.experience import Experience, LearnsBy
from training.rl.filter import FilterPiece
from training.rl.gradient import GradientPiece
from training.rl.group_transform import GroupTransformPiece
from training.rl.objective import PolicyObjective
from training.rl.observation import observations
from training.rl.policy_loss import PolicyLossPiece
from training.rl.ratio import RatioPiece
from training.rl.regulariser import RegulariserPiece
from training.rl.restart import Restart
from training.rl.reward import RewardPiece
from training.rl.teachers import Teachers
from training.rl.turn_budget import TurnBudgetPiece
from training.rl.value_loss import ValueLossPiece
from training.rollout.mismatch import Compared
from training.rollout.play import Player
from training.types import Batch

# Pieces that one policy may replace, in the order of the knobs of the stage.
OWN = ("rewards", "advantage", "ratio", "policy_loss", "corrections", "regularisers")
AS_GIVEN = (  # arguments of `compose` that are the knobs of the stage `rl` of the same name
    "prompts_per_step",
    "samples_per_prompt",
    "tokens_per_microbatch",
    "epochs",
    "minibatches",
    "refill",
    "max_unscorable",
    "turn_budget",
    "group_transforms",
    "curriculum",
    "filters",
    "rewards",
    "advantage",
    "ratio",
    "corrections",
    "policy_loss",
    "regularisers",
    "gradient",
)
KEYS = ("roles", "lora", "optimizer", *OWN)  # of a policy among several


@dataclass(frozen=True, kw_only=True)
class Training:
    """One round of RL, the learners of its roles, and the other parts that have a state."""

    round: Round
    roles: dict[str, Any]  # Learner, or Policy if there are several
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
    gradient: GradientPiece | None = None,
    judge: Callable[..., Any] | None = None,
    after: Callable[..., None] = lambda step, metrics: None,
    world: World = ONE,
    policies: Mapping[str, Mapping[str, Any]] = {},
    lora: Mapping[str, Any] = {},
    exchange: int = 0,
) -> Training:
    """Names and defaults are those of the stage's knobs (tasks/stages/rl.py).

    needs         what the pieces need besides the rollouts: the union of their `NEEDS`
    world         the processes that learn together: the first plays, and the others follow it (training/learner/follow.py)
    teachers      required if a piece NEEDS "teachers"
    body          makes the language model from which a critic starts; required, with `critic_optim`, if `critic` is
                  given
    read          turns a pass of the policy into log-probs; a policy that writes no tokens needs another function than
                  `token_stats`
    read_value    turns a pass of the critic into values; if it is not `value_stats`, `body` makes the critic itself

    policies      if several policies play: name -> its roles (default: its name), its adapters (`lora`), its own
                  optimizer settings, and pieces of its own in the place of those given here (OWN); `policy` is then the
                  common base, still without adapters, and each has a critic of its own if `critic` is given
    exchange      the number of steps after which they exchange their roles

    Raises ValueError for a critic without these two, and for invalid policies.
    """
    temperature = player.sampling.temperature
    compared: Callable[[], dict[str, float]] | None = Compared.of(policy, player.sampler)
    how: dict[str, Any] = dict(gradient_checkpointing=gradient_checkpointing, router_loss=router_loss)
    roles: dict[str, Any]
    team = Policies(policy) if policies else None
    if team is not None:
        one_policy_alone(
            policies,
            {
                "learners": world.size > 1,
                "group_transforms": not all(getattr(t, "several", False) for t in group_transforms),
                "teacher": teachers is not None,
            },
        )
        for name, given in policies.items():
            mine = _one_of(name, given, lora, optim)
            team.create(name, mine["lora"], seed=seed_for(seed, "rl", "lora", name), optim=mine["optimizer"], **how)
        player = replace(player, plays=plays(policies))
        roles, compared = dict(team.named), _compared_each(team, compared)
    else:
        roles = {"policy": Learner(policy, optim, read=read, world=world, **how)}
    estimator = None
    if gradient is not None:
        _estimates_alone(
            {
                "learners": world.size > 1,
                "policies": bool(policies),
                "epochs": epochs > 1,
                "minibatches": minibatches > 1,
                "critic": critic is not None,
                "filters": bool(filters),
                "corrections": bool(corrections),
                "regularisers": bool(regularisers),
                "teacher": teachers is not None,
                "policy_loss": getattr(getattr(policy_loss, "func", policy_loss), "__name__", "") != "policy_gradient",
            }
        )
        estimator = roles["policy"].estimator = gradient()
    objective = PolicyObjective(
        ratio=ratio,
        policy_loss=policy_loss,
        corrections=corrections,
        regularisers=regularisers,
        policy=policy if team else roles["policy"].model,
        reference=reference,
        teachers=teachers,
        needs=needs,
        temperature=temperature,
        tokens_per_microbatch=tokens_per_microbatch,
        world=world,
        read=read,
    )
    objectives = {name: _own_objective(objective, given) for name, given in policies.items() if {*given} & {*OWN}}
    learns_by = {
        name: LearnsBy(
            rewards=policies[name].get("rewards", rewards),
            advantage=policies[name].get("advantage", advantage),
            advantage_only=own.advantage_only,
            skip_zero=own.row_local,
        )
        for name, own in objectives.items()
    }
    pieces = [curriculum, *group_transforms, *filters, *rewards, advantage, ratio, policy_loss, *corrections]
    pieces += [*regularisers, critic]
    for given in policies.values():
        for value in (given[key] for key in OWN if key in given):
            pieces += value if isinstance(value, list) else [value]
    critics: dict[str, Critic] = {}
    if critic is not None:
        if body is None or critic_optim is None:
            raise ValueError(
                "compose: a critic needs `body` (a function that makes its language model) and `critic_optim`"
            )
        for name in policies or ("",):
            critics[name] = Critic(
                learner=Learner(
                    ValueModel(body()) if read_value is value_stats else body(),
                    critic_optim,
                    read=read_value,
                    world=world,
                ),
                loss=critic,
                lam=critic_lambda,
                passes=critic_passes,
                # it is trained on the returns that the advantage reads
                gamma=getattr(learns_by[name].advantage if name in learns_by else advantage, "keywords", {}).get(
                    "gamma", 1.0
                ),
                warmup=critic_warmup,
                tokens_per_microbatch=tokens_per_microbatch,
            )
    beside = critics.get("")
    again = None
    if "restart" in needs:
        if world.size > 1:
            raise ValueError("rl: a piece that lets the policy begin again works in one process: set learners to 1")
        again = Restart(
            learner=roles["policy"],
            sampler=player.sampler,
            temperature=temperature,
            tokens_per_microbatch=tokens_per_microbatch,
            device=device,
        )
    experience = Experience(
        problems=problems,
        player=player,
        advantage=advantage,
        curriculum=curriculum,
        filters=filters,
        rewards=rewards,
        learns_by=learns_by,
        group_transforms=group_transforms,
        judge=judge,
        critic=beside,
        critics=critics if policies else {},
        observations=[*observations(pieces, "groups"), *([teachers.observe] if teachers else [])],
        budget=partial(turn_budget, steps=steps) if turn_budget else None,
        needs=needs,
        prompts_per_step=prompts_per_step,
        samples_per_prompt=samples_per_prompt,
        refill=refill,
        epochs=epochs,
        minibatches=minibatches,
        advantage_only=objective.advantage_only and estimator is None,  # a return without advantage is one of its mean
        skip_zero=objective.row_local and estimator is None,
        compared=compared,
        restart=again,
        reference=reference,
        max_unscorable=max_unscorable,
        seed=seed,
        device=device,
        policies=list(policies),
        exchange=exchange,
        gradient=estimator,
    )
    if policies and experience.observations:
        raise ValueError(
            "rl.policies: what pieces observe beside the rollouts is asked of one policy: leave out pieces that name an observation in NEEDS"
        )
    learners = [*(() if team else roles.values()), *([beside.learner] if beside else [])]

    def publish() -> None:
        for one in learners:
            one.publish()

    source = followed(experience, world, device, {CRITIC: beside.update} if beside else {}, publish)

    def prepare(batch: Batch) -> None:
        with team.using(batch.policy) if team else nullcontext():
            objectives.get(batch.policy, objective).prepare(batch)

    learned = Round(
        name="rl",
        role=next(iter(roles)),
        source=source,
        objective=objective,
        objectives=objectives,
        prepare=prepare,
        steps=steps,
        temperature=temperature,
        tokens_per_microbatch=tokens_per_microbatch,
        after=after,
    )
    parts = {"experience": experience} | {f"critic of {n}" if n else "critic": one for n, one in critics.items()}
    return Training(
        round=learned,
        roles=roles,
        parts=parts,
    )


def plays(policies: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Role -> the policy that plays it. Raises ValueError if two policies claim the same role."""
    out: dict[str, str] = {}
    for name, given in policies.items():
        for role in given.get("roles") or [name]:
            if role in out:
                raise ValueError(
                    f"rl.policies: {out[role]} and {name} both play the role {role!r}: leave it to one of them"
                )
            out[role] = name
    return out


def _own_objective(objective: PolicyObjective, given: Mapping[str, Any]) -> PolicyObjective:
    """The objective of a policy that has pieces of its own: with these, and with the passes that they and the rest
    need, no others."""
    own = replace(objective, **{k: given[k] for k in OWN if k in given and k not in ("rewards", "advantage")})
    pieces = (own.ratio, own.policy_loss, *own.corrections, *own.regularisers)
    wanted = frozenset().union(*(getattr(p, "needs", objective.needs) for p in pieces))
    return replace(own, needs=objective.needs & wanted)


def _one_of(name: str, given: Mapping[str, Any], lora: Mapping[str, Any], optim: Optim) -> dict[str, Any]:
    """lora and optimizer of one policy. Raises ValueError for unknown keys, and if it has no adapters."""
    own = given.get("optimizer") or {}
    known = sorted(f.name for f in fields(Optim) if f.name not in ("steps", "final", "betas"))
    for where, keys, valid in ((name, given, KEYS), (f"{name}.optimizer", own, known)):
        if odd := sorted(set(keys) - set(valid)):
            raise ValueError(f"rl.policies.{where}: unknown key {odd[0]!r}: {nearest(odd[0], valid)}")
    adapters = _adapters(given, lora)
    if not adapters or adapters.get("base") or not adapters.get("merge", True):
        raise ValueError(
            f"rl.policies.{name} needs adapters of its own on a base as it is: set rl.lora (for all) or rl.policies.{name}.lora to a rank, "
            "without base and merge"
        )
    return {"lora": adapters, "optimizer": replace(optim, **own)}


def _adapters(given: Mapping[str, Any], lora: Mapping[str, Any]) -> dict[str, Any]:
    """The knobs of one policy's adapters: its own, else those of all."""
    return dict(given.get("lora") or lora)


def widest(policies: Mapping[str, Mapping[str, Any]], lora: Mapping[str, Any]) -> int:
    """The largest rank of several policies; ranks that are no numbers are refused where adapters are made."""
    ranks = [_adapters(given, lora).get("rank") for given in policies.values()]
    return max((r for r in ranks if isinstance(r, int)), default=0)


def one_policy_alone(policies: Mapping[str, Any], used: Mapping[str, bool]) -> None:
    """Raises ValueError if there are several policies beside a knob of `rl` that works with one alone. used: knob ->
    whether it is in use."""
    if odd := [knob for knob, there in used.items() if policies and there]:
        raise ValueError(
            f"rl.{odd[0]} works with one policy alone: leave it as it is by default, or leave out rl.policies"
        )


def _estimates_alone(used: Mapping[str, bool]) -> None:
    """Raises ValueError if an estimator of the gradient stands beside a knob of `rl` that it cannot work with. used: knob ->
    whether it is in use."""
    if odd := [knob for knob, there in used.items() if there]:
        way = "set it to policy_gradient" if odd[0] == "policy_loss" else "leave it as it is by default"
        raise ValueError(
            f"rl.gradient weighs whole trajectories of the last update by itself, in one process and once, and rl.{odd[0]} does not go with it: "
            f"{way}, or leave out rl.gradient"
        )


def _compared_each(team: Policies, compared: Callable[[], dict[str, float]] | None) -> Any:
    """Compares sampler and learner for each policy, and returns the largest gap."""

    def each() -> dict[str, float]:
        assert compared is not None
        gaps = []
        for name in team.named:
            with team.using(name):
                gaps.append(compared()["probe_gap"])
        return {"probe_gap": max(gaps)}

    return each if compared is not None else None
