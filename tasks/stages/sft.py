"""The stage `sft`: a tokenizer and a base model (made here, or loaded), then supervised fine-tuning on the
demonstrations."""

# pyright: reportInvalidTypeForm=false
# (a knob that is a piece is annotated with its kind, `Piece("advantage")`, which the plan reads)

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from synth.demonstrations.pages import pages
from synth.knowledge.kb import Entity, Passage
from synth.types import Demonstration, ListDigest, Message, digest, seed_for
from tasks.core.errors import UserError
from tasks.knowledge import knowledge
from tasks.models.openings import opening
from tasks.rows.read import Origins, shares, too_long
from tasks.rows.spool import Stream
from tasks.rows.tokens import TokenRows
from tasks.planning.pieces import Piece, Pieces, Place
from tasks.planning.settings import Optimizer
from tasks.runtime.ray_tasks import answers, mapping
from tasks.runtime.stage import Stage
from tasks.runtime.train_loop import Curve, drive, make_repeatable, optim, shuffled, together
from tasks.storage import tables
from tasks.storage.on_disk import OnDisk
from training.learner.learner import Learner, nll, token_stats
from training.learner.loop import Round
from training.learner.pack import Row
from training.learner.rows import demonstration_row, weighted
from training.model.lora import adapt, first_on
from training.model.gguf_header import gguf_of
from training.model.model import load_model, n_parameters, new_model, save_model, train_tokenizer
from training.model.render import Renderer
from training.types import Batch

ONLY_WITH = {"synth.demonstrations.renaming": "made_up_names"}  # imported only where this knob is set: read by the plan


