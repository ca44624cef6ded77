"""The stage `rl`: reinforcement learning of a policy on the training questions, played with the real search tool."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

from synth.types import Problem, Sampling, Scored, digest, seed_for
from tasks.errors import UserError
from tasks.knowledge import knowledge
from tasks.models import engines, tools
from tasks.models.openings import hosts as hosts_of
from tasks.planning.pieces import Piece, Pieces
from tasks.runtime.stage import Stage
from tasks.runtime.train_loop import Curve, drive, make_repeatable
from tasks.storage import tables
from training.learner.learner import Optim
from training.model.lora import adapt
from training.model.model import load_model, n_parameters, save_model
from training.model.render import Renderer
from training.rl.ahead import Ahead
from training.rl.compose import compose
from training.rollout.mismatch import stop_beyond
from training.rollout.play import Player

ONLY_WITH = {"tasks.models.judge": "judge"}  # imported only where this knob is set: read by the plan
# What a piece's NEEDS may name here, and the knob without which it is not there; "observation": every piece of that kind.
PROVIDES = {
    "reference": "",
    "old": "",
    "entropy": "",
    "sampling_entropy": "",
    "chance": "",
    "distribution": "",
    "value": "critic",
    "observation": "",
}


def rl(
    stage: Stage,
    *,
    include_families: bool = False,
    include_questions: bool = True,
    dtype: str = "float32",
    device: str = "cpu",
    steps: int = 110,
    prompts_per_step: int = 16,
    samples_per_prompt: int = 8,
    tokens_per_microbatch: int = 16384,
    gradient_checkpointing: bool = False,
    lora: dict = {},  # noqa: B006
    optimizer: str = "adamw",
    lr: float = 1e-3,
    matrix_lr: float = 0.01,
    warmup: int = 5,
    decay: str = "linear",
    weight_decay: float = 0.0,
    max_grad_norm: float = 1.0,
    epochs: int = 1,
    minibatches: int = 1,
    refill: int = 0,
    temperature: float = 1.0,
    max_turn_tokens: int = 48,
    max_tokens: int = 512,
    search_top_k: int = 3,
    engine: str = "torch",
    engine_memory: float = 1.0,
    overlap: Piece("overlap") = {"piece": "sync"},
    concurrent_batches: int = 1,
    tool_calls: int = 1,
    max_unscorable: float = 0.02,
    max_mismatch: float = 0.05,
    checkpoint_every: int = 20,
    teacher: str = "",
    critic: Piece("value_loss") = None,
    critic_lr: float = 1e-3,
    critic_lambda: float = 1.0,
    critic_warmup: int = 0,
    turn_budget: Piece("turn_budget") = None,
    group_transforms: Pieces("group_transform") = [],
    envs: Pieces("env") = [{"piece": "search"}, {"piece": "single"}],
    curriculum: Piece("curriculum") = {"piece": "uniform"},
    filters: Pieces("filter") = [],
    judge: dict = {},  # noqa: B006
    rewards: Pieces("reward") = [],
    advantage: Piece("advantage") = {"piece": "grpo"},
    ratio: Piece("ratio") = {"piece": "token"},
    corrections: Pieces("correction") = [],
    policy_loss: Piece("policy_loss") = {"piece": "clip"},
    regularisers: Pieces("regulariser") = [],
) -> None:
    """Starts from artifacts/sft/model. Rollouts are drawn from the whole distribution at `temperature`: the policy
    gradient is that of the distribution that was sampled, and a truncated one (top-p, top-k) has a support of its own
    at every token, which the learner's log-probs would not know.

    Args:
        include_families: whether problems of the stage `problems` are played: of the verifiable families, and your own
        include_questions: whether questions over the knowledge base are played
        dtype: type of the weights: float32 or bfloat16
        device: where models are: cpu, cuda, or cuda:0
        steps: steps of play and learning
        prompts_per_step: training questions of a step
        samples_per_prompt: rollouts of each question: a group
        tokens_per_microbatch: most tokens of one pass; it changes memory and not the result
        gradient_checkpointing: computes activations again in the backward pass: less memory for about a third more
            time
        lora: adapters in the place of all weights: rank, alpha, modules (training/model/lora.py); empty trains all
        optimizer: adamw, or muon for matrices and AdamW for the rest
        lr: learning rate of AdamW at its highest
        matrix_lr: learning rate of Muon for matrices; read where the optimizer is muon
        warmup: steps over which the learning rate rises from 0
        decay: how the learning rate falls after the warmup: linear, cosine or constant
        weight_decay: decoupled weight decay of matrices
        max_grad_norm: gradients with a larger norm are scaled down to it
        epochs: passes over the rollouts of a step
        minibatches: optimizer steps of one pass
        refill: how often groups that filters drop are replaced by others
        temperature: of sampling
        max_turn_tokens: most tokens of one turn of the model
        max_tokens: most tokens of a conversation
        search_top_k: passages that a search shows
        engine: who samples: torch, vllm (in this process), or the URL of a vLLM server on this machine
            (docs/engines.md)
        engine_memory: GiB for keys and values of the engine
        overlap: how far sampling runs ahead of learning
        concurrent_batches: batches of conversations that are in flight at a time, for tools that take their time
        tool_calls: environments of a batch that are at work at a time
        max_unscorable: largest share of rollouts without a score before the stage stops
        max_mismatch: largest KL between sampler and learner, in nats per token of on-policy steps, before the run
            stops
        checkpoint_every: steps between two checkpoints, from which a killed run goes on
        teacher: model folder or Hub name with the same tokenizer that takes the place of the SFT model as the
            reference of KL terms
        critic: loss of a value model that starts from the SFT model too; none trains no critic
        critic_lr: learning rate of the critic
        critic_lambda: lambda of the critic's returns
        critic_warmup: first steps in which the critic learns and the policy waits
        turn_budget: tokens of a turn as training goes on, in the place of max_turn_tokens
        group_transforms: changes of groups after they were played
        envs: environments that problems are played in, with their knobs
        curriculum: which problems come next
        filters: which groups are trained on
        judge: a model behind an endpoint that gives each score the part "judge", how many of the group's other
            answers this one beats; it must stand the attacks before the first rollout (tasks/models/judge.py has the
            keys)
        rewards: shaping of the rewards, in order
        advantage: the advantage estimator
        ratio: the log-ratio of the policy to the one before the update
        corrections: importance-sampling weights where sampler and learner disagree
        policy_loss: the loss of the policy
        regularisers: losses beside it
    """
    make_repeatable(stage, device)
    if temperature <= 0:
        raise UserError(
            f"rl: temperature is {temperature}: a policy that is always sure has nothing to learn from; sample with 1.0"
        )
    asked = ["questions"] * include_questions + ["problems"] * include_families
    problems = [
        p for name in asked for p in tables.read(stage.input(name, "problems.parquet"), Problem) if p.split == "train"
    ]
    if not problems:
        raise UserError(
            "rl: there is no problem of the split train: raise n_train of the stage questions, or name files of your own in rl.files"
        )
    if lacking := sorted({p.env for p in problems} - {e.piece.rpartition("/")[2] for e in envs}):
        raise UserError(
            f"rl: problems are played in the environment {lacking[0]}, which rl.envs does not hold: add {{piece: {lacking[0]}}}"
        )
    answers = steps * prompts_per_step * samples_per_prompt * (1 + (refill if filters else 0))
    referee = _referee(stage, judge, problems, [*rewards, *filters, advantage], answers) if judge else None
    policy, tokenizer = load_model(stage.input("sft", "model"), dtype=dtype, device=device)
    reference = (
        load_reference(stage, teacher, tokenizer, dtype, device) if teacher or "reference" in stage.needs else None
    )
    adapt(policy, lora, seed=seed_for(stage.seed, "rl", "lora"))
    renderer = Renderer(tokenizer)
    hosts = hosts_of(envs)
    how = overlap()
    sampled = (
        copy.deepcopy(policy) if how.staleness else policy
    )  # beside the learner the sampler needs weights of its own
    player = Player(
        sampler=engines.sampler(
            engine,
            sampled,
            renderer.end_id,
            folder=stage.input("sft", "model"),
            work=stage.work / "weights",
            max_length=max_tokens,
            dtype=dtype,
            memory=engine_memory,
        ),
        renderer=renderer,
        envs=hosts,
        concurrent_batches=concurrent_batches,
        calls=tool_calls,
        tools=tools.bound(knowledge.search(stage, k=search_top_k), hosts.values()),
        max_tokens=max_tokens,
        sampling=Sampling(temperature=temperature, max_tokens=max_turn_tokens),
    )
    decayed = partial(
        Optim, warmup=warmup, decay=decay, final=0.1, weight_decay=weight_decay, max_grad_norm=max_grad_norm
    )

    def watch(step: int, metrics: Mapping[str, float]) -> None:
        if not metrics.get("lag_max"):  # what older weights wrote differs by what was learned since
            stop_beyond(metrics, step, max_mismatch)

    made = compose(
        policy=policy,
        reference=reference,
        body=lambda: load_model(stage.input("sft", "model"), dtype=dtype, device=device)[0],
        player=player,
        problems=problems,
        needs=frozenset(stage.needs),
        seed=stage.seed,
        device=device,
        steps=steps,
        optim=decayed(kind=optimizer, lr=lr, matrix_lr=matrix_lr, steps=steps * epochs * minibatches),
        prompts_per_step=prompts_per_step,
        samples_per_prompt=samples_per_prompt,
        tokens_per_microbatch=tokens_per_microbatch,
        epochs=epochs,
        minibatches=minibatches,
        gradient_checkpointing=gradient_checkpointing,
        refill=refill,
        max_unscorable=max_unscorable,
        critic=critic,
        critic_optim=decayed(lr=critic_lr, steps=steps),
        critic_lambda=critic_lambda,
        critic_warmup=critic_warmup,
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
        judge=referee.rewarded if referee else None,
        after=watch,
    )
    experience, curve = made.experience, Curve(stage, steps, shown=("reward", "entropy"), device=device, dtype=dtype)
    ahead = Ahead(experience, policy, how, steps) if how.staleness else None
    with ahead or nullcontext():
        drive(
            [replace(made.round, source=ahead) if ahead else made.round],
            made.roles,
            curve,
            every=checkpoint_every,
            parts={**made.parts, "experience": ahead or experience},
            last=False,  # the last step is always played here: episodes.jsonl shows its rollouts
        )
    curve.close()
    save_model(policy, tokenizer, stage.out / "model")
    with (stage.out / "episodes.jsonl").open("w", encoding="utf-8") as f:
        for group in experience.groups:
            for r in group.rollouts:
                score = r.score.value if isinstance(r.score, Scored) else r.score.reason
                said = {"judge": r.score.parts.get("judge")} if referee and isinstance(r.score, Scored) else {}
                shown = {"problem": r.problem.id, "answer": r.problem.answer, "score": score, **said, "text": r.text}
                f.write(json.dumps(shown, ensure_ascii=False) + "\n")
    mismatch = curve.mean("mismatch_kl")  # nan where no step had anything to learn
    stage.card(
        {
            "parameters": n_parameters(policy),
            "problems": len(problems),
            "steps": steps,
            "rollouts": int(sum(r["rollouts"] for r in curve.rows)),
            "groups_dropped": sum(r["groups_dropped"] for r in curve.rows),
            "reward_first": round(float(curve.rows[0]["reward"]), 4) if curve.rows else None,
            "reward_last": round(curve.mean("reward"), 4),
            "mismatch_kl": None if math.isnan(mismatch) else float(f"{mismatch:.3g}"),
            **({"judge": {"model": referee.endpoint.model, "attacks": referee.attacks}} if referee else {}),
            "trained_on": digest([p.id for p in problems]),
        }
    )
    if referee:
        stage.log(
            {f"judge/{name}": float(n) for name, n in referee.spent.items()}
        )  # what was asked again after a kill differs: no output


def _referee(stage: Stage, judge: Mapping[str, Any], problems: list[Problem], readers: list[Any], answers: int) -> Any:
    """The judge of the knob, trusted. Raises UserError where it cannot be, and where none of the pieces `readers` names
    its part."""
    from tasks.models import judge as judges

    if not any(repr(judges.PART) in str(piece.keywords) for piece in readers):
        raise UserError(
            "rl.judge: no piece reads what the judge says, the part `judge` of a score: set rl.rewards, for example to "
            "[{piece: weighted_parts, parts: [value, judge], weights: [1.0, 0.5]}]"
        )
    return judges.rewarding(stage, judge, problems, answers)


def load_reference(stage: Stage, teacher: str, tokenizer: Any, dtype: str, device: str) -> Any:
    """The model that KL terms compare with: the SFT model, or a teacher. Raises UserError for a teacher that reads
    other tokens."""
    if not teacher:
        return load_model(stage.input("sft", "model"), dtype=dtype, device=device)[0]
    source = stage.source(teacher)
    model, theirs = load_model(source if source.is_dir() else teacher, dtype=dtype, device=device)
    if theirs.get_vocab() != tokenizer.get_vocab():
        raise UserError(
            f"rl: the teacher {teacher} has another tokenizer than the policy: its log-probs speak of other tokens; choose a teacher of the "
            "same family, or learn from its texts with sft"
        )
    return model
