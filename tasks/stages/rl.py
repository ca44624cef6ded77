"""The stage `rl`: reinforcement learning of a policy on the training questions, played with the real search tool."""

# pyright: reportInvalidTypeForm=false
# (a knob that is a piece is annotated with its kind, `Piece("advantage")`, which the plan reads)

from __future__ import annotations

import copy
import json
import math
import sys
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, Literal

from synth.types import ListDigest, Problem, Scored, seed_for
from tasks.core.errors import UserError, nearest
from tasks.evaluation import env_audit
from tasks.knowledge import knowledge
from tasks.models import engines, tools
from tasks.models.players import players as playing
from tasks.planning.pieces import Own, Piece, Pieces, Place
from tasks.planning.settings import Critic, Engine, Optimizer, RolloutSampling
from tasks.runtime.models import named_by_user
from tasks.runtime.stage import Stage
from tasks.runtime.train_loop import Curve, drive, make_repeatable, optim, together
from tasks.storage import tables
from tasks.storage.problems import Problems
from training.learner.follow import followed
from training.model.lora import NAME, adapt, first_on, save_adapters
from training.model.model import load_model, n_parameters, save_model
from training.model.quantised import quantise
from training.model.render import Renderer
from training.model.router import Replay
from training.rl.ahead import Ahead
from training.rl.alarm import alarms
from training.rl.compose import compose, one_policy_alone, plays, widest
from training.rollout.mismatch import stop_beyond
from training.rollout.play import Player
from training.types import Group

ONLY_WITH = {
    "tasks.models.control": "control",
    "tasks.models.judge": "judge",
    "tasks.models.ratings": "ratings",
    "tasks.models.samples": "control",
    "tasks.pages.samples": "control",
    "tasks.models.teachers": "teacher",
}  # imported only where this knob is set: read by the plan
# Names that a piece's NEEDS may contain here -> the knob that must be set for each; "observation": every piece of that
# kind.
PROVIDES = {
    "reference": "",
    "old": "",
    "entropy": "",
    "sampling_entropy": "",
    "chance": "",
    "distribution": "",
    "value": "critic.loss",
    "rates": "ratings",
    "teachers": "",
    "restart": "",
    "observation": "",
}

RENAMED = {"overlap": "asynchrony: {piece: ...}"}  # former knobs -> what to write now