def sft(
    stage: Stage,
    *,
    model: str = "",
    dtype: str = "float32",
    device: str = "cpu",
    vocab_size: int = 1536,
    hidden: int = 128,
    layers: int = 3,
    heads: int = 4,
    kv_heads: int = 2,
    intermediate: int = 384,
    max_length: int = 512,
    init_range: float = 0.02,
    base_steps: int = 350,
    base_lists_steps: int = 80,
    base_rows: int = 64,
    base_facts: int = 2,
    learners: Place() = 1,
    shards: Place() = 1,
    ray: Place() = "",
    steps: int = 900,
    hard_steps: int = 0,
    hard_share: float = 0.3,
    rows_per_step: int = 16,
    tokens_per_microbatch: int = 16384,
    gradient_checkpointing: bool = False,
    router_loss: float = 0.0,
    lora: dict = {},  # noqa: B006
    generation: Piece("generation") = None,
    optimizer: Optimizer = Optimizer(
        kind="muon", lr=4e-3, matrix_lr=0.05, warmup=20, decay="cosine", weight_decay=0.01
    ),
    sft_lr_factor: float = 1.0,
    context_weight: float = 0.2,
    made_up_names: float = 0.0,
    checkpoint_every: int = 100,
    envs: Pieces("env") = [{"piece": "search"}, {"piece": "single"}],
) -> None:
    """Trains a base model on pages of generated worlds if none is given, then fine-tunes on demonstrations of the split
    train.

    Args:
        model: Hub name or folder to start from; empty: a small model is made and trained first
        dtype: type of the weights: float32 or bfloat16
        device: device of the models: cpu, cuda, or cuda:0
        vocab_size: size of the small model's vocabulary
        hidden: its width
        layers: its layers
        heads: its attention heads
        kv_heads: its heads of keys and values
        intermediate: width of its feed-forward layers
        max_length: most tokens of a row; longer rows are left out and counted
        init_range: standard deviation of its initial weights
        base_steps: steps of the small model's training on pages of generated worlds
        base_lists_steps: how many of these steps are on lists of names only
        base_rows: rows per base step
        base_facts: number of facts that each page restates
        learners: processes that train together, each on its share of a step's rows; at most one per row, on CUDA each
            with its own device
        shards: number of learners that share one copy of weights, gradients and optimizer state (FSDP; HSDP if fewer
            than all); 1: each learner holds a full copy
        ray: address of a Ray cluster whose machines tokenise the demonstrations: HOST:PORT, or auto (docs/scaling.md); empty:
            this machine does
        steps: optimizer steps of fine-tuning
        hard_steps: further steps behind them, on the hard demonstrations alone: a second stage of fine-tuning
        hard_share: share of the demonstrations that are hard: those in which the assistant writes most tokens
        rows_per_step: demonstrations per optimizer step
        tokens_per_microbatch: most tokens of one pass; affects memory, not the result
        gradient_checkpointing: recomputes activations in the backward pass: less memory for about a third more time
        router_loss: weight of the load-balancing loss of a mixture of experts, e.g. 0.001; 0: none
        lora: trains adapters instead of all weights: rank, alpha, modules, merge, base (training/model/lora.py); empty
            trains all weights
        generation: how the model writes a turn, if not one token after another: fine-tuning then teaches it that
            (docs/decoders.md); the first training on pages stays as it is
        optimizer: the optimizer and the schedule of its learning rate; also used for the small model's first training
        sft_lr_factor: scales the learning rates of fine-tuning
        context_weight: loss weight of context tokens (prompts and tool results)
        made_up_names: share of demonstrations in which all names are replaced by made-up ones, a new set each time
        checkpoint_every: steps between two checkpoints, from which a killed run resumes
        envs: environments whose opening messages the demonstrations get, so that a model is trained on the prompts that
            it plays with
    """
    if hard_steps and not (steps and 0 < hard_share <= 1):
        raise UserError(
            f"sft: hard_steps is {hard_steps}, a second stage behind the first: steps must be 1 or more (it is {steps}) and hard_share above 0 "
            f"and at most 1 (it is {hard_share:g})"
        )
    make_repeatable(stage, device)
    answers(stage, ray)  # before the base is trained
    world = together(stage, learners, device, shards)
    given = _demonstrations(stage)
    if steps and next(iter(given), None) is None:
        raise UserError(
            "sft: artifacts/demonstrations holds no demonstration of the split train: raise n of the stage demonstrations"
        )
    begins = opening(stage, envs, knowledge.search(stage))
    demos = Stream(len(given), lambda: map(begins.demonstration, given))
    kept_demos = OnDisk(Demonstration, demos if made_up_names else ())  # they are told anew at each step
    told = tellings(stage, kept_demos, made_up_names)
    curve = Curve(stage, (0 if model else base_steps) + steps + hard_steps, shown=("nll",), device=device, dtype=dtype)
    if model:
        if file := gguf_of(model):
            print(
                f"sft: {file} is a GGUF file: its weights are taken out of their quantisation into {dtype}",
                file=sys.stderr,
            )
        policy, tokenizer = load_model(model, dtype=dtype, device=first_on(lora, device), longest=max_length)
        renderer = Renderer(tokenizer)
    else:
        tellable = (
            (told(i, 0)[0] for i in range(len(kept_demos)))
            if made_up_names
            else (d.messages for d in stage.progress(demos, "vocabulary"))
        )
        tokenizer = train_tokenizer(_corpus(stage, tellable), vocab_size)
        renderer = Renderer(tokenizer)
        policy = new_model(
            tokenizer,
            hidden=hidden,
            layers=layers,
            heads=heads,
            kv_heads=kv_heads,
            intermediate=intermediate,
            max_length=max_length,
            init_range=init_range,
            seed=seed_for(stage.seed, "sft", "init"),
        )
        policy = policy.to(device)
        pages_of = page_batches(stage.seed, renderer, base_rows, base_lists_steps, base_facts, context_weight, device)
        learner = Learner(
            policy,
            optim(optimizer, base_steps, final=0.3),
            gradient_checkpointing=gradient_checkpointing,
            world=world,
        )
        drive(
            [
                Round(
                    name="base",
                    role="policy",
                    steps=base_steps,
                    objective=nll,
                    tokens_per_microbatch=tokens_per_microbatch,
                    source=lambda step: ([pages_of(step)], {}),
                )
            ],
            {"policy": learner},
            curve,
            every=checkpoint_every,
        )
        learner.publish(every=True)
    if world.first:
        save_model(policy, tokenizer, stage.out / "base")
    if not steps and not world.first:
        return
    if not steps:  # nothing is fine-tuned: later stages start from the base model
        save_model(policy, tokenizer, stage.out / "model")
        curve.close()
        sizes = {"parameters": n_parameters(policy), "vocabulary": len(tokenizer)}
        return stage.card({**sizes, "base_steps": 0 if model else base_steps, "steps": 0, "trained_on": digest([])})
    begins.as_written = 0  # counted in one pass over all
    origins = Origins(stage.input("demonstrations"))
    with mapping(stage, ray) as imap:
        rows = TokenRows(
            stage.work / "tokens" / str(world.rank),
            stage.progress(demos, "tokens"),
            renderer,
            origins=origins,
            seed=stage.seed,
            context_weight=context_weight,
            max_length=max_length,
            imap=imap,
        )
    long = len(rows.lengths) - len(rows)
    too_long(stage, long, len(rows.lengths), "demonstrations", max_length, int(rows.lengths.max()))
    if not len(rows):
        raise UserError(f"sft: all {long} demonstrations are longer than max_length = {max_length} tokens: raise it")
    last = origins.of([d.id for d in kept_demos])[1]
    drawn = shares(rows.weight, rows.drawn)
    at = shuffled(len(drawn), rows_per_step, seed_for(stage.seed, "sft", "order"))
    hard = hardest(rows.taught[drawn], hard_share) if hard_steps else []
    at_hard = shuffled(max(1, len(hard)), rows_per_step, seed_for(stage.seed, "sft", "hard"))

    def shown(i: int, step: int) -> Row:
        """Row `i` as shown at a step; with its original names if made-up ones make it too long."""
        if not made_up_names:
            return rows[i]
        k = int(rows.kept[i])
        messages, other = told(k, step + 1)
        if not other:
            return rows[i]
        row = demonstration_row(renderer, messages, context_weight, last=bool(last[k]))
        return row if len(row.ids) <= max_length else rows[i]

    adapt(policy, lora, seed=seed_for(stage.seed, "sft", "lora"), device=device)
    way = _way(generation, lora, policy, renderer)
    scaled = replace(optimizer, lr=optimizer.lr * sft_lr_factor, matrix_lr=optimizer.matrix_lr * sft_lr_factor)
    learner = Learner(
        policy,
        optim(scaled, steps + hard_steps, final=0.05),
        gradient_checkpointing=gradient_checkpointing,
        router_loss=router_loss,
        world=world,
        read=token_stats if way is None else way.taught,
    )

    def lessons(step: int) -> list[Row]:
        places = at(step) if step < steps else [hard[j] for j in at_hard(step - steps)]
        picked = [shown(int(drawn[j]), step) for j in places]
        if way is None:
            return picked
        rng = np.random.default_rng(seed_for(stage.seed, "sft", "lessons", step))
        return [way.lesson(row, renderer, rng) for row in picked]

    drive(
        [
            Round(
                name="sft",
                role="policy",
                steps=steps + hard_steps,
                objective=nll if way is None else way.loss,
                tokens_per_microbatch=tokens_per_microbatch,
                source=lambda step: ([weighted(lessons(step), device)], {}),
            )
        ],
        {"policy": learner},
        curve,
        every=checkpoint_every,
    )
    learner.publish()
    if not world.first:
        return
    save_model(policy, tokenizer, stage.out / "model")
    curve.close()
    stage.card(
        {
            "parameters": n_parameters(policy),
            "vocabulary": len(tokenizer),
            "demonstrations": len(rows),
            "too_long": long,
            **({"begun_as_stored": begins.as_written} if begins.as_written else {}),
            "tokens_per_demonstration": round(float(np.mean(rows.lengths[rows.kept])), 1),
            "base_steps": 0 if model else base_steps,
            "steps": steps + hard_steps,
            "epochs": round(steps * rows_per_step / len(drawn), 2),
            **({"hard": {"rows": len(hard), "steps": hard_steps}} if hard_steps else {}),
            "final_nll": round(curve.mean("nll"), 4),
            "trained_on": _trained_on(stage),
        }
    )


