"""The stage `prefer`: preference optimisation of the SFT model on the cleaned pairs."""

from __future__ import annotations

from synth.types import PreferencePair, digest, seed_for
from tasks.disk import tables
from tasks.errors import UserError
from tasks.learning import Curve, drive, make_repeatable, shuffled
from tasks.planning.pieces import Piece
from tasks.rows import pair_rows
from tasks.stage import Stage
from training.learner import Learner, Optim, score
from training.model import load_model, n_parameters, save_model
from training.objective import PairObjective
from training.pack import pack
from training.render import Renderer
from training.rounds import Round

PROVIDES = {"reference"}


def prefer(
    stage: Stage,
    *,
    dtype: str = "float32",
    device: str = "cpu",
    steps: int = 240,
    pairs_per_step: int = 16,
    tokens_per_microbatch: int = 16384,
    max_length: int = 512,
    optimizer: str = "adamw",
    lr: float = 2e-4,
    matrix_lr: float = 0.005,
    warmup: int = 10,
    weight_decay: float = 0.0,
    max_grad_norm: float = 1.0,
    sft_weight: float = 0.2,
    checkpoint_every: int = 40,
    loss: Piece("training.prefer") = {"piece": "dpo", "beta": 0.1},
) -> None:
    """Starts from artifacts/sft/model, which is the reference too where the loss needs one. `sft_weight` weighs the next-token loss of the
    chosen answers beside the preference loss (Pang et al. 2024, "Iterative Reasoning Preference Optimization", arXiv 2404.19733): without
    it the chosen answers of a small model lose probability together with the rejected ones."""
    make_repeatable(stage, device)
    pairs = tables.read(stage.input("clean", "pairs.parquet"), PreferencePair)
    policy, tokenizer = load_model(stage.input("sft", "model"), dtype=dtype, device=device)
    renderer = Renderer(tokenizer)
    train, long = pair_rows(renderer, (p for p in pairs if p.split == "train"), max_length)
    valid, _ = pair_rows(renderer, (p for p in pairs if p.split == "valid"), max_length)
    if not train:
        raise UserError(
            "prefer: no cleaned pair of the split train is left (or all are longer than max_length): see artifacts/clean/card.json"
        )
    reference = load_model(stage.input("sft", "model"), dtype=dtype, device=device)[0] if "reference" in stage.needs else None
    objective = PairObjective(loss=loss, reference=reference, sft=sft_weight, tokens_per_microbatch=tokens_per_microbatch)
    learner = Learner(policy, Optim(kind=optimizer, lr=lr, matrix_lr=matrix_lr, warmup=warmup, steps=steps, weight_decay=weight_decay,
                                    max_grad_norm=max_grad_norm, decay="linear", final=0.1))  # fmt: skip
    order = shuffled(len(train) // 2, pairs_per_step, seed_for(stage.seed, "prefer", "order"))
    curve = Curve(stage, steps, shown=("loss", "accuracy"))
    drive(
        [Round(name="prefer", role="policy", objective=objective, prepare=objective.prepare, steps=steps, together=2,
               tokens_per_microbatch=tokens_per_microbatch,
               source=lambda step: ([pack([train[2 * i + j] for i in order(step) for j in (0, 1)], device=device)], {}))],
        {"policy": learner}, curve, every=checkpoint_every,
    )  # fmt: skip
    curve.close()
    save_model(policy, tokenizer, stage.out / "model")
    card = {"parameters": n_parameters(policy), "pairs": len(train) // 2, "too_long": long, "steps": steps,
            "accuracy": round(curve.mean("accuracy"), 4), "trained_on": digest([p.id for p in pairs])}  # fmt: skip
    if valid:
        card["valid_accuracy"] = round(pair_accuracy(policy, reference, valid, device, tokens_per_microbatch), 4)
    stage.card(card)


def pair_accuracy(policy, reference, rows, device: str, tokens_per_microbatch: int) -> float:
    """Share of pairs whose chosen answer gained more log-probability over the reference (over nothing, without one) than the rejected."""
    batch = pack(rows, device=device)
    logp = score(policy, batch, tokens_per_microbatch=tokens_per_microbatch).logp
    if reference is not None:
        logp = logp - score(reference, batch, tokens_per_microbatch=tokens_per_microbatch).logp
    sums = batch.row_sum(logp)
    return float((sums[0::2] > sums[1::2]).double().mean())
