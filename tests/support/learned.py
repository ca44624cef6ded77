"""A few steps of every kind of learning on a tiny model, in a world of any size: what a test compares."""

from functools import partial
from unittest import mock

import numpy as np
import tiny
import torch
from transformers import AutoModelForSequenceClassification

import training.learner.learner as learner_module
from training.learner.learner import Learner, Optim, nll
from training.learner.loop import Round, run
from training.learner.pack import Row, count, pack
from training.learner.rows import weighted
from training.learner.shard import whole
from training.model.lora import adapt
from training.model.attention import NAME
from training.preference.loss.aot import aot
from training.preference.loss.bradley_terry import bradley_terry
from training.preference.loss.dpo import dpo
from training.preference.loss.kto import kto
from training.preference.objective import PairObjective
from training.preference.reward_head.ensemble import ensemble
from training.preference.reward_model import RewardObjective
from training.rl.critic import ValueModel, value_stats
from training.rl.objective import PolicyObjective
from training.rl.policy_loss.clip import clip
from training.rl.ratio.sequence import sequence
from training.rl.ratio.token import token
from training.rl.regulariser.entropy import entropy
from training.rl.regulariser.kl import kl
from training.rl.value_loss.squared import squared

STEPS = 4


def rows(seed, n=24):
    """`n` rows of 5 to 59 tokens, so that no two processes have the same number of tokens to learn from."""
    rng = np.random.default_rng(seed)
    out = []
    for i, ids in enumerate(tiny.ids(*rng.integers(5, 60, n), seed=seed)):
        size = len(ids)
        columns = {
            "advantages": np.full(size, rng.normal()),
            "sampling_logp": rng.normal(-6, 1, size),
            "loss_weight": rng.random(size),
            "value": rng.normal(size=size),
            "returns": rng.normal(size=size),
        }
        out.append(Row(ids=ids, trainable=np.arange(size) >= 1 + i % 4, group=i // 2, columns=columns))
    return out


def _grpo(world, model, **more):
    pieces = {"ratio": token, "policy_loss": partial(clip, aggregate="sequences")} | more
    return PolicyObjective(policy=model, reference=tiny.build(seed=1), world=world, **pieces)


def _pairs(world, model, loss, **more):
    return PairObjective(loss=loss, policy=model, reference=tiny.build(seed=1), world=world, **more)


KINDS = {  # name -> (world, model) -> objective, rows that stay together
    "sft": lambda world, model: (nll, 1),
    "muon": lambda world, model: (nll, 1),
    "lora": lambda world, model: (nll, 1),
    "bfloat16": lambda world, model: (nll, 1),
    "grpo": lambda world, model: (_grpo(world, model, regularisers=[partial(entropy, coef=0.01)]), 1),
    "grpo with old and reference": lambda world, model: (
        _grpo(world, model, needs=frozenset({"old", "reference"}), regularisers=[partial(kl, coef=0.1)]),
        1,
    ),
    "gspo": lambda world, model: (_grpo(world, model, ratio=sequence), 1),
    "dpo": lambda world, model: (_pairs(world, model, dpo), 2),
    "kto": lambda world, model: (_pairs(world, model, kto, needs=frozenset({"mismatched"})), 2),
    "aot": lambda world, model: (_pairs(world, model, aot), 24),
    "critic": lambda world, model: (_values, 1),
    "rewards": lambda world, model: (RewardObjective(loss=bradley_terry, head=ensemble(heads=2)), 2),
}


def _values(stats, batch):
    return [squared(torch.where(batch.trainable, stats.extras["value"], 0.0), batch)]


def learned(world, kind, mean=False, budget=400, n=24, broken=None, steps=STEPS, **options):
    """Metrics of each step, and the weights at the end, of steps of `n` rows. mean: as it would be wrong: each process
    divides by what it counts itself, and the gradients are averaged. broken: a row that has no number for a weight. options: of the
    learner."""
    torch.manual_seed(0)
    model = tiny.build(hidden=32, layers=2)
    if kind == "bfloat16":
        model = model.to(torch.bfloat16)
    if kind == "lora":
        adapt(model, {"rank": 4}, seed=0)
    read = {}
    if kind == "critic":
        model, read = ValueModel(model), {"read": value_stats}
    if kind == "rewards":
        model.config.num_labels, model.config.pad_token_id = ensemble(heads=2).outputs, 0
        classifier = AutoModelForSequenceClassification.from_config(model.config, attn_implementation=NAME)
        classifier.base_model.load_state_dict(model.base_model.state_dict())
        model, read = classifier, {"read": ensemble.read}
    optim = Optim(kind="muon" if kind == "muon" else "adamw", warmup=1, matrix_lr=0.01)
    learner = Learner(model, optim, world=world, **read, **options)
    objective, unit = KINDS[kind](world, learner.model)

    def batch(step):
        packed = weighted(rows(step, n), "cpu") if objective is nll else pack(rows(step, n))
        if broken is not None:
            packed.columns["loss_weight"][packed.row == broken] = float("nan")
        return [packed], {}

    with mock.patch.object(learner_module, "dealt", _per_rank_means(world)) if mean else mock.MagicMock():
        steps = run(
            [
                Round(
                    name=kind,
                    role="policy",
                    source=batch,
                    objective=objective,
                    prepare=getattr(objective, "prepare", lambda batch: None),
                    steps=steps,
                    rows_per_unit=unit,
                    tokens_per_microbatch=budget,
                )
            ],
            {"policy": learner},
        )
        metrics = [m for _, _, m in steps]
    return metrics, [whole(p.detach()).float().numpy() for p in learner.master]


def _per_rank_means(world):
    """`dealt`, whose parts count what their own process has, as often as there are processes."""
    from training.learner.pack import dealt

    def wrong(batch, *how):
        parts = dealt(batch, *how)
        for rank in range(world.size):
            own = [p for owner, p in parts if owner == rank]
            if not own:
                continue
            lengths = [n for p in own for n in p.lengths]
            at = np.cumsum([0, *lengths])
            trainable = np.concatenate([p.trainable.numpy() for p in own])
            rows = [
                Row(ids=np.zeros(n), trainable=trainable[a : a + n], group=i // 2)
                for i, (a, n) in enumerate(zip(at, lengths, strict=False))
            ]
            totals = count(rows)
            weight = sum(float((p.columns.get("loss_weight", p.trainable) * p.trainable).sum()) for p in own)
            for p in own:
                p.totals = {k: v * world.size for k, v in {**totals, "loss_tokens": weight}.items()}
        return parts

    return wrong