def rl(
    stage: Stage,
    *,
    include_families: bool = False,
    include_questions: bool = True,
    dtype: str = "float32",
    device: str = "cpu",
    learners: Place() = 1,
    shards: Place() = 1,
    samplers: Place() = 1,
    transport: Place() = "disk",
    players: Place() = 1,
    ray: Place() = "",
    steps: int = 110,
    prompts_per_step: int = 16,
    samples_per_prompt: int = 8,
    tokens_per_microbatch: int = 16384,
    gradient_checkpointing: bool = False,
    router_loss: float = 0.0,
    router_replay: bool = False,
    lora: dict = {},  # noqa: B006
    policies: Own("rewards", "advantage", "ratio", "policy_loss", "corrections", "regularisers") = {},  # noqa: B006
    exchange: int = 0,
    optimizer: Optimizer = Optimizer(lr=1e-3, warmup=5),
    epochs: int = 1,
    minibatches: int = 1,
    refill: int | Literal["until_full"] = 0,
    sampling: RolloutSampling = RolloutSampling(),
    engine: Engine = Engine(),
    generation: Piece("generation") = None,
    asynchrony: Piece("asynchrony") = {"piece": "sync"},
    max_unscorable: float = 0.02,
    accept: list = [],  # noqa: B006
    max_mismatch: float = 0.05,
    checkpoint_every: int = 20,
    teacher: str | list = "",
    critic: Critic = Critic(),
    turn_budget: Piece("turn_budget") = None,
    group_transforms: Pieces("group_transform") = [],
    envs: Pieces("env") = [{"piece": "search"}, {"piece": "single"}],
    control: Piece("control") = None,
    max_steps: int = 1000,
    curriculum: Piece("curriculum") = {"piece": "uniform"},
    ratings: dict = {},  # noqa: B006
    filters: Pieces("filter") = [],
    judge: dict = {},  # noqa: B006
    rewards: Pieces("reward") = [],
    advantage: Piece("advantage") = {"piece": "grpo"},
    ratio: Piece("ratio") = {"piece": "token"},
    corrections: Pieces("correction") = [],
    policy_loss: Piece("policy_loss") = {"piece": "clip"},
    regularisers: Pieces("regulariser") = [],
    gradient: Piece("gradient") = None,
) -> None:
    """Starts from artifacts/sft/model. Rollouts are sampled from the full distribution at `sampling.temperature`. The
    policy gradient must be that of the sampled distribution, and a truncated one (top-p, top-k) has a different support
    at every token, which the learner's log-probs do not model.

    Args:
        include_families: whether problems of the stage `problems` are played: of the verifiable families, and your own
        include_questions: whether questions over the knowledge base are played
        dtype: type of the weights: float32 or bfloat16
        device: device of the models: cpu, cuda, or cuda:0
        learners: processes that train together, each on its share of a step's rows; at most one per row, on CUDA each
            with its own device; the first one samples
        shards: number of learners that share one copy of weights, gradients and optimizer state (FSDP; HSDP if fewer
            than all); 1: each learner holds a full copy
        samplers: vLLM servers that the stage starts on this machine to share the rollouts, on CUDA each with a device of
            its own; needs engine.name vllm, which with 1 runs in this process (docs/engines.md)
        transport: how weights reach vLLM servers: disk, by a folder; nccl, by a broadcast from the learner's CUDA device to
            theirs; ipc, as memory of the device that the learner and they share (docs/engines.md)
        players: processes that run environments, tools and verifiers beside the sampler; with 1 they run in the process
            that samples (docs/scaling.md)
        ray: address of the Ray cluster whose machines run the players, each as an actor that takes one CPU: HOST:PORT of
            its head, or auto for the one that this machine is in; empty: they run on this machine (docs/scaling.md)
        steps: number of steps; each samples rollouts and learns from them
        prompts_per_step: number of training questions of a step
        samples_per_prompt: number of rollouts of each question (the group size)
        tokens_per_microbatch: most tokens of one pass; affects memory, not the result
        gradient_checkpointing: recomputes activations in the backward pass: less memory for about a third more time
        router_loss: weight of the load-balancing loss of a mixture of experts, e.g. 0.001; 0: none
        router_replay: for a mixture of experts: whether the learner uses the experts that the sampler chose for each
            token, instead of its own choice; needs engine.name torch
        lora: trains adapters instead of all weights: rank, alpha, modules, merge, base (training/model/lora.py); empty
            trains all weights
        policies: several policies on one base, as adapters: name -> roles (the roles it plays in the environment;
            default: its own name), lora (default: the stage's), optimizer (differences from the stage's), rewards,
            advantage, ratio, policy_loss, corrections, regularisers (pieces of its own in place of the stage's). Each
            policy learns from its own turns, with its own baseline. The first is saved as the model, all of them as adapters
            (docs/agents.md)
        exchange: number of steps after which each policy takes over the roles of the next; 0: never
        optimizer: the optimizer and the schedule of its learning rate
        epochs: passes over the rollouts of a step
        minibatches: optimizer steps of one pass
        refill: how often groups that filters drop are replaced by new ones; until_full: until the step is full, or
            every problem has been drawn once for it
        sampling: how conversations are sampled
        engine: the engine that samples, and its limits
        generation: how the model writes a turn, if not one token after another (docs/decoders.md); needs engine.name
            torch
        asynchrony: how far sampling runs ahead of learning
        max_unscorable: largest share of rollouts without a score; above it the stage stops
        accept: findings of `espalier env audit` that do not stop training on a third-party environment:
            reference, junk, shared, constant, question, list, grader, repeats, executed, opens
        max_mismatch: largest KL between sampler and learner, in nats per token of on-policy steps; above it the run
            stops
        checkpoint_every: steps between two checkpoints, from which a killed run resumes
        teacher: model folder or Hub name with the same tokenizer that replaces the SFT model as the reference of KL
            terms; or a list of teachers for pieces that distil whole distributions. These may have other tokenizers, be
            served by endpoints, and have weights per family (docs/distillation.md)
        critic: a value model that is trained alongside the policy
        turn_budget: schedule of the tokens per turn, which replaces sampling.max_turn_tokens
        group_transforms: transforms of groups after they were sampled
        envs: environments in which problems are played, with their knobs
        control: a control task instead of problems and environments: the policy is then a small network that chooses
            actions, writes no tokens, and is trained from scratch (docs/control.md), or one that denoises, after a warm
            start (docs/media.md)
        max_steps: most steps of an episode; used if control is set
        curriculum: chooses the next problems
        ratings: two checkpoints that play every problem before training, for filters that use their solve rates: weak
            and strong (model folders), tries (16)
        filters: choose the groups that are trained on
        judge: a model behind an endpoint that gives each score the part "judge", the share of the group's other answers
            that this one beats; it must withstand the attacks before the first rollout (tasks/models/judge.py has the
            keys)
        rewards: shaping of the rewards, in order
        advantage: the advantage estimator
        ratio: the log-ratio of the policy to the one before the update
        corrections: importance weights that correct the mismatch between sampler and learner
        policy_loss: the loss of the policy
        regularisers: further loss terms
        gradient: an estimator between the gradient of a step and the optimizer, if it is not that of the step's rollouts
            alone
    """
    make_repeatable(stage, device)
    world = together(stage, learners, device, shards)
    if sampling.temperature <= 0:
        raise UserError(
            f"rl: sampling.temperature is {sampling.temperature}: a policy that is always sure has nothing to learn from; sample with 1.0"
        )
    if gradient is not None and (lora or asynchrony().staleness):
        odd = "lora" if lora else "asynchrony"
        raise UserError(
            f"rl.gradient goes back to all weights of the last update, which rl.{odd} does not leave in place: leave out one of the two"
        )
    if exchange and not policies:
        raise UserError(f"rl.exchange is {exchange}, and there is one policy: name two or more in rl.policies")
    one_policy_alone(  # before models and engines are loaded; `compose` asks it about its own arguments
        policies,
        {
            "asynchrony": bool(asynchrony().staleness),
            "router_replay": router_replay,
            "control": control is not None,
            "ratings": bool(ratings),
            "generation": generation is not None,
        },
    )
    method: dict[str, Any] = dict(
        needs=frozenset(stage.needs),
        seed=stage.seed,
        device=device,
        steps=steps,
        optim=optim(optimizer, steps * epochs * minibatches),
        prompts_per_step=prompts_per_step,
        samples_per_prompt=samples_per_prompt,
        tokens_per_microbatch=tokens_per_microbatch,
        epochs=epochs,
        minibatches=minibatches,
        gradient_checkpointing=gradient_checkpointing,
        router_loss=router_loss,
        refill=refill,
        max_unscorable=max_unscorable,
        critic=critic.loss,
        critic_optim=optim(replace(optimizer, kind="adamw", lr=critic.lr), steps * critic.passes),
        critic_lambda=critic.lam,
        critic_passes=critic.passes,
        critic_warmup=critic.warmup,
        turn_budget=turn_budget,
        group_transforms=group_transforms,
        curriculum=curriculum,
        filters=filters,
        rewards=rewards,
        advantage=advantage,
        ratio=ratio,
        corrections=corrections,
        policy_loss=policy_loss,
        regularisers=regularisers,
        gradient=gradient,
        world=world,
        policies=policies,
        lora=lora if policies else {},
        exchange=exchange,
    )
    if control is not None:
        given = dict(
            teacher=teacher,
            lora=lora,
            router_loss=router_loss,
            router_replay=router_replay,
            judge=judge,
            ratings=ratings,
            turn_budget=turn_budget,
            group_transforms=group_transforms,
            gradient_checkpointing=gradient_checkpointing,
            shards=shards,
            asynchrony=asynchrony(),
            generation=generation,
        )
        _act(stage, control, method, given, sampling.temperature, max_steps, max_mismatch, checkpoint_every)
        return
    sources = ["questions"] * include_questions + ["problems"] * include_families
    held = {e.piece.rpartition("/")[2] for e in envs}
    audited = env_audit.Sampled() if world.first else None
    problems = Problems(_known(stage, sources, held, include_questions, audited))
    if not problems:
        raise UserError(
            "rl: there is no problem of the split train: raise n_train of the stage questions, or name files of your own in rl.files"
        )
    if lacking := sorted({p.env for p in problems} - held):
        raise UserError(
            f"rl: problems are played in the environment {lacking[0]}, which rl.envs does not hold: add {{piece: {lacking[0]}}}"
        )
    others = env_audit.gate(audited, accept) if audited is not None else {}
    more = len(problems) if refill == "until_full" else prompts_per_step * refill  # most problems drawn for a step
    answers = steps * samples_per_prompt * (prompts_per_step + (more if filters else 0))
    judging = judge and world.first
    referee = _referee(stage, judge, problems, [*rewards, *filters, advantage], answers) if judging else None
    way = _way(generation, engine.name, stage.needs, group_transforms=group_transforms, router_replay=router_replay)
    first = first_on(lora, device)
    policy, tokenizer = load_model(stage.input("sft", "model"), dtype=dtype, device=first, longest=sampling.max_tokens)
    adapt(policy, {} if policies else lora, seed=seed_for(stage.seed, "rl", "lora"), device=device)
    if router_replay:
        if engine.name != "torch":
            raise UserError(
                f"rl: router_replay is on, and the experts that {engine.name} chooses are not known here: set engine.name=torch, or leave router_replay out"
            )
        Replay.of(policy)
    single = teacher if isinstance(teacher, str) else ""
    reference = (
        load_reference(stage, single, tokenizer, dtype, device, lora)
        if "reference" in stage.needs or (single and "teachers" not in stage.needs)
        else None
    )
    renderer = Renderer(tokenizer)
    _begin(way, (policy, reference), renderer, stage.input("sft", "model"))
    teachers = _taught_by(stage, teacher, tokenizer, dtype, device, sampling.temperature)
    hosts = tools.hosts(envs)
    _roles_fit(plays(policies), {p.env: getattr(hosts[p.env], "roles", ()) for p in problems})
    how = asynchrony()
    if how.staleness and world.mesh is not None:
        raise UserError("rl: what plays beside the learner needs whole weights: set shards=1, or asynchrony to sync")
    sampled = (
        copy.deepcopy(policy) if how.staleness else policy
    )  # to run concurrently with the learner, the sampler needs its own weights
    searching = knowledge.opener(stage, **sampling.tool())
    beside = playing(stage, players if world.first else 1, envs, hosts, searching, ray if world.first else "")
    player = Player(
        sampler=way.sampler(sampled, renderer)
        if way is not None
        else engines.sampler(
            engine.name if world.first else "torch",
            sampled,
            renderer.end_id,
            folder=stage.input("sft", "model"),
            work=stage.work / "weights",
            max_length=sampling.max_tokens,
            dtype=dtype,
            memory=engine.memory,
            rank=widest(policies, lora) if policies else 0 if lora.get("base") else lora.get("rank", 0),
            policies=tuple(policies),
            samplers=samplers,
            devices=engines.devices_for(samplers, device, learners),
            transport=transport,
            device=device,
        ),
        renderer=renderer,
        envs=hosts,
        concurrent_batches=engine.concurrent_batches,
        calls=engine.tool_calls,
        tools=tools.bound(searching(), hosts.values()) if world.first else {},
        max_tokens=sampling.max_tokens,
        sampling=sampling.turn(),
        players=beside,
    )

    if ratings:
        problems = _rated(stage, ratings, problems, player, tokenizer, dtype, device)

    composed = compose(
        policy=policy,
        reference=reference,
        teachers=teachers,
        body=lambda: load_model(stage.input("sft", "model"), dtype=dtype, device=device)[0],
        player=player,
        problems=problems,
        **method,
        **({} if way is None else {"read": way.read}),
        judge=referee.rewarded if referee else None,
        after=lambda step, metrics: _watch(stage, curve.rows, max_mismatch, step, metrics),
    )
    experience, curve = (
        composed.experience,
        Curve(stage, steps, shown=("reward", "entropy"), device=device, dtype=dtype),
    )
    ahead = Ahead(experience, policy, how, steps) if how.staleness and world.first else None
    played = {"experience": ahead or experience} if world.first else {}
    with beside or nullcontext(), ahead or nullcontext():
        drive(
            [replace(composed.round, source=followed(ahead, world, device)) if ahead else composed.round],
            composed.roles,
            curve,
            every=checkpoint_every,
            parts={**{k: v for k, v in composed.parts.items() if k != "experience"}, **played},
            last=False,  # the last step is always played in this process: episodes.jsonl shows its rollouts
        )
    if not policies:
        composed.roles["policy"].publish()
    if not world.first:
        return
    curve.close()
    save_model(policy, tokenizer, stage.out / "model", adapters=next(iter(policies), NAME))
    for name in policies:
        save_adapters(policy, stage.out / "policies" / name, name)
    _show(stage, experience.groups, judged=referee is not None)
    stage.card(
        {
            **_counted(policy, problems, steps, curve),
            **({"policies": _each(composed.roles, curve, plays(policies))} if policies else {}),
            **({"judge": {"model": referee.endpoint.model, "attacks": referee.attacks}} if referee else {}),
            **({"audit": others} if others else {}),
        }
    )
    if referee:
        stage.log(
            {f"judge/{name}": float(n) for name, n in referee.spent.items()}
        )  # not an output: requests repeated after a kill would make it differ


