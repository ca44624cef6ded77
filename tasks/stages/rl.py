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
from tasks import engines
from tasks.disk import tables
from tasks.errors import UserError
from tasks.learning import Curve, drive, make_repeatable
from tasks.planning.pieces import Piece, Pieces
from tasks.play import knowledge, tools
from tasks.stage import Stage
from training.compose import compose
from training.fidelity import stop_beyond
from training.learner import Optim
from training.lora import adapt
from training.model import load_model, n_parameters, save_model
from training.render import Renderer
from training.rollout.asynchronous import Ahead
from training.rollout.play import Player

ONLY_WITH = {"tasks.play.judges": "judge"}  # imported only where this knob is set: read by the plan
# What a piece's NEEDS may name here, and the knob without which it is not there.
PROVIDES = {
    "reference": "", "old": "", "entropy": "", "behaviour_entropy": "", "greedy": "", "reference_answer": "", "chance": "", "corrupted": "",
    "distribution": "", "effective_rank": "", "concentration": "", "regions": "", "divergence": "", "value": "critic",
}  # fmt: skip


def rl(
    stage: Stage,
    *,
    families: bool = False,
    dtype: str = "float32",
    device: str = "cpu",
    steps: int = 110,
    prompts_per_step: int = 16,
    samples_per_prompt: int = 8,
    tokens_per_microbatch: int = 16384,
    recompute: bool = False,
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
    k: int = 3,
    engine: str = "torch",
    engine_memory: float = 1.0,
    overlap: Piece("training.overlap") = {"piece": "sync"},
    lanes: int = 1,
    tool_calls: int = 1,
    max_unscorable: float = 0.02,
    max_mismatch: float = 0.05,
    checkpoint_every: int = 20,
    teacher: str = "",
    critic: Piece("training.value_loss") = None,
    critic_lr: float = 1e-3,
    critic_lambda: float = 1.0,
    critic_warmup: int = 0,
    turn_budget: Piece("training.schedule") = None,
    guides: Pieces("training.guide") = [],
    envs: Pieces("training.env") = [{"piece": "search"}, {"piece": "single"}],
    curriculum: Piece("training.curriculum") = {"piece": "uniform"},
    filters: Pieces("training.filter") = [],
    judge: dict = {},  # noqa: B006
    rewards: Pieces("training.reward") = [],
    advantage: Piece("training.advantage") = {"piece": "grpo"},
    ratio: Piece("training.ratio") = {"piece": "token"},
    corrections: Pieces("training.correct") = [],
    surrogate: Piece("training.surrogate") = {"piece": "clip"},
    regularisers: Pieces("training.regulariser") = [],
) -> None:
    """Starts from artifacts/sft/model. A step plays `samples_per_prompt` rollouts of `prompts_per_step` training questions (`families`: of
    the verifiable families too); groups that `filters` drop are replaced at most `refill` times. `max_mismatch` is the largest KL between
    sampler and learner (nats per token, on-policy steps) before the run stops; `max_unscorable` the largest share without a score.

    Rollouts are drawn from the whole distribution at `temperature`: the policy gradient is that of the distribution that was sampled, and a
    truncated one (top-p, top-k) has a support of its own at every token, which the learner's log-probs would not know.

    `engine` samples: torch, vllm (in this process) or the URL of a vLLM server on this machine, with `engine_memory` GiB for keys and values
    (docs/engines.md). `overlap` says how far sampling runs ahead of learning. `tool_calls` environments of a wave are at work at a time, and
    `lanes` waves are in flight: for tools that take their time.

    `teacher` (a model folder or Hub name with the same tokenizer) takes the place of the SFT model as the reference of KL terms. `critic`
    is the loss of a value model that starts from the SFT model too; in its first `critic_warmup` steps the policy waits. `guides` may
    change groups after they were played; `turn_budget`, where given, replaces max_turn_tokens step by step. `recompute` and `lora` as in the
    stage `sft`: activation checkpointing, and adapters in the place of all weights.

    `judge` is a model behind an endpoint that must stand the attacks before the first rollout (`tasks/play/judges.py` has the keys): it gives
    each score the part "judge", how many of the group's other answers this one beats, which a piece of `rewards` makes a reward."""
    make_repeatable(stage, device)
    if temperature <= 0:
        raise UserError(f"rl: temperature is {temperature}: a policy that is always sure has nothing to learn from; sample with 1.0")
    problems = [p for p in tables.read(stage.input("questions", "problems.parquet"), Problem) if p.split == "train"]
    if families:
        problems += [p for p in tables.read(stage.input("problems", "problems.parquet"), Problem) if p.split == "train"]
    if not problems:
        raise UserError("rl: there is no problem of the split train: raise n_train of the stage questions")
    answers = steps * prompts_per_step * samples_per_prompt * (1 + (refill if filters else 0))
    referee = _referee(stage, judge, problems, [*rewards, *filters, advantage], answers) if judge else None
    policy, tokenizer = load_model(stage.input("sft", "model"), dtype=dtype, device=device)
    reference = load_reference(stage, teacher, tokenizer, dtype, device) if teacher or "reference" in stage.needs else None
    adapt(policy, lora, seed=seed_for(stage.seed, "rl", "lora"))
    renderer = Renderer(tokenizer)
    hosts = {e.piece.rpartition("/")[2]: e() for e in envs}
    how = overlap()
    sampled = copy.deepcopy(policy) if how.staleness else policy  # beside the learner the sampler needs weights of its own
    player = Player(
        sampler=engines.sampler(
            engine, sampled, renderer.end_id, folder=stage.input("sft", "model"), work=stage.work / "weights", max_length=max_tokens,
            dtype=dtype, memory=engine_memory,
        ), renderer=renderer, envs=hosts, lanes=lanes, calls=tool_calls,
        tools=tools.bound(knowledge.search(stage, k=k), hosts.values()), max_tokens=max_tokens,
        sampling=Sampling(temperature=temperature, max_tokens=max_turn_tokens),
    )  # fmt: skip
    decayed = partial(Optim, warmup=warmup, decay=decay, final=0.1, weight_decay=weight_decay, max_grad_norm=max_grad_norm)

    def watch(step: int, metrics: Mapping[str, float]) -> None:
        if not metrics.get("lag_max"):  # what older weights wrote differs by what was learned since
            stop_beyond(metrics, step, max_mismatch)

    made = compose(
        policy=policy, reference=reference, body=lambda: load_model(stage.input("sft", "model"), dtype=dtype, device=device)[0], player=player,
        problems=problems, needs=frozenset(stage.needs), seed=stage.seed, device=device, steps=steps,
        optim=decayed(kind=optimizer, lr=lr, matrix_lr=matrix_lr, steps=steps * epochs * minibatches), prompts_per_step=prompts_per_step,
        samples_per_prompt=samples_per_prompt, tokens_per_microbatch=tokens_per_microbatch, epochs=epochs, minibatches=minibatches,
        recompute=recompute, refill=refill, max_unscorable=max_unscorable, critic=critic, critic_optim=decayed(lr=critic_lr, steps=steps),
        critic_lambda=critic_lambda, critic_warmup=critic_warmup, turn_budget=turn_budget, guides=guides, curriculum=curriculum,
        filters=filters, rewards=rewards, advantage=advantage, ratio=ratio, corrections=corrections, surrogate=surrogate,
        regularisers=regularisers, judge=referee.rewarded if referee else None, after=watch,
    )  # fmt: skip
    experience, curve = made.experience, Curve(stage, steps, shown=("reward", "entropy"), device=device, dtype=dtype)
    ahead = Ahead(experience, policy, how, steps) if how.staleness else None
    with ahead or nullcontext():
        drive(
            [replace(made.round, source=ahead) if ahead else made.round], made.roles, curve, every=checkpoint_every,
            parts={**made.parts, "experience": ahead or experience},
            last=False,  # the last step is always played here: episodes.jsonl shows its rollouts
        )  # fmt: skip
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
    stage.card({
        "parameters": n_parameters(policy), "problems": len(problems), "steps": steps,
        "rollouts": int(sum(r["rollouts"] for r in curve.rows)), "groups_dropped": sum(r["groups_dropped"] for r in curve.rows),
        "reward_first": round(float(curve.rows[0]["reward"]), 4) if curve.rows else None, "reward_last": round(curve.mean("reward"), 4),
        "mismatch_kl": None if math.isnan(mismatch) else float(f"{mismatch:.3g}"),
        **({"judge": {"model": referee.endpoint.model, "attacks": referee.attacks}} if referee else {}),
        "trained_on": digest([p.id for p in problems]),
    })  # fmt: skip
    if referee:
        stage.log({f"judge/{name}": float(n) for name, n in referee.spent.items()})  # what was asked again after a kill differs: no output


def _referee(stage: Stage, judge: Mapping[str, Any], problems: list[Problem], readers: list[Any], answers: int) -> Any:
    """The judge of the knob, trusted. Raises UserError where it cannot be, and where none of the pieces `readers` names its part."""
    from tasks.play import judges

    if not any(repr(judges.PART) in str(piece.keywords) for piece in readers):
        raise UserError(
            "rl.judge: no piece reads what the judge says, the part `judge` of a score: set rl.rewards, for example to "
            "[{piece: weighted_parts, parts: [value, judge], weights: [1.0, 0.5]}]"
        )
    return judges.rewarding(stage, judge, problems, answers)


def load_reference(stage: Stage, teacher: str, tokenizer: Any, dtype: str, device: str) -> Any:
    """The model that KL terms compare with: the SFT model, or a teacher. Raises UserError for a teacher that reads other tokens."""
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
