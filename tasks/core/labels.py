"""The labels of stages, models, curves and metrics on pages, and their colours."""

from __future__ import annotations

TRAINED = {
    "sft": "Supervised fine-tuning",
    "reward": "Reward model",
    "prefer": "Preference optimisation",
    "rl": "Reinforcement learning",
}


NAMES = {"base": "base", "sft": "SFT", "prefer": "preference", "rl": "RL"}


CURVES = {  # column of a curve.csv -> label of its axis; other columns are shown folded, these first and in this order
    "reward": "mean score",
    "loss": "loss",
    "nll": "loss, nats per token",
    "valid_nll": "loss on held-out, nats per token",
    "accuracy": "pairs ranked right",
    "valid_accuracy": "held-out pairs ranked right",
    "margin": "margin, nats",
    "entropy": "entropy, nats per token",
    "length": "tokens per rollout",
    "calls": "searches per rollout",
    "mismatch_kl": "KL sampler to learner, nats",
    "mismatch_max": "largest gap of a token, nats",
    "groups_dropped": "groups filtered out",
    "kl_old": "KL to the sampling policy",
    "kl_reference": "KL to the reference",
    "clip_fraction": "share of tokens clipped",
    "grad_norm": "gradient norm",
}


SERIES = {"sft": "sft", "reward": "other", "prefer": "prefer", "rl": "rl"}  # stage -> colour


METRICS = {  # metric -> its label, and whether it is a share
    "majority@8": ("majority of 8", True),
    "exact_match": ("exact match", True),
    "f1": ("word F1", True),
    "best_of@8": ("best of 8 by the reward model", True),
    "format": ("proper format", True),
    "refusal": ("refusals", True),
    "calls_per_right": ("searches per right answer", False),
    "tokens_per_right": ("tokens per right answer", False),
    "ece": ("calibration error", False),
    "brier": ("Brier score", False),
    "right@50%": ("right among the surer half", True),
    "answer_entropy": ("entropy of answers, nats", False),
    "distinct@2": ("different word pairs", True),
    "self_bleu": ("self-BLEU", False),
    "length_correlation": ("correlation of score and length", False),
    "length_p95": ("tokens, 95th percentile", False),
}


def name_of(model: str) -> str:
    """The label of a model."""
    return NAMES.get(model, model)