def _known(
    stage: Stage,
    sources: Sequence[str],
    held: Container[str],
    include_questions: bool,
    audited: env_audit.Sampled | None,
) -> Iterator[Problem]:
    """The problems to train on, of the tables of these stages; if there are questions, families without an environment in this
    run are left out. audited: is given all that an environment of this run plays."""
    for name in sources:
        for p in tables.each(stage.input(name, "problems.parquet"), Problem):
            if audited is not None and p.env in held:
                audited.add(p)
            if p.split == "train" and (p.env in held or name == "questions" or not include_questions):
                yield p


def _act(
    stage: Stage,
    control: Any,
    method: dict[str, Any],
    given: Mapping[str, Any],
    temperature: float,
    max_steps: int,
    max_mismatch: float,
    checkpoint_every: int,
) -> None:
    """The same step of learning for a policy that writes no tokens."""
    from tasks.models.control import start
    from tasks.models.samples import shown
    from tasks.pages.samples import whole

    begin = start(
        control,
        seed=stage.seed,
        needs=frozenset(stage.needs),
        temperature=temperature,
        device=method["device"],
        max_steps=max_steps,
        knobs=given,
    )
    samples = shown(begin.world, method["steps"])

    def after(step: int, metrics: Mapping[str, float]) -> None:
        _watch(stage, curve.rows, max_mismatch, step, metrics)
        if samples:
            samples.see(step, composed.experience.groups)

    composed = compose(
        policy=begin.policy,
        reference=begin.reference,
        body=begin.body,
        read=begin.read,
        read_value=begin.read_value,
        player=begin.player,  # type: ignore[arg-type] (it stands where a Player does)
        problems=begin.problems,
        after=after,
        **{k: v for k, v in method.items() if k not in ("gradient_checkpointing", "router_loss", "turn_budget")},
    )
    curve = Curve(stage, method["steps"], shown=("reward", "entropy"), device=method["device"], dtype="float32")
    world = method["world"]
    parts = {**composed.parts, **({"samples": samples} if samples else {})}
    drive(
        [composed.round],
        composed.roles,
        curve,
        every=checkpoint_every,
        parts=parts if world.first else {k: v for k, v in parts.items() if k not in ("experience", "samples")},
        last=False,
    )
    if not world.first:
        return
    curve.close()
    begin.save(stage.out / "model")
    _show(stage, composed.experience.groups)
    if samples:
        samples.write(stage, whole(samples.rows, stage.recipe, stage.seed))
    stage.card(
        {
            **_counted(begin.policy, begin.problems, method["steps"], curve),
            "env_steps": int(sum(r["tokens"] for r in curve.rows)),
            **({"samples": len(samples.rows)} if samples else {}),
        }
    )