def hardest(writes: np.ndarray, share: float) -> list[int]:
    """Places of the share of the rows in which the assistant writes most tokens, in their order; one row at least. writes
    [rows]: these tokens."""
    most = np.argsort(-writes, kind="stable")
    return np.sort(most[: max(1, round(share * len(writes)))]).tolist()


def _way(generation: Any, lora: dict, policy: Any, renderer: Renderer) -> Any:
    """How a turn is written, with its layers in the policy; None for one token after another. Raises UserError for one that is
    not taught, and beside adapters."""
    if generation is None:
        return None
    way = generation()
    if not way.lessons:
        raise UserError(
            f"sft.generation: {generation.piece.rpartition('/')[2]} needs no lessons of its own: leave it out here, and set it in rl and evaluate"
        )
    if lora:
        raise UserError("sft.generation teaches layers of its own beside all weights: leave out sft.lora")
    way.begin(policy, renderer)
    return way


def _demonstrations(stage: Stage) -> Stream[Demonstration]:
    """The demonstrations of the split train, read each time that they are gone through."""
    if not stage.reads("demonstrations"):
        return Stream(0, lambda: iter(()))
    path = stage.input("demonstrations", "demonstrations.parquet")
    n = sum(part["split"].to_pylist().count("train") for part in tables.parts(path, ["split"]))
    return Stream(n, lambda: (t for t in tables.each(path, Demonstration) if t.split == "train"))


