"""The stage `reward`: a reward model on the cleaned pairs, measured on the verified pairs of held-out problems."""

# pyright: reportInvalidTypeForm=false
# (a knob that is a piece is annotated with its kind, `Piece("advantage")`, which the plan reads)

from __future__ import annotations

import json
from itertools import islice
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from safetensors.torch import save_file
from torch import nn

from synth.knowledge.kb import Passage
from synth.preferences.ledger import Spilled
from synth.types import ListDigest, Message, PreferencePair, Problem, seed_for
from tasks.core.errors import UserError
from tasks.knowledge import knowledge
from tasks.models import tools
from tasks.models.openings import opening, problem_tables
from tasks.rows.columns import columns
from tasks.rows.ratings import ratings
from tasks.rows.read import too_long
from tasks.planning.pieces import Piece, Pieces, Place
from tasks.planning.settings import Optimizer, Sampling
from tasks.runtime.stage import Stage
from tasks.runtime.train_loop import Curve, drive, make_repeatable, optim, shuffled, together
from tasks.storage import tables
from training.learner.learner import Learner
from training.learner.loop import Round
from training.learner.pack import Row, pack
from training.learner.spilled import SpilledRows
from training.learner.rows import prompt_ids
from training.model.model import load_model, n_parameters, save_model
from training.model.render import Renderer
from training.preference.objective import columns_of
from training.preference.reward_metrics import best_of, measures, over_optimised
from training.preference.reward_model import RewardObjective, new_reward_model
from training.preference.reward_rows import VERDICT, RewardRows
from training.rollout.opening import Opening
from training.rollout.play import Player
from training.rollout.torch_sampler import TorchSampler
from training.types import Rollout

PROVIDES: set[str] = set()