def _watch(
    stage: Stage, rows: Sequence[Mapping[str, float]], max_mismatch: float, step: int, metrics: Mapping[str, float]
) -> None:
    """After a step: stops the run if sampler and learner disagree, and warns about suspicious numbers."""
    if not metrics.get("lag_max"):  # rollouts of older weights differ by the updates since
        stop_beyond(metrics, step, max_mismatch)
    for name, warning in alarms([*rows, metrics]).items():
        print(f"warning: rl, step {step}: {warning}", file=sys.stderr)
        stage.log({f"alarm/{name}": 1.0}, step=step)


def _show(stage: Stage, groups: Sequence[Group], *, judged: bool = False) -> None:
    """Writes the rollouts of the last step, for a person to read."""
    with (stage.out / "episodes.jsonl").open("w", encoding="utf-8") as f:
        for group in groups:
            for r in group.rollouts:
                score = r.score.value if isinstance(r.score, Scored) else r.score.reason
                verdict = {"judge": r.score.parts.get("judge")} if judged and isinstance(r.score, Scored) else {}
                who = [f"{s.speaker}: {s.policy}" for s in r.segments if s.policy]
                by = {"turns": who} if who else {}
                shown = {
                    "problem": r.problem.id,
                    "answer": r.problem.answer,
                    "score": score,
                    **verdict,
                    **by,
                    "text": r.text,
                }
                f.write(json.dumps(shown, ensure_ascii=False) + "\n")