def _trained_on(stage: Stage) -> str:
    """The digest of the ids of the demonstrations of the split train."""
    ids = ListDigest()
    for part in tables.parts(stage.input("demonstrations", "demonstrations.parquet"), ["id", "split"]):
        for name, split in zip(part["id"].to_pylist(), part["split"].to_pylist(), strict=True):
            if split == "train":
                ids.add(name)
    return ids.name()


def _corpus(stage: Stage, conversations: Iterable[Sequence[Message]]) -> Iterator[str]:
    """The texts that the tokenizer is made of: the passages, the conversations, pages of generated worlds."""
    if stage.reads("kb"):
        yield from (p.text for p in tables.read(stage.input("kb", "passages.parquet"), Passage))
    yield from (m.content for messages in conversations for m in messages)
    yield from (p.head + p.tail for p in pages(stage.seed, 0, 2000))


def tellings(
    stage: Stage, demos: Sequence[Demonstration], share: float
) -> Callable[[int, int], tuple[Sequence[Message], bool]]:
    """(demonstration, epoch) -> its messages, and whether they are told with names made up for that epoch: in a `share` of
    cases."""
    if not 0 <= share <= 1:
        raise UserError(
            f"sft: made_up_names is {share}: the share of demonstrations with made-up names lies between 0 and 1"
        )
    if not share:
        return lambda i, time: (demos[i].messages, False)
    from synth.demonstrations.renaming import known_names, renamed

    entities = tables.read(stage.input("kb", "entities.parquet"), Entity)
    known = known_names(n for e in entities for n in (e.name, *e.aliases))

    def told(i: int, time: int) -> tuple[Sequence[Message], bool]:
        demo = demos[i]
        rng = random.Random(seed_for(stage.seed, "sft", "names", demo.id, time))
        other = rng.random() < share
        return renamed(demo.messages, known, rng) if other else demo.messages, other

    return told


def page_batches(
    seed: int, renderer: Renderer, rows: int, list_steps: int, facts: int, context_weight: float, device: str
) -> Callable[[int], Batch]:
    """step -> a batch of pages: name lists for the first `list_steps`, then a mixture. A tail weighs 1, a head
    `context_weight`."""

    def at(step: int) -> Batch:
        batch = []
        for page in pages(seed, step * rows, rows, lists=1.0 if step < list_steps else 0.3, facts=facts):
            head, tail = renderer.encode(page.head), renderer.turn(page.tail)
            weight = np.concatenate([np.full(len(head), context_weight), np.ones(len(tail))])
            batch.append(Row(ids=np.concatenate([head, tail]), trainable=weight > 0, columns={"loss_weight": weight}))
        return weighted(batch, device)

    return at
