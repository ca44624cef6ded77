"""The stage `reward`: a reward model on the cleaned pairs, measured on the verified pairs of held-out problems."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from synth.types import PreferencePair, digest, seed_for
from tasks.disk import tables
from tasks.errors import UserError
from tasks.learning import Curve, drive, make_repeatable, shuffled
from tasks.planning.pieces import Piece
from tasks.rows import pair_rows
from tasks.stage import Stage
from training.learner import Learner, Optim, score
from training.model import load_model, n_parameters, save_model
from training.objective import RewardObjective, reward_of
from training.pack import Row, pack
from training.render import Renderer
from training.rounds import Round

PROVIDES: set[str] = set()
VERDICT = "good"  # the reward of a conversation is the log-odds of this word after it


def reward(
    stage: Stage,
    *,
    dtype: str = "float32",
    device: str = "cpu",
    steps: int = 80,
    pairs_per_step: int = 16,
    tokens_per_microbatch: int = 16384,
    max_length: int = 512,
    optimizer: str = "adamw",
    lr: float = 5e-4,
    matrix_lr: float = 0.01,
    warmup: int = 10,
    weight_decay: float = 0.01,
    max_grad_norm: float = 1.0,
    checkpoint_every: int = 40,
    loss: Piece("training.prefer") = {"piece": "bradley_terry"},
) -> None:
    """Starts from artifacts/sft/model."""
    make_repeatable(stage, device)
    pairs = tables.read(stage.input("clean", "pairs.parquet"), PreferencePair)
    model, tokenizer = load_model(stage.input("sft", "model"), dtype=dtype, device=device)
    renderer = Renderer(tokenizer)
    train = judged_rows(renderer, (p for p in pairs if p.split == "train"), max_length)
    valid = judged_rows(renderer, (p for p in pairs if p.split == "valid"), max_length)
    if not train:
        raise UserError(
            "reward: no cleaned pair of the split train is left (or all are longer than max_length): see artifacts/clean/card.json"
        )
    learner = Learner(model, Optim(kind=optimizer, lr=lr, matrix_lr=matrix_lr, warmup=warmup, steps=steps, weight_decay=weight_decay,
                                   max_grad_norm=max_grad_norm, decay="linear", final=0.1))  # fmt: skip
    order = shuffled(len(train) // 2, pairs_per_step, seed_for(stage.seed, "reward", "order"))
    curve = Curve(stage, steps, shown=("loss", "accuracy"))
    drive(
        [Round(name="reward", role="reward", objective=RewardObjective(loss=loss), steps=steps, together=2,
               tokens_per_microbatch=tokens_per_microbatch,
               source=lambda step: ([pack([train[2 * i + j] for i in order(step) for j in (0, 1)], device=device)], {}))],
        {"reward": learner}, curve, every=checkpoint_every,
    )  # fmt: skip
    curve.close()
    save_model(model, tokenizer, stage.out / "model")
    card = {"parameters": n_parameters(model), "pairs": len(train) // 2, "steps": steps, "verdict": VERDICT,
            "accuracy": round(curve.mean("accuracy"), 4), "trained_on": digest([p.id for p in pairs])}  # fmt: skip
    if valid:
        batch = pack(valid, device=device)
        r = reward_of(score(model, batch, tokens_per_microbatch=tokens_per_microbatch), batch)
        card["valid_accuracy"] = round(float((r[0::2] > r[1::2]).double().mean()), 4)
        card["valid_pairs"] = len(valid) // 2
    stage.card(card)


def judged_rows(renderer: Renderer, pairs: Iterable[PreferencePair], max_length: int) -> list[Row]:
    """The rows of the pairs, each followed by the verdict's first token, which alone is trainable."""
    verdict = renderer.encode(VERDICT)[:1]
    rows, _ = pair_rows(renderer, pairs, max_length - 1)
    return [Row(ids=np.concatenate([r.ids, verdict]), trainable=np.arange(len(r.ids) + 1) == len(r.ids), group=r.group) for r in rows]