def _counted(policy: Any, problems: Sequence[Problem], steps: int, curve: Curve) -> dict[str, Any]:
    """The entries that every card of the stage has."""
    mismatch = curve.mean("mismatch_kl")  # nan if no step had anything to learn
    ids = ListDigest()
    for p in problems:
        ids.add(p.id)
    return {
        "parameters": n_parameters(policy),
        "problems": len(problems),
        "steps": steps,
        "rollouts": int(sum(r["rollouts"] for r in curve.rows)),
        "groups_dropped": sum(r["groups_dropped"] for r in curve.rows),
        "reward_first": round(float(curve.rows[0]["reward"]), 4) if curve.rows else None,
        "reward_last": round(curve.mean("reward"), 4),
        "mismatch_kl": None if math.isnan(mismatch) else float(f"{mismatch:.3g}"),
        "trained_on": ids.name(),
    }


def _roles_fit(played: Mapping[str, str], roles: Mapping[str, Sequence[str]]) -> None:
    """Raises UserError if a role of an environment has no policy, or a policy has no role."""
    for env, names in roles.items() if played else ():
        if not names:
            raise UserError(
                f"rl.policies: problems are played in the environment {env}, which has no roles: choose environments that have some, and leave "
                "out the problems of others (include_questions: false)"
            )
        if lacking := [name for name in names if name not in played]:
            raise UserError(
                f"rl.policies: nobody plays {lacking[0]!r} in the environment {env}: {nearest(lacking[0], played)}"
            )
    known = {name for names in roles.values() for name in names}
    for role, policy in played.items():
        if role not in known:
            raise UserError(f"rl.policies: {policy} plays {role!r}, which no environment has: {nearest(role, known)}")