def reward(
    stage: Stage,
    *,
    dtype: str = "float32",
    device: str = "cpu",
    learners: Place() = 1,
    shards: Place() = 1,
    steps: int = 80,
    pairs_per_step: int = 16,
    tokens_per_microbatch: int = 16384,
    max_length: int = 512,
    optimizer: Optimizer = Optimizer(lr=5e-4, weight_decay=0.01),
    checkpoint_every: int = 40,
    loss: Piece("preference_loss") = {"piece": "bradley_terry"},
    head: Piece("reward_head") = None,
    facts: bool = False,
    best_of_n: int = 0,
    best_of_problems: int = 48,
    sampling: Sampling = Sampling(),
    envs: Pieces("env") = [{"piece": "search"}, {"piece": "single"}],
) -> None:
    """Starts from artifacts/sft/model. `facts` follows Sun et al. 2023, "Aligning Large Multimodal Models with Factually
    Augmented RLHF" (arXiv 2309.14525).

    Args:
        dtype: type of the weights: float32 or bfloat16
        device: device of the models: cpu, cuda, or cuda:0
        learners: processes that train together, each on its share of a step's rows; at most one per row, on CUDA each
            with its own device
        shards: number of learners that share one copy of weights, gradients and optimizer state (FSDP; HSDP if fewer
            than all); 1: each learner holds a full copy
        steps: optimizer steps
        pairs_per_step: preference pairs of an optimizer step
        tokens_per_microbatch: most tokens of one pass; affects memory, not the result
        max_length: most tokens of a row; longer rows are left out and counted
        optimizer: the optimizer and the schedule of its learning rate
        checkpoint_every: steps between two checkpoints, from which a killed run resumes
        loss: the pairwise loss
        head: the head that computes the reward; without one the reward is the log-odds of a word
        facts: whether the prompt contains the facts behind the answer: the passages of the problem, or its reference
            answer (a pair's column "facts" takes precedence)
        best_of_n: answers of the SFT model to each held-out problem, from which this model chooses, for n = 1, 2, 4,
            ... (best_of.json); 0: none
        best_of_problems: number of held-out problems for best_of_n
        sampling: how these answers are sampled
        envs: environments in which problems are played, with their knobs
    """
    make_repeatable(stage, device)
    world = together(stage, learners, device, shards)
    begins = opening(stage, envs, knowledge.search(stage))
    told = _Facts(stage, begins) if facts else None
    sides, ids = {"train": Spilled(), "valid": Spilled()}, ListDigest()
    for p in map(begins.pair, tables.each(stage.input("clean", "pairs.parquet"), PreferencePair)):
        ids.add(p.id)
        if told:
            p = replace(p, prompt=(told(p), *p.prompt))
        if p.split in sides:
            sides[p.split].add(p)
    scorer = head() if head is not None else None
    marks, attributes = ratings(sides["train"]) if scorer is not None and scorer.ratings else ({}, ())
    seed = seed_for(stage.seed, "reward", "head")
    if scorer is None:
        model, tokenizer = load_model(stage.input("sft", "model"), dtype=dtype, device=device, longest=max_length)
    else:
        scorer.attributes = attributes
        outputs = scorer.outputs or len(attributes)
        model, tokenizer = new_reward_model(
            stage.input("sft", "model"), outputs, dtype=dtype, device=device, seed=seed, longest=max_length
        )
    judge = RewardRows(Renderer(tokenizer), scorer, max_length, device, tokens_per_microbatch)
    scalars = columns("reward", sides["train"], columns_of(loss)) if columns_of(loss) else {}
    train, valid = (
        SpilledRows(judge.each(stage.progress(sides[side], f"{side} tokens"), of))
        for side, of in (("train", scalars), ("valid", {}))
    )
    too_long(stage, len(sides["train"]) - len(train) // 2, len(sides["train"]), "pairs", max_length)
    if not train:
        raise UserError(
            "reward: no cleaned pair of the split train is left (or all are longer than max_length): see artifacts/clean/card.json"
        )
    trained = model if scorer is None else scorer.begin(model, lambda: judge.fit(model, train, sides["train"], marks))
    if world.mesh is not None and trained is not model:
        raise UserError("reward: this head learns beside a body that does not, of which nothing is split: set shards=1")
    learner = Learner(
        trained,
        optim(optimizer, steps),
        read=judge.read,
        world=world,
    )
    order = shuffled(len(train) // 2, pairs_per_step, seed_for(stage.seed, "reward", "order"))
    curve = Curve(stage, steps, shown=("loss", "accuracy"))
    drive(
        [
            Round(
                name="reward",
                role="reward",
                objective=RewardObjective(loss=loss, head=scorer),
                steps=steps,
                rows_per_unit=2,
                tokens_per_microbatch=tokens_per_microbatch,
                source=lambda step: (
                    [pack([train[2 * i + j] for i in order(step) for j in (0, 1)], device=device)],
                    {},
                ),
            )
        ],
        {"reward": learner},
        curve,
        every=checkpoint_every,
    )
    learner.publish()
    if not world.first:
        return
    curve.close()
    _save(stage, trained, model, tokenizer, head, attributes)
    card: dict[str, Any] = {
        "parameters": n_parameters(trained),
        "pairs": len(train) // 2,
        **({"begun_as_stored": begins.as_written} if begins.as_written else {}),
        "steps": steps,
        "accuracy": round(curve.mean("accuracy"), 4),
        "trained_on": ids.name(),
    }
    card |= (
        {"verdict": VERDICT}
        if head is None
        else {"head": head.piece.rpartition("/")[2], "attributes": list(attributes)}
    )
    if fitted := getattr(scorer, "found", None):
        card["found"] = fitted
    if valid:
        r, n = judge.rewards(trained, valid), judge.lengths(sides["valid"])
        measured = measures(r[0::2], r[1::2], n[0::2], n[1::2])
        card["valid_accuracy"], card["valid_pairs"] = round(float((r[0::2] > r[1::2]).mean()), 4), len(valid) // 2
        card["valid"] = {name: None if x is None else round(x, 4) for name, x in measured.items() if name != "accuracy"}
        card["valid_by_source"] = by_source(sides["valid"], valid, r)
    if best_of_n:
        player = _player(stage, dtype, device, max_length, sampling, envs)
        known = (p for path in problem_tables(stage) for p in tables.each(path, Problem))
        held = list(islice((p for p in known if p.split != "train" and p.env in player.envs), best_of_problems))
        card["best_of"] = _best_of(stage, judge, trained, player, held, best_of_n, told)
    stage.card(card)


def by_source(pairs: Sequence[PreferencePair], rows: Sequence[Row], rewards: np.ndarray) -> dict[str, dict[str, float]]:
    """Accuracy on the held-out pairs of each source: pairs of the policy's own answers (`own_answers`) resemble those
    that a reward model scores in use; pairs with a planted error do not."""
    order: dict[str, list[bool]] = {}
    for i in range(0, len(rows), 2):
        name = pairs[rows[i].group].source.partition("/")[0]
        order.setdefault(name, []).append(bool(rewards[i] > rewards[i + 1]))
    return {
        name: {"accuracy": round(sum(right) / len(right), 4), "pairs": len(right)}
        for name, right in sorted(order.items())
    }


def _save(
    stage: Stage, trained: nn.Module, model: nn.Module, tokenizer: Any, head: Any, attributes: Sequence[str]
) -> None:
    """Saves the model in Hugging Face layout, with the kind of its head and the additional weights (those of a
    gate)."""
    folder = stage.out / "model"
    save_model(model, tokenizer, folder)
    if head is None:
        return
    described = {"head": head.piece.rpartition("/")[2], "settings": dict(head.keywords), "attributes": list(attributes)}
    (folder / "head.json").write_text(json.dumps(described, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    own = {
        name: p.detach().contiguous()
        for name, p in trained.named_parameters()
        if trained is not model and p.requires_grad
    } | {name: b.contiguous() for name, b in trained.named_buffers() if trained is not model and "." not in name}
    if own:
        save_file(own, folder / "head.safetensors")


class _Facts:
    """The facts behind a pair's or problem's answer, as a system message."""

    def __init__(self, stage: Stage, begins: Opening) -> None:
        passages = tables.read(stage.input("kb", "passages.parquet"), Passage)
        self.text = {f: p.text for p in passages for f in p.facts}
        self.problems, self.begins = begins.problems, begins

    def __call__(self, pair: PreferencePair) -> Message:
        given = pair.columns.get("facts")
        if given is not None:
            return Message(role="system", content=given if isinstance(given, str) else "\n".join(given))
        if pair.problem not in self.problems:
            raise UserError(
                f"reward: facts: the pair {pair.id} has neither the column 'facts' nor a problem: add one of them"
            )
        return self.of(self.problems[pair.problem])

    def of(self, problem: Problem) -> Message:
        passages = dict.fromkeys(self.text[f] for f in problem.lineage.get("facts", ()) if f in self.text)
        return Message(role="system", content="\n".join(passages) or problem.answer)


def _player(
    stage: Stage,
    dtype: str,
    device: str,
    max_length: int,
    sampling: Sampling,
    envs: Sequence,
) -> Player:
    """A player of the SFT model, from whose answers the reward model chooses."""
    policy, tokenizer = load_model(stage.input("sft", "model"), dtype=dtype, device=device)
    renderer = Renderer(tokenizer)
    played = tools.hosts(envs)
    return Player(
        sampler=TorchSampler(policy, renderer.end_id),
        renderer=renderer,
        envs=played,
        tools=tools.bound(knowledge.search(stage, **sampling.tool()), played.values()),
        max_tokens=max_length - 1,
        sampling=sampling.turn(),
    )


def _best_of(
    stage: Stage,
    judge: RewardRows,
    model: nn.Module,
    player: Player,
    problems: Sequence[Problem],
    n: int,
    told: _Facts | None,
) -> dict[str, Any]:
    """Plays problems, lets the reward model choose an answer and verifies it; writes the curve to best_of.json. Raises
    UserError if no problem is held out."""
    if not problems:
        raise UserError(
            "reward: best_of_n needs held-out problems: raise n_valid or n_test of the stages questions and problems"
        )
    groups = player.play(problems, n, stage.seed, "reward", "best_of")
    proxy, gold = [], []
    for group in groups:
        rows = [judge.dress(_row(judge.renderer, r, told)) for r in group.rollouts]
        fits = np.array([len(r.ids) <= judge.max_length for r in rows])
        rewards = np.full(len(rows), np.nan)
        if fits.any():
            rewards[fits] = judge.rewards(model, [r for r, f in zip(rows, fits, strict=True) if f])
        proxy.append(rewards[fits])
        gold.append(group.rewards[fits])
    curve = best_of(proxy, gold, [2**i for i in range(n.bit_length()) if 2**i <= n])
    (stage.out / "best_of.json").write_text(json.dumps(curve, indent=1) + "\n", encoding="utf-8")
    rounded = [{key: round(value, 4) for key, value in point.items()} for point in curve]
    return {"curve": rounded, "lost_beyond_the_peak": round(over_optimised(curve), 4)}


def _row(renderer: Renderer, rollout: Rollout, told: _Facts | None) -> Row:
    """The row of a rollout as the reward model reads it: with facts, the prompt is rendered again after them."""
    start, *rest = rollout.segments
    ids = (
        start.ids
        if told is None
        else prompt_ids(renderer, (told.of(rollout.problem), *told.begins.of(rollout.problem)))
    )
    parts = [(ids, False), *((s.ids, s.role == "model") for s in rest)]
    return Row(
        ids=np.concatenate([p for p, _ in parts]), trainable=np.concatenate([np.full(len(p), on) for p, on in parts])
    )