def _each(team: Mapping[str, Any], curve: Curve, played: Mapping[str, str]) -> dict[str, Any]:
    """The card's entry for each of several policies; `evaluate` reads its roles here."""
    return {
        name: {
            "roles": [role for role, policy in played.items() if policy == name],
            "parameters": sum(p.numel() for p in one.weights.values()),
            "updates": one.learner.step_count,
            "reward_last": round(curve.mean(f"{name}/reward"), 4),
        }
        for name, one in team.items()
    }


def _begin(way: Any, networks: Iterable[Any], renderer: Renderer, folder: Any) -> None:
    """Gives the networks the layers that a way of generation needs, with the weights that the model's folder has for them."""
    for network in networks:
        if way is not None and network is not None:
            way.begin(network, renderer, folder)


def _way(generation: Any, engine: str, needs: Iterable[str], **used: Any) -> Any:
    """How the model writes a turn, None for one token after another. Raises UserError beside what reads tokens alone."""
    if generation is None:
        return None
    if engine != "torch":
        raise UserError(f"rl.generation: {engine} writes one token after another: set engine.name=torch")
    if odd := sorted(knob for knob, there in used.items() if there):
        raise UserError(f"rl.{odd[0]} reads and writes plain tokens: leave it out, or leave out rl.generation")
    if odd := sorted(set(needs) - {"reference", "old", "entropy", "sampling_entropy"}):
        raise UserError(
            f"rl.generation: a piece needs {odd[0]!r}, which is known of plain tokens alone: leave that piece out, or the generation"
        )
    return generation()


def _rated(
    stage: Stage,
    ratings: Mapping[str, Any],
    problems: Sequence[Problem],
    player: Player,
    tokenizer: Any,
    dtype: str,
    device: str,
) -> Problems:
    """The problems with the solve rates of two checkpoints, which must share the policy's tokenizer."""
    from tasks.models.ratings import rated

    def player_of(folder: str) -> Player:
        model, theirs = load_model(named_by_user(stage, folder), dtype=dtype, device=device)
        if theirs.get_vocab() != tokenizer.get_vocab():
            raise UserError(
                f"rl.ratings: {folder} has another tokenizer than the policy: name a checkpoint of the same family"
            )
        sampler = engines.sampler(
            "torch",
            model,
            player.renderer.end_id,
            folder=stage.input("sft", "model"),
            work=stage.work / "ratings",
            max_length=player.max_tokens,
            dtype=dtype,
            memory=0.0,
        )
        return replace(player, sampler=sampler)

    return rated(ratings, problems, player_of, seed_for(stage.seed, "rl", "ratings"))


def _referee(
    stage: Stage, judge: Mapping[str, Any], problems: Sequence[Problem], readers: list[Any], answers: int
) -> Any:
    """The judge of the knob, after the attacks. Raises UserError if it fails them, and if none of the pieces `readers`
    reads its part."""
    from tasks.models import judge as judges

    if not any(repr(judges.PART) in str(piece.keywords) for piece in readers):
        raise UserError(
            "rl.judge: no piece reads what the judge says, the part `judge` of a score: set rl.rewards, for example to "
            "[{piece: weighted_parts, parts: [value, judge], weights: [1.0, 0.5]}]"
        )
    return judges.rewarding(stage, judge, problems, answers)


def _taught_by(stage: Stage, teacher: str | list, tokenizer: Any, dtype: str, device: str, temperature: float) -> Any:
    """The teachers that pieces distil from, or None. Raises UserError if a list of them is given and no piece reads
    it."""
    if "teachers" not in stage.needs:
        if isinstance(teacher, list):
            raise UserError(
                "rl.teacher is a list, which only pieces that distil whole distributions read: add {piece: distil} to "
                "rl.regularisers, or name one model"
            )
        return None
    if not teacher:
        raise UserError(
            "rl.teacher is empty, and {piece: distil} learns from it: name a model folder or a Hub name, or a list of teachers"
        )
    from tasks.models.teachers import teachers

    return teachers(stage, teacher, tokenizer, dtype, device, temperature)


def load_reference(stage: Stage, teacher: str, tokenizer: Any, dtype: str, device: str, lora: Mapping[str, Any]) -> Any:
    """The reference model of KL terms: the SFT model (quantised if the policy's base is), or a teacher. Raises
    UserError for a teacher with another tokenizer."""
    if not teacher:
        model, _ = load_model(stage.input("sft", "model"), dtype=dtype, device=first_on(lora, device))
        quantise(model, lora.get("base", ""), device)
        return model.to(device)
    model, theirs = load_model(named_by_user(stage, teacher), dtype=dtype, device=device)
    if theirs.get_vocab() != tokenizer.get_vocab():
        raise UserError(
            f"rl: the teacher {teacher} has another tokenizer than the policy: its log-probs are of other tokens; choose a teacher of the "
            "same family, or learn from its texts with sft"
        )
    return model
